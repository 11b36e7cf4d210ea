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
use search::{Package, Search};
use toolkit::Needs;
use version::Version;

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
    let announced = Cell::new(false);
    let search = Search {
        environment: &environment,
        filesystem: Path::new("/"),
        pkg_config: &|version| pkg_config(version, !announced.replace(true)),
        known: &known,
        needs,
    };
    let plan = plan::plan(&search)?;
    let bindings = bindings_file(&plan, folder, &target, &environment)?;

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

/// The file with the bindings of the plan, made now if that is the plan.
fn bindings_file(
    plan: &plan::Plan,
    folder: &Path,
    target: &Target,
    environment: &Environment<'_>,
) -> Result<PathBuf, String> {
    let package = PathBuf::from(environment.cargo("CARGO_MANIFEST_DIR"));
    #[cfg(feature = "bindgen")]
    if let (true, Some(toolkit)) = (plan.generates, &plan.toolkit) {
        println!("cargo:rerun-if-changed=wrapper.h");
        let out = PathBuf::from(environment.cargo("OUT_DIR"));
        return from_headers::write(&package.join("wrapper.h"), &toolkit.include, &out, target, environment);
    }
    #[cfg(not(feature = "bindgen"))]
    let _ = target;
    Ok(package.join(folder).join(format!("cuda_{}.rs", plan.bindings.underscored())))
}

/// `announces`: whether to tell Cargo the variables that pkg-config heeds, the same for every version.
fn pkg_config(version: Version, announces: bool) -> Result<Option<Package>, String> {
    let package = format!("cudart-{version}");
    match pkg_config::Config::new().cargo_metadata(false).env_metadata(announces).probe(&package) {
        Ok(found) => Ok(found
            .include_paths
            .into_iter()
            .zip(found.link_paths)
            .next()
            .map(|(include, lib)| Package { include, lib })),
        Err(pkg_config::Error::ProbeFailure { .. }) => Ok(None),
        Err(why) => Err(why.to_string().lines().next().unwrap_or_default().to_owned()),
    }
}
