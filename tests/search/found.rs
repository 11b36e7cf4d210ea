//! Trees in which a toolkit is found, and the order of the places.

use crate::link::Link;
use crate::machine::{elf_named, Machine, AARCH64, X86_64};

#[track_caller]
fn links_shared(machine: &Machine, root: &str, lib: &str, name: &str) {
    let built = machine.built();
    assert_eq!(built.plan.link, Link::Dylib, "{}", built.summary);
    assert_eq!(built.root(), machine.path(root));
    let lib = format!("native={}", machine.name(&format!("{root}/{lib}")));
    assert_eq!(built.lines("rustc-link-search"), [lib]);
    assert_eq!(built.lines("rustc-link-lib"), [name]);
    assert_eq!(built.lines("warning"), [""; 0]);
}

#[test]
fn installed_by_nvidia() {
    let machine = Machine::new().cuda("usr/local/cuda", 13000);
    links_shared(&machine, "usr/local/cuda", "targets/x86_64-linux/lib", "dylib=cudart");
}

#[test]
fn arch_linux() {
    let machine =
        Machine::new().header("opt/cuda/include", 13010).library("opt/cuda/lib64/libcudart.so.13.1.80", X86_64);
    let machine = machine.link("opt/cuda/lib64/libcudart.so", "libcudart.so.13.1.80");
    links_shared(&machine, "opt/cuda", "lib64", "dylib=cudart");
}

#[test]
fn arm_server() {
    let machine = Machine::new().target("aarch64-unknown-linux-gnu");
    let machine = machine.toolkit("usr/local/cuda", 13000, "sbsa-linux", AARCH64);
    links_shared(&machine, "usr/local/cuda", "targets/sbsa-linux/lib", "dylib=cudart");
}

#[test]
fn tegra() {
    let machine = Machine::new().target("aarch64-unknown-linux-gnu");
    let machine = machine.toolkit("usr/local/cuda", 12060, "aarch64-linux", AARCH64);
    links_shared(&machine, "usr/local/cuda", "targets/aarch64-linux/lib", "dylib=cudart");
}

#[test]
fn arm_server_before_tegra() {
    let machine = Machine::new().target("aarch64-unknown-linux-gnu");
    let machine = machine.toolkit("usr/local/cuda", 12060, "sbsa-linux", AARCH64);
    let machine = machine
        .header("usr/local/cuda/targets/aarch64-linux/include", 12060)
        .library("usr/local/cuda/targets/aarch64-linux/lib/libcudart.so", AARCH64);
    links_shared(&machine, "usr/local/cuda", "targets/sbsa-linux/lib", "dylib=cudart");
}

/// The tree of the host's own architecture stands first on the disk, but not for this target.
#[test]
fn cross_compiling() {
    let machine = Machine::new().target("aarch64-unknown-linux-gnu").cuda("usr/local/cuda", 13000);
    let machine = machine
        .header("usr/local/cuda/targets/sbsa-linux/include", 13000)
        .library("usr/local/cuda/targets/sbsa-linux/lib/libcudart.so", AARCH64);
    links_shared(&machine, "usr/local/cuda", "targets/sbsa-linux/lib", "dylib=cudart");
}

#[test]
fn conda_with_targets() {
    let machine = Machine::new().set_path("CONDA_PREFIX", "env");
    let machine = machine
        .header("env/targets/x86_64-linux/include", 12040)
        .library("env/targets/x86_64-linux/lib/libcudart.so", X86_64);
    links_shared(&machine, "env", "targets/x86_64-linux/lib", "dylib=cudart");
}

#[test]
fn conda_without_targets() {
    let machine = Machine::new().set_path("CONDA_PREFIX", "env");
    let machine = machine.header("env/include", 11080).library("env/lib/libcudart.so", X86_64);
    links_shared(&machine, "env", "lib", "dylib=cudart");
}

#[test]
fn debian() {
    let machine = Machine::new()
        .header("usr/include", 11080)
        .library("usr/lib/x86_64-linux-gnu/libcudart.so.11.8.89", X86_64)
        .link("usr/lib/x86_64-linux-gnu/libcudart.so.11.0", "libcudart.so.11.8.89")
        .link("usr/lib/x86_64-linux-gnu/libcudart.so", "libcudart.so.11.0");
    links_shared(&machine, "usr", "lib/x86_64-linux-gnu", "dylib=cudart");
}

