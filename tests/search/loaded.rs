//! What the loader tries (link kind `dlopen`), on the architecture that the test runs on.

use std::path::PathBuf;

use crate::libraries::NAMES;
use crate::machine::{says, Machine, X86_64};

#[test]
fn bare_names_first_and_newest_first() {
    let candidates = Machine::new().candidates();
    let names: Vec<_> = candidates.into_iter().take(NAMES.len()).map(Result::unwrap).collect();
    assert_eq!(names, NAMES.iter().map(PathBuf::from).collect::<Vec<_>>());
    let majors: Vec<u32> = NAMES.iter().map(|name| name.split('.').nth(2).unwrap().parse().unwrap()).collect();
    assert_eq!(majors, [13, 12, 11]);
}

/// In the order of the places, and in one folder the newest first. No header is needed.
#[test]
fn then_the_folders_of_toolkits() {
    let wheel = "venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcudart.so.13";
    let places = [
        "home/lib/libcudart.so.13",
        "home/lib/libcudart.so.12",
        "root/lib64/libcudart.so.12",
        "usr/local/cuda/lib64/libcudart.so.11.0",
        "usr/local/cuda-12.4/lib64/libcudart.so.12",
        "opt/cuda/lib64/libcudart.so.13",
        "env/lib/libcudart.so.12",
        "usr/lib/libcudart.so.12",
        wheel,
    ];
    let mut machine = Machine::new()
        .set_path("CUDA_HOME", "home")
        .set_path("CUDA_ROOT", "root")
        .set_path("CONDA_PREFIX", "env")
        .set_path("VIRTUAL_ENV", "venv");
    for place in places {
        machine = machine.library(place, X86_64);
    }
    let found: Vec<_> = machine.candidates().into_iter().skip(NAMES.len()).map(Result::unwrap).collect();
    assert_eq!(found, places.map(|place| machine.path(place)));
}

#[test]
fn places_without_a_library_are_told() {
    let machine = Machine::new().set_path("CUDA_HOME", "home").folder("home/lib64").set_path("CUDA_PATH", "gone");
    let absent: Vec<_> = machine.candidates().into_iter().filter_map(Result::err).collect();
    let paths: Vec<_> = absent.iter().map(|(path, _)| path.clone()).collect();
    assert_eq!(paths, ["home", "gone", "usr/local/cuda", "opt/cuda", "usr"].map(|place| machine.path(place)));
    says(&absent[0].1, &["none of libcudart.so.13, libcudart.so.12, libcudart.so.11.0 in", "lib64"]);
    says(&absent[1].1, &["no such folder"]);
}
