//! Trees and variables that will not do: the reason is told, and the search goes on.

use crate::link::Link;
use crate::machine::{elf_named, says, Machine, AARCH64, X86_64};

const ROOT: &str = "usr/local/cuda";

/// Without a toolkit elsewhere the build loads at run time, and says why the tree was refused.
#[track_caller]
fn refused(machine: &Machine, reasons: &[&str]) {
    let built = machine.built();
    assert_eq!(built.plan.link, Link::Dlopen);
    assert_eq!(built.lines("rustc-link-lib"), [""; 0]);
    says(&built.summary, reasons);
    says(&machine.stopped_for_want_of_a_library(), reasons);
}

#[test]
fn header_without_library() {
    let machine = Machine::new().header("usr/local/cuda/include", 13000);
    refused(&machine, &[ROOT, "no libcudart.so or libcudart.so.13 in lib64, lib, lib/x86_64-linux-gnu"]);
}

#[test]
fn library_without_header() {
    let machine = Machine::new().library("usr/local/cuda/lib64/libcudart.so.13", X86_64);
    refused(&machine, &[ROOT, "no cuda_runtime_api.h in targets/x86_64-linux/include, include"]);
}

#[test]
fn stub_directory_only() {
    let machine = Machine::new()
        .header("usr/local/cuda/include", 13000)
        .library("usr/local/cuda/lib64/stubs/libcudart.so", X86_64)
        .library("usr/local/cuda/lib64/stubs/libcuda.so", X86_64);
    refused(&machine, &["no libcudart.so or libcudart.so.13 in lib64, lib, lib/x86_64-linux-gnu"]);
}

#[test]
fn link_into_a_stub_directory() {
    let machine = Machine::new()
        .header("usr/local/cuda/include", 13000)
        .library("usr/local/cuda/lib64/stubs/libcudart.so", X86_64)
        .link("usr/local/cuda/lib64/libcudart.so", "stubs/libcudart.so");
    refused(&machine, &["is a stub, which must not be linked"]);
}

#[test]
fn older_than_the_oldest_bindings() {
    refused(&Machine::new().cuda(ROOT, 11070), &["CUDA 11.7, but 11.8 is the oldest that is supported"]);
}

#[test]
fn header_without_version() {
    let machine = Machine::new().file("usr/local/cuda/include/cuda_runtime_api.h", "#define CUDART_VERSION_OLD 12\n");
    refused(&machine, &["include/cuda_runtime_api.h defines no CUDART_VERSION"]);
}

#[test]
fn library_of_another_minor_version() {
    let machine = Machine::new()
        .header("usr/local/cuda/include", 12060)
        .library("usr/local/cuda/lib64/libcudart.so.12.4.127", X86_64)
        .link("usr/local/cuda/lib64/libcudart.so", "libcudart.so.12.4.127");
    refused(&machine, &["is of CUDA 12.4, but the header is of 12.6"]);
}

#[test]
fn library_of_another_major_version_by_its_soname() {
    let machine = Machine::new()
        .header("usr/local/cuda/include", 13000)
        .file("usr/local/cuda/lib64/libcudart.so", elf_named("libcudart.so.12"));
    refused(&machine, &["is of CUDA 12, but the header is of 13.0"]);
}

#[test]
fn archive_among_libraries_of_another_version() {
    let machine = Machine::new()
        .set("CUDA_MEMPOOL_LINK", "static")
        .header("usr/local/cuda/include", 13000)
        .archive("usr/local/cuda/lib64/libcudart_static.a", X86_64)
        .library("usr/local/cuda/lib64/libcudart.so.12.9.79", X86_64);
    says(&machine.stopped(), &["libcudart_static.a is of CUDA 12.9, but the header is of 13.0"]);
}

#[test]
fn library_for_another_architecture() {
    let machine = Machine::new().toolkit(ROOT, 13000, "sbsa-linux", AARCH64);
    refused(&machine, &["is for another architecture than x86_64"]);
}

#[test]
fn library_of_32_bits() {
    let mut elf = elf_named("libcudart.so.13");
    elf[4] = 1;
    let machine = Machine::new().header("usr/local/cuda/include", 13000).file("usr/local/cuda/lib64/libcudart.so", elf);
    refused(&machine, &["is for another architecture than x86_64"]);
}

#[test]
fn library_that_is_none() {
    let machine = Machine::new().header("usr/local/cuda/include", 13000);
    refused(&machine.file("usr/local/cuda/lib64/libcudart.so", "text"), &["libcudart.so is not a library"]);
}

#[test]
fn headers_that_bindgen_cannot_compile() {
    let machine = Machine::new().cuda(ROOT, 13000).generating();
    says(&machine.stopped(), &["the feature `bindgen`", "no crt/host_defines.h", "nvidia-cuda-crt", "Set CUDA_HOME"]);
}

#[test]
fn bindgen_without_headers() {
    says(&Machine::new().generating().stopped(), &["the feature `bindgen`", ROOT, "no such folder", "Set CUDA_HOME"]);
}

#[test]
fn target_without_cuda() {
    let machine = Machine::new().cuda(ROOT, 13000).target("x86_64-unknown-linux-musl");
    refused(&machine, &["the target x86_64-unknown-linux-musl: there is no CUDA runtime for it"]);
}

/// A variable that names no toolkit is one warning; the toolkit at a usual place is taken.
#[track_caller]
fn passed_over(machine: Machine, reason: &str) {
    let machine = machine.cuda(ROOT, 13000);
    let built = machine.built();
    assert_eq!(built.root(), machine.path(ROOT));
    says(built.warning(), &["CUDA_HOME=", reason, "Set CUDA_HOME to the root of a CUDA toolkit", "or unset it"]);
}

#[test]
fn variable_that_names_a_file() {
    passed_over(Machine::new().file("home", "").set_path("CUDA_HOME", "home"), "a file, not a folder");
}

#[test]
fn variable_that_names_nothing() {
    passed_over(Machine::new().set_path("CUDA_HOME", "home"), "no such folder");
}

#[test]
fn variable_that_names_an_empty_folder() {
    passed_over(Machine::new().folder("home").set_path("CUDA_HOME", "home"), "the folder is empty");
}

/// A link to itself cannot be read even by root.
#[test]
fn variable_that_names_what_cannot_be_read() {
    passed_over(Machine::new().link("home", "home").set_path("CUDA_HOME", "home"), "cannot be read");
}

#[test]
fn variable_with_a_relative_path() {
    passed_over(Machine::new().set("CUDA_HOME", "cuda"), "not an absolute path");
}

#[test]
fn variable_with_a_header_of_another_version_than_the_library() {
    let machine = Machine::new().cuda("home", 12040).header("home/targets/x86_64-linux/include", 13000);
    passed_over(machine.set_path("CUDA_HOME", "home"), "is of CUDA 12.4, but the header is of 13.0");
}

#[test]
fn one_folder_named_twice_is_one_warning() {
    let machine = Machine::new().set_path("CUDA_HOME", "home").set_path("CUDA_PATH", "home");
    passed_over(machine, "no such folder");
}

#[test]
fn an_empty_variable_is_none() {
    let machine = Machine::new().set("CUDA_HOME", "").cuda(ROOT, 13000);
    assert_eq!(machine.built().lines("warning"), [""; 0]);
}
