//! C code that has a static runtime of its own, beside Rust that loads a shared one.

use crate::c_code::simulated;
use crate::probe::{says, Build};
use crate::real::toolkit;

fn build() -> Build {
    Build::new("dlopen").of("two-runtimes")
}

/// Where there is a GPU, each side uses and frees what the other made. Without, the two come together and refuse.
#[test]
fn runtimes_of_two_versions() {
    for (theirs, ours, file) in [("12.9", "13.0", "libcudart.so.13"), ("13.0", "12.9", "libcudart.so.12")] {
        let (Some(theirs), Some(ours)) = (toolkit(theirs), toolkit(ours)) else { return };
        let build = build().variable("THEIR_CUDA_HOME", theirs);
        let said = build.variable("CUDA_MEMPOOL_CUDART", ours.join("lib").join(file)).tested(&[]);
        says(&said, &["test there_are_two_runtimes ... ok", "test handles::rust_uses_what_c_owns ... ok"]);
    }
}

/// Two simulated runtimes are as two drivers: what is made by one is nothing to the other. Errors they have as CUDA does.
#[test]
fn errors_of_two_runtimes() {
    let Some(sim) = simulated() else { return };
    let build = build().variable("THEIR_CUDA_HOME", &sim).variable("CUDA_MEMPOOL_REQUIRE_DEVICE", "1");
    let names = ["there_are_two_runtimes", "each_has_its_own_last_error"];
    let said = build.variable("CUDA_MEMPOOL_CUDART", sim.join("lib/libcudart.so.13")).tested(&names);
    says(&said, &names.map(|name| format!("test {name} ... ok")).each_ref().map(String::as_str));
}
