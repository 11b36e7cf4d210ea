//! The link kind, the version of the bindings, and what Cargo and the dependants are told.

use crate::link::Link;
use crate::machine::{known, says, Machine};
use crate::version::{self, Version};

const ROOT: &str = "usr/local/cuda";

fn newest() -> Version {
    *known().last().unwrap()
}

#[test]
fn wrong_link_kind() {
    let message = Machine::new().set("CUDA_MEMPOOL_LINK", "shared").stopped();
    says(&message, &["CUDA_MEMPOOL_LINK=shared is no link kind", "dylib", "static", "dlopen", "unset it"]);
}

#[test]
fn the_variable_wins_over_the_features() {
    for (value, link) in [("dylib", Link::Dylib), ("static", Link::Static), ("dlopen", Link::Dlopen)] {
        let machine =
            Machine::new().cuda(ROOT, 13000).set("CARGO_FEATURE_STATIC", "1").set("CARGO_FEATURE_DLOPEN", "1");
        let built = machine.set("CUDA_MEMPOOL_LINK", value).built();
        assert_eq!(built.plan.link, link);
        assert_eq!(built.lines("warning"), [""; 0]);
    }
}

#[test]
fn a_feature_chooses() {
    let machine = || Machine::new().cuda(ROOT, 13000);
    assert_eq!(machine().set("CARGO_FEATURE_STATIC", "1").built().plan.link, Link::Static);
    assert_eq!(machine().set("CARGO_FEATURE_DLOPEN", "1").built().plan.link, Link::Dlopen);
    assert_eq!(machine().built().plan.link, Link::Dylib);
    assert_eq!(Machine::new().built().plan.link, Link::Dlopen);
}

#[test]
fn of_both_features_dlopen_wins_with_a_word() {
    let built = Machine::new().set("CARGO_FEATURE_STATIC", "1").set("CARGO_FEATURE_DLOPEN", "1").built();
    assert_eq!(built.plan.link, Link::Dlopen);
    says(built.warning(), &["`static` and `dlopen`", "builds everywhere", "CUDA_MEMPOOL_LINK=static"]);
}

#[test]
fn docs_rs_looks_for_nothing() {
    let built = Machine::new().set("DOCS_RS", "1").cuda(ROOT, 12040).generating().built();
    assert_eq!((built.plan.link, built.plan.bindings, built.plan.generates), (Link::Dlopen, newest(), false));
    assert!(built.plan.toolkit.is_none());
}

#[test]
fn a_demand_that_cannot_be_met_stops_the_build() {
    let machine =
        Machine::new().set_path("CUDA_HOME", "home").set_path("CONDA_PREFIX", "env").set_path("VIRTUAL_ENV", "v");
    let machine = machine.header("home/include", 13000).set("CARGO_FEATURE_STATIC", "1");
    let message = machine.stopped();
    let home = format!(
        "CUDA_HOME={}: no cuda_runtime_api.h in targets/x86_64-linux/include; no libcudart_static.a in lib64",
        machine.name("home")
    );
    says(&message, &["the feature `static` asks for the link kind `static`", &home, "pkg-config: "]);
    for place in ["usr/local/cuda", "opt/cuda", "env", "usr"] {
        says(&message, &[&format!("\n  {}: no such folder", machine.name(place))]);
    }
    says(&message, &["Set CUDA_HOME", "CUDA_MEMPOOL_LINK=dlopen"]);
}

#[test]
fn the_static_library_brings_its_system_libraries() {
    let built = Machine::new().cuda(ROOT, 13000).set("CUDA_MEMPOOL_LINK", "static").built();
    assert_eq!(built.lines("rustc-link-lib"), ["static=cudart_static", "dylib=rt", "dylib=pthread", "dylib=dl"]);
}

/// The version of the bindings for a toolkit of this `CUDART_VERSION`, and the warnings.
fn bindings_for(number: u32) -> (Version, Vec<String>) {
    let built = Machine::new().cuda(ROOT, number).built();
    assert_eq!(built.plan.link, Link::Dylib);
    (built.plan.bindings, built.lines("warning").into_iter().map(str::to_owned).collect())
}

#[test]
fn every_known_version_has_its_own_bindings() {
    for version in known() {
        assert_eq!(bindings_for(version.number()), (version, vec![]));
    }
}

#[test]
fn between_two_versions_the_lower_serves() {
    assert_eq!(bindings_for(12070), (Version { major: 12, minor: 6 }, vec![]));
}

#[test]
fn a_newer_toolkit_is_used_with_the_newest_bindings_and_one_warning() {
    let (bindings, warnings) = bindings_for(14070);
    assert_eq!(bindings, newest());
    assert_eq!(warnings.len(), 1);
    says(&warnings[0], &["the CUDA 14.7 in", "newer than this crate knows", &format!("bindings of {}", newest())]);
}

#[test]
fn headers_that_are_compiled_name_their_own_version() {
    let machine = Machine::new().cuda(ROOT, 14070).generating();
    let machine = machine.file("usr/local/cuda/targets/x86_64-linux/include/crt/host_defines.h", "");
    let built = machine.built();
    assert_eq!(built.plan.bindings.to_string(), "14.7");
    assert_eq!(built.lines("version"), ["14.7"]);
    assert_eq!(built.lines("warning"), [""; 0]);
    assert!(built.plan.generates);
}

