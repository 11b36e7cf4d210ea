//! The library for C code: installed as its Makefile does it, found by pkg-config, and used by the program
//! tests/c/allocator.c, under valgrind too, and by the program of its README.

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

/// How the README links the two libraries.
enum Library {
    Shared,
    Archive,
}

/// A program of C, linked as the README says.
fn compiled(name: &str, source: &Path, library: Library, prefix: &Path, toolkit: &Path) -> PathBuf {
    let program = prefix.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program).arg(source);
    cc.args(match library {
        Library::Shared => flags(prefix, &["--cflags", "--libs"]),
        Library::Archive => {
            let flags = flags(prefix, &["--cflags", "--libs", "--static"]);
            flags.iter().map(|flag| flag.replace("-lcuda_mempool_c", "-l:libcuda_mempool_c.a")).collect()
        }
    });
    // Where the linker finds libcudart is the program's to say, as for any program with CUDA.
    let lib = toolkit.join("lib");
    cc.arg("-L").arg(&lib).arg(format!("-Wl,-rpath-link,{}", lib.display()));
    printed(&mut cc);
    program
}

/// The program that the README shows.
fn of_the_readme() -> PathBuf {
    let readme = include_str!("../../cuda-mempool-c/README.md");
    let (_, program) = readme.split_once("```c\n").expect("the README has a program");
    let path = folder().join("c-allocator/program.c");
    std::fs::write(&path, program.split_once("```").expect("it ends").0).unwrap();
    path
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
        let readme = compiled("readme", &of_the_readme(), Library::Shared, &prefix, &toolkit);
        assert_eq!(printed(&mut run(readme, &prefix, &toolkit)), "1 block alive\n");
        let test = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/allocator.c");
        for program in [
            compiled("shared", &test, Library::Shared, &prefix, &toolkit),
            compiled("archive", &test, Library::Archive, &prefix, &toolkit),
        ] {
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
