//! The part `versions`: the crates against the bindings of every supported CUDA version, in every link kind.

use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo::{self, Link};
use crate::{sim, wheels};

pub fn run() -> Result<()> {
    let library = sim::Library::build()?;
    for cuda in wheels::SUPPORTED {
        let version = format!("{}.{}", cuda.major, cuda.minor);
        for link in Link::ALL {
            println!("CUDA {version}, {}", link.name());
            let mut test = tests(link);
            match link {
                // By the bindings alone, without headers.
                Link::Dlopen => link.apply(&mut test).and_then(|()| sim::apply(&mut test))?,
                Link::Dylib | Link::Static => library.apply(&mut test, cuda, link)?,
            }
            test.env("CUDA_MEMPOOL_CUDA_VERSION", &version);
            cargo::run(&mut test).with_context(|| format!("CUDA {version}, link kind {}", link.name()))?;
        }
    }
    Ok(())
}

/// The safe layer's tests that may come out differently in this link kind. The unit tests, which call no CUDA, are the
/// same in all; and most tests steer the simulated runtime, whose controls a static one hides.
fn tests(link: Link) -> Command {
    let mut test = cargo::cargo(&["test", "--quiet", "--package", "cuda-mempool-tests", "--test", "safe_surface"]);
    if link != Link::Static {
        test.args(["--test", "safe_faults", "--test", "safe_lacks"]);
    }
    if link == Link::Dlopen {
        test.args(["--package", "cuda-mempool-sys", "--package", "cuda-mempool", "--lib"]);
    }
    // Everything here is built anew each time, and in a folder of its own leaves alone what the other parts have built.
    test.env("CARGO_TARGET_DIR", crate::target().join("versions"));
    test.env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
    // The part `suites` runs the properties at length.
    test.env("PROPTEST_CASES", "16").env("RUSTFLAGS", "--deny warnings");
    test
}