#[test]
fn loading_at_run_time_has_the_newest_bindings_unless_others_are_asked_for() {
    let machine = || Machine::new().cuda(ROOT, 12040).set("CUDA_MEMPOOL_LINK", "dlopen");
    assert_eq!(machine().built().plan.bindings, newest());
    let asked = machine().set("CUDA_MEMPOOL_CUDA_VERSION", "12.2").built();
    assert_eq!(asked.plan.bindings, Version { major: 12, minor: 2 });
}

#[test]
fn a_version_without_bindings_cannot_be_asked_for() {
    for wrong in ["12.7", "14.0", "12", "new"] {
        let message = Machine::new().set("CUDA_MEMPOOL_CUDA_VERSION", wrong).stopped();
        let start = format!("CUDA_MEMPOOL_CUDA_VERSION={wrong}: there are no bindings of that version");
        says(&message, &[&start, "Unset it", &version::list(&known())]);
    }
}

#[test]
fn a_toolkit_of_another_version_than_asked_for_is_not_linked() {
    let machine = Machine::new().cuda(ROOT, 13000).set("CUDA_MEMPOOL_CUDA_VERSION", "12.4");
    let built = machine.built();
    assert_eq!((built.plan.link, built.plan.bindings.to_string()), (Link::Dlopen, "12.4".to_owned()));
    says(&built.summary, &["CUDA 13.0, but CUDA_MEMPOOL_CUDA_VERSION asks for 12.4"]);
}

#[test]
fn version_cfgs_mean_at_least() {
    let built = Machine::new().cuda(ROOT, 12020).built();
    let cfgs = built.lines("rustc-cfg");
    assert_eq!(
        cfgs,
        ["cuda_link=\"dylib\"", "cuda_since_11_8", "cuda_since_12_0", "cuda_since_12_1", "cuda_since_12_2"]
    );
    for version in known() {
        let declared = format!("cfg(cuda_since_{})", version.underscored());
        assert!(built.lines("rustc-check-cfg").contains(&declared.as_str()), "{declared}");
    }
}

#[test]
fn dependants_are_told() {
    let machine = Machine::new().cuda(ROOT, 12020);
    let built = machine.built();
    for (key, value) in [
        ("link", "dylib"),
        ("version", "12.2"),
        ("version_number", "12020"),
        ("toolkit_version", "12.2"),
        ("since", "11_8,12_0,12_1,12_2"),
        ("root", &machine.name(ROOT)),
        ("include", &machine.name("usr/local/cuda/targets/x86_64-linux/include")),
        ("lib_dir", &machine.name("usr/local/cuda/targets/x86_64-linux/lib")),
        ("library", &machine.name("usr/local/cuda/targets/x86_64-linux/lib/libcudart.so")),
    ] {
        assert_eq!(built.lines(key), [value], "{key}");
    }
    assert_eq!(built.lines("known"), [known().iter().map(|v| v.underscored()).collect::<Vec<_>>().join(",")]);
}

#[test]
fn with_dlopen_dependants_are_told_of_a_toolkit_that_is_not_linked() {
    let machine = Machine::new().cuda(ROOT, 12020).set("CUDA_MEMPOOL_LINK", "dlopen");
    let built = machine.built();
    assert_eq!(built.lines("root"), [machine.name(ROOT)]);
    assert_eq!(built.lines("toolkit_version"), ["12.2"]);
    assert_eq!(built.lines("version"), [newest().to_string()]);
    assert_eq!(built.lines("rustc-link-lib").len() + built.lines("rustc-link-search").len(), 0);
    let nothing = Machine::new().built();
    for key in ["root", "include", "lib_dir", "library"] {
        assert_eq!(nothing.lines(key).len(), 0, "{key}");
    }
}

/// Every variable that was looked at, and no other: what was found first settles the rest.
#[test]
fn the_variables_that_decided_are_watched() {
    let named = Machine::new().cuda("home", 13000).set_path("CUDA_HOME", "home").built();
    assert!(named.asked.contains(&"CUDA_HOME".to_owned()) && named.asked.contains(&"CUDA_MEMPOOL_LINK".to_owned()));
    assert!(!named.asked.contains(&"CONDA_PREFIX".to_owned()));
    assert!(!named.asked.contains(&"TARGET".to_owned()));
    let nothing = Machine::new().built();
    assert!(nothing.asked.contains(&"CONDA_PREFIX".to_owned()) && nothing.asked.contains(&"VIRTUAL_ENV".to_owned()));
}

#[test]
fn what_was_found_is_watched() {
    let machine = Machine::new().cuda(ROOT, 13000);
    let tree = "usr/local/cuda/targets/x86_64-linux";
    assert_eq!(
        machine.built().lines("rerun-if-changed"),
        [
            machine.name(&format!("{tree}/include/cuda_runtime_api.h")),
            machine.name(&format!("{tree}/lib/libcudart.so"))
        ]
    );
}

#[test]
fn known_versions_are_the_names_of_the_files() {
    let folder = tempfile::tempdir().unwrap();
    assert!(version::known(folder.path()).unwrap_err().contains("no bindings there"));
    for name in ["cuda_12_10.rs", "cuda_12_9.rs", "cuda_11_8.rs", "README.md"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    assert_eq!(version::list(&version::known(folder.path()).unwrap()), "11.8, 12.9, 12.10");
}
