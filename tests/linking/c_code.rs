//! Programs of Rust and C together: a crate whose build script compiles C (or CUDA C++) by the metadata, and a C program
//! that links a static library in Rust. Both sides are to end up with one runtime, in every link kind.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::probe::{clean, folder, printed, value, Build};

pub const LINK_KINDS: [&str; 3] = ["dylib", "static", "dlopen"];

/// The toolkit that has the simulated runtime.
pub fn simulated() -> Option<PathBuf> {
    let root = std::env::var_os("CUDA_MEMPOOL_TEST_SIM").map(PathBuf::from);
    if root.is_none() {
        println!("skipped: CUDA_MEMPOOL_TEST_SIM is not set (cargo xtask test sets it)");
    }
    root
}

/// The program finds the toolkit's library as any program does: by the loader's path.
fn run(program: &Path, toolkit: &Path) -> String {
    printed(clean(program).env("LD_LIBRARY_PATH", toolkit.join("lib")))
}

#[test]
fn c_code_of_a_dependant() {
    let Some(toolkit) = simulated() else { return };
    for link in LINK_KINDS {
        let program = Build::new(link).of("c-dependant").variable("CUDA_HOME", &toolkit).program();
        let report = run(&program, &toolkit);
        assert_eq!(value(&report, "link"), link);
        assert_eq!(value(&report, "scaled_by"), "host");
        assert_eq!(value(&report, "values"), "[2.5, 5.0, 7.5]");
        let runtime = if link == "static" { program } else { toolkit.join("lib/libcudart.so.13") };
        assert_eq!(Path::new(value(&report, "runtime")).canonicalize().unwrap(), runtime.canonicalize().unwrap());
    }
}

/// With a toolkit that has a device compiler the kernel is taken. Where there is no GPU, that it links is all to be seen.
#[test]
fn cuda_code_of_a_dependant() {
    let Some(folder) = std::env::var_os("CUDA_MEMPOOL_TEST_WHEELS") else {
        println!("skipped: CUDA_MEMPOOL_TEST_WHEELS is not set (cargo xtask test sets it)");
        return;
    };
    let toolkit = Path::new(&folder).join("nvcc-13.0");
    for link in LINK_KINDS {
        let report = run(&Build::new(link).of("c-dependant").variable("CUDA_HOME", &toolkit).program(), &toolkit);
        assert_eq!(value(&report, "link"), link);
        assert_eq!(value(&report, "scaled_by"), "kernel");
        if Path::new("/dev/nvidiactl").exists() {
            assert_eq!(value(&report, "values"), "[2.5, 5.0, 7.5]");
        } else {
            assert!(value(&report, "no_device").contains("cudaErrorInsufficientDriver"), "{report}");
        }
    }
}

#[test]
fn c_program_with_a_library_in_rust() {
    let Some(toolkit) = simulated() else { return };
    for link in LINK_KINDS {
        let build = Build::new(link).of("c-main").variable("CUDA_HOME", &toolkit);
        let source = build.source().join("main.c");
        let (library, needed) = build.static_library();
        let program = folder().join(format!("c-main-{link}"));
        let mut cc = Command::new("cc");
        cc.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(source).arg(library).args(needed);
        cc.arg("-I").arg(toolkit.join("include")).arg("-L").arg(toolkit.join("lib"));
        if link == "dlopen" {
            cc.arg("-l:libcudart.so.13"); // for main.c, as Rust needs nothing
        }
        printed(&mut cc);
        let report = run(&program, &toolkit);
        assert_eq!(value(&report, "values"), "1 2 3 4", "{link}");
    }
}
