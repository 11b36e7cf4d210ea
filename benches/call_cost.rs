//! What a call through the crate costs beside a call through a function pointer, which is what a linked call is.
//!
//! `cudaGetLastError` does next to nothing, so nearly all of its time is the way to it. Prints the medians of
//! interleaved batches and their difference, in nanoseconds a call.

use std::hint::black_box;
use std::time::Instant;

use cuda_mempool_sys::{cudaError_t, cudaGetLastError, runtime, LinkKind, Runtime};

const BATCHES: usize = 201;
const CALLS: u32 = 20_000;

fn main() {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let pointer = pointer(runtime);

    let (mut through_crate, mut through_pointer) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        // SAFETY: the function has no requirement.
        through_crate.push(nanoseconds(|| unsafe { cudaGetLastError() }));
        let pointer = black_box(pointer);
        // SAFETY: the function has no requirement.
        through_pointer.push(nanoseconds(|| unsafe { pointer() }));
    }
    let (through_crate, through_pointer) = (median(through_crate), median(through_pointer));
    println!("cudaGetLastError, link kind {}, runtime {}", runtime.link(), runtime.version());
    println!("through the crate {through_crate:.2} ns, through a pointer {through_pointer:.2} ns");
    println!("difference {:.2} ns", through_crate - through_pointer);
}

/// The runtime's own function: the symbol of a loaded library, and what the linker found otherwise.
fn pointer(runtime: &Runtime) -> unsafe extern "C" fn() -> cudaError_t {
    if runtime.link() != LinkKind::Dlopen {
        return cudaGetLastError;
    }
    // SAFETY: the library is in use already, so nothing runs.
    let library = unsafe { libloading::Library::new(runtime.path().expect("the system tells the library's file")) };
    let library = library.expect("a library that is in use opens again");
    // SAFETY: the signature is the bound one, and the library is never closed by the crate that loaded it.
    *unsafe { library.get(b"cudaGetLastError\0") }.expect("every runtime has the function")
}

fn nanoseconds(call: impl Fn() -> cudaError_t) -> f64 {
    let start = Instant::now();
    for _ in 0..CALLS {
        black_box(call());
    }
    start.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
