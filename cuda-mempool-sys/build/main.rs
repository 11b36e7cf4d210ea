//! Finds a CUDA toolkit, chooses how to link and which bindings to use, and tells Cargo and the dependants.

mod bindings;
mod environment;
#[cfg(feature = "bindgen")]
mod from_headers;
#[cfg(feature = "bindgen")]
mod generate;
mod library;
mod link;
mod output;
mod packages;
#[path = "../src/places.rs"]
mod places;
mod plan;
mod search;
mod toolkit;
mod version;

use std::cell::Cell;
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use environment::{Environment, Target};
use search::Search;
use toolkit::Needs;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let lookup = |name: &str| env::var_os(name);
    let environment = Environment::new(&lookup);
    let target = Target::of(&environment);
    let folder = Path::new("src/bindings");
    let known = version::known(folder)?;
    let needs = Needs {
        target: &target,
        oldest: known[0],
        asked: bindings::asked(&environment, &known)?,
        compiles_headers: cfg!(feature = "bindgen"),
    };
    let asked_before = Cell::new(false);
    let search = Search {
        environment: &environment,
        filesystem: Path::new("/"),
        pkg_config: &|version| packages::of(version, !asked_before.replace(true)),
        known: &known,
        needs,
    };
    let plan = plan::plan(&search)?;
    let package = PathBuf::from(environment.cargo("CARGO_MANIFEST_DIR"));
    let bindings = package.join(folder).join(version::file_name(plan.bindings));
    #[cfg(feature = "bindgen")]
    let bindings = from_headers::write(&plan, &target, &environment)?.unwrap_or(bindings);

    println!("{}", output::summary(&plan));
    for line in output::lines(&plan, &known, &target, &bindings) {
        println!("{line}");
    }
    println!("cargo:rerun-if-changed={}", folder.display());
    for name in environment.asked() {
        println!("cargo:rerun-if-env-changed={name}");
    }
    Ok(())
}