#[test]
fn pypi_of_cuda_13() {
    let root = "venv/lib/python3.12/site-packages/nvidia/cu13";
    let machine = Machine::new().set_path("VIRTUAL_ENV", "venv");
    let machine = machine.header(&format!("{root}/include"), 13000);
    let machine = machine.library(&format!("{root}/lib/libcudart.so.13"), X86_64);
    links_shared(&machine, root, "lib", "dylib:+verbatim=libcudart.so.13");
}

#[test]
fn pypi_of_cuda_12() {
    let root = "venv/lib/python3.12/site-packages/nvidia/cuda_runtime";
    let machine = Machine::new().set_path("VIRTUAL_ENV", "venv");
    let machine = machine.header(&format!("{root}/include"), 12090);
    let machine = machine.library(&format!("{root}/lib/libcudart.so.12"), X86_64);
    links_shared(&machine, root, "lib", "dylib:+verbatim=libcudart.so.12");
}

#[test]
fn pypi_of_cuda_11_named_by_a_variable() {
    let machine = Machine::new().set_path("CUDA_HOME", "nvidia/cuda_runtime");
    let machine = machine.header("nvidia/cuda_runtime/include", 11080);
    let machine = machine.library("nvidia/cuda_runtime/lib/libcudart.so.11.0", X86_64);
    links_shared(&machine, "nvidia/cuda_runtime", "lib", "dylib:+verbatim=libcudart.so.11.0");
}

#[test]
fn version_by_the_soname_inside() {
    let machine = Machine::new().header("usr/local/cuda/include", 13000);
    let machine = machine.file("usr/local/cuda/lib64/libcudart.so", elf_named("libcudart.so.13"));
    links_shared(&machine, "usr/local/cuda", "lib64", "dylib=cudart");
}

/// Every place has a toolkit, and one after the other loses it.
#[test]
fn order_of_the_places() {
    let prefixed = "X86_64_UNKNOWN_LINUX_GNU_CUDA_ROOT";
    let mut variables = vec![prefixed, "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"];
    let mut packages = vec![(13000, "package-13.0"), (12040, "package-12.4")];
    let mut places = vec!["usr/local/cuda", "usr/local/cuda-13.2", "usr/local/cuda-12.9", "opt/cuda", "env", "usr"];
    let wheel = "venv/lib/python3.12/site-packages/nvidia/cu13";
    places.push(wheel);
    loop {
        let mut machine = Machine::new().set_path("CONDA_PREFIX", "env").set_path("VIRTUAL_ENV", "venv");
        for variable in &variables {
            machine = machine.cuda(variable, 13000).set_path(variable, variable);
        }
        for &(number, root) in &packages {
            machine = machine.cuda(root, number).package(root, number);
        }
        for place in &places {
            machine = machine.cuda(place, 13000);
        }
        let expected = match (variables.first(), packages.first(), places.first()) {
            (Some(&variable), ..) => variable,
            (_, Some(&(_, package)), _) => package,
            (_, _, Some(&place)) => place,
            (None, None, None) => break,
        };
        assert_eq!(machine.built().root(), machine.path(expected));
        if !variables.is_empty() {
            variables.remove(0);
        } else if !packages.is_empty() {
            packages.remove(0);
        } else {
            places.remove(0);
        }
    }
}

#[test]
fn of_two_versions_the_one_asked_for() {
    let machine = || {
        let machine = Machine::new().cuda("usr/local/cuda-12.4", 12040).cuda("usr/local/cuda-13.0", 13000);
        machine.link("usr/local/cuda", "cuda-13.0")
    };
    let first = machine();
    links_shared(&first, "usr/local/cuda", "targets/x86_64-linux/lib", "dylib=cudart");
    let asked = machine().set("CUDA_MEMPOOL_CUDA_VERSION", "12.4");
    links_shared(&asked, "usr/local/cuda-12.4", "targets/x86_64-linux/lib", "dylib=cudart");
    assert_eq!(asked.built().plan.bindings.to_string(), "12.4");
}

#[test]
fn versions_are_compared_as_numbers() {
    let machine = Machine::new().cuda("usr/local/cuda-12.4", 12040).cuda("usr/local/cuda-9.2", 9020);
    links_shared(&machine, "usr/local/cuda-12.4", "targets/x86_64-linux/lib", "dylib=cudart");
}
