//! Gives the shared library the name that programs ask the loader for, so that one linked with the simulator runs on a
//! real runtime too, and a process that has loaded the simulator does not load another runtime beside it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcudart.so.13");
}
