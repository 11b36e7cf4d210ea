//! The library for C code: installed as its Makefile does it, found by pkg-config, and used by the program
//! tests/c/allocator.c, under valgrind too.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::c_code::{simulated, LINK_KINDS};
use crate::probe::{clean, folder, printed};

/// Where the library of this link kind is installed.
fn installed(link: &str, toolkit: &Path) -> PathBuf {
    let prefix = folder().join("c-allocator").join(link);
    let mut make = clean("make");
    make.args(["--directory", concat!(env!("CARGO_MANIFEST_DIR"), "/cuda-mempool-c"), "install"]);
    make.arg(format!("PREFIX={}", prefix.display()));
    make.arg(format!("TARGET_DIR={}", folder().join("c-allocator/target").display()));
    printed(make.env("CUDA_MEMPOOL_LINK", link).env("CUDA_HOME", toolkit));
    prefix
}

/// What a program needs, as the installed library's pkg-config file has it.
fn flags(prefix: &Path, arguments: &[&str]) -> Vec<String> {
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.args(arguments).arg("cuda-mempool-c").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    printed(&mut pkg_config).split_whitespace().map(str::to_owned).collect()
}

/// The test program with the shared library, and with the archive.
fn programs(prefix: &Path, toolkit: &Path) -> [PathBuf; 2] {
    ["shared", "archive"].map(|kind| {
        let program = prefix.join(kind);
        let mut cc = Command::new("cc");
        cc.args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program);
        cc.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/allocator.c"));
        // Where the linker finds libcudart is the program's to say, as for any program with CUDA.
        cc.arg("-L").arg(toolkit.join("lib"));
        if kind == "shared" {
            cc.args(flags(prefix, &["--cflags", "--libs"]));
        } else {
            cc.args(flags(prefix, &["--cflags"])).arg(prefix.join("lib/libcuda_mempool_c.a"));
            let all = flags(prefix, &["--libs", "--static"]);
            cc.args(all.iter().filter(|flag| *flag != "-lcuda_mempool_c"));
        }
        printed(&mut cc);
        program
    })
}

/// A command that finds the libraries, and does not skip anything.
fn run(program: impl AsRef<std::ffi::OsStr>, prefix: &Path, toolkit: &Path) -> Command {
    let folders = std::env::join_paths([prefix.join("lib"), toolkit.join("lib")]).unwrap();
    let mut command = clean(program);
    command.env("LD_LIBRARY_PATH", folders).env("CUDA_MEMPOOL_REQUIRE_DEVICE", "1");
    command
}

#[test]
fn c_program_with_the_allocator() {
    let Some(toolkit) = simulated() else { return };
    let has_valgrind = Command::new("valgrind").arg("--version").output().is_ok();
    for link in LINK_KINDS {
        let prefix = installed(link, &toolkit);
        for program in programs(&prefix, &toolkit) {
            assert_eq!(printed(&mut run(&program, &prefix, &toolkit)), "passed\n", "{}", program.display());
            if has_valgrind {
                let mut valgrind = run("valgrind", &prefix, &toolkit);
                valgrind.args([
                    "--quiet",
                    "--leak-check=full",
                    "--errors-for-leak-kinds=definite",
                    "--error-exitcode=1",
                ]);
                assert_eq!(printed(valgrind.arg(&program)), "passed\n", "{}", program.display());
            }
        }
    }
    if !has_valgrind {
        println!("skipped in part: there is no valgrind");
    }
}
