//! The part `memory`: the pinned-memory allocator over the system's memory, where sanitizer and valgrind see each access.

use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo::{self, Link};
use crate::counts;

/// What both can look into.
const TARGET: &str = "x86_64-unknown-linux-gnu";

pub fn run() -> Result<()> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        println!("left out: AddressSanitizer and valgrind are run on {TARGET} alone");
        return Ok(());
    }
    match sanitizer_works()? {
        true => cargo::run(&mut sanitized()?).context("under AddressSanitizer")?,
        false => println!("left out: this compiler does not build with AddressSanitizer"),
    }
    match counts::has_valgrind() {
        true => cargo::run(&mut under_valgrind()?).context("under valgrind"),
        false => {
            println!("left out: the allocator is not looked at by valgrind (install it)");
            Ok(())
        }
    }
}

/// Whether the compiler has the sanitizer, which any may come without.
fn sanitizer_works() -> Result<bool> {
    let folder = crate::target().join("sanitized");
    std::fs::create_dir_all(&folder)?;
    let (source, program) = (folder.join("empty.rs"), folder.join("empty"));
    std::fs::write(&source, "fn main() {}\n")?;
    let mut rustc = Command::new("rustc");
    rustc.args(["-Zsanitizer=address", "--target", TARGET]).arg(source).arg("-o").arg(&program);
    let built = rustc.env("RUSTC_BOOTSTRAP", "1").output().is_ok_and(|output| output.status.success());
    Ok(built && Command::new(program).output().is_ok_and(|output| output.status.success()))
}

fn sanitized() -> Result<Command> {
    let mut test = allocator_tests()?;
    // The sanitizer is a feature of nightly compilers, which stable ones have under this name.
    test.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    test.env("CARGO_TARGET_DIR", crate::target().join("sanitized"));
    Ok(test)
}

fn under_valgrind() -> Result<Command> {
    let mut test = allocator_tests()?;
    test.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", "valgrind --quiet --error-exitcode=9");
    // It is many times as slow.
    test.env("PROPTEST_CASES", "16");
    Ok(test)
}

fn allocator_tests() -> Result<Command> {
    let mut test = cargo::cargo(&["test", "--package", "cuda-mempool", "--lib", "--target", TARGET, "host::"]);
    Link::Dlopen.apply(&mut test)?;
    Ok(test)
}
