//! The last error of a thread: what leaves one, and what takes it away.

use std::thread;

use crate::support::answer::{clear_last_error, name, text};
use crate::support::prelude::*;

area! {
    facts: [
        stays_until_it_is_read,
        is_the_threads_own,
        the_newest_failure_counts,
        success_does_not_clear_it,
    ],
    questions: [after_not_ready, after_name_and_text, texts],
}

const REFUSED: cudaError_t = cudaError_t::cudaErrorInvalidValue;

/// A call that is refused with [`REFUSED`].
fn be_refused() {
    clear_last_error();
    assert_eq!(cu!(cudaMallocFromPoolAsync(null_mut(), 100, null_mut(), null_mut())), REFUSED);
}

fn stays_until_it_is_read() -> Outcome {
    be_refused();
    assert_eq!(cu!(cudaPeekAtLastError()), REFUSED);
    assert_eq!(cu!(cudaPeekAtLastError()), REFUSED);
    assert_eq!(cu!(cudaGetLastError()), REFUSED);
    assert_eq!(cu!(cudaPeekAtLastError()), cudaError_t::cudaSuccess);
    assert_eq!(cu!(cudaGetLastError()), cudaError_t::cudaSuccess);
    Ok(())
}

fn is_the_threads_own() -> Outcome {
    be_refused();
    let there = thread::spawn(|| cu!(cudaGetLastError())).join().expect("no panic");
    assert_eq!(there, cudaError_t::cudaSuccess);
    assert_eq!(cu!(cudaGetLastError()), REFUSED);
    Ok(())
}

fn the_newest_failure_counts() -> Outcome {
    be_refused();
    let stream = Stream::new();
    be_refused();
    let mut pointer = null_mut();
    let newest = cu!(cudaMallocAsync(&mut pointer, usize::MAX, stream.raw()));
    assert_eq!(newest, cudaError_t::cudaErrorMemoryAllocation);
    assert_eq!(cu!(cudaGetLastError()), newest);
    Ok(())
}

fn success_does_not_clear_it() -> Outcome {
    be_refused();
    let mut device = 0;
    assert_eq!(cu!(cudaGetDevice(&mut device)), cudaError_t::cudaSuccess);
    assert_eq!(cu!(cudaFreeAsync(null_mut(), null_mut())), cudaError_t::cudaSuccess);
    assert_eq!(cu!(cudaGetLastError()), REFUSED);
    Ok(())
}

fn after_not_ready() -> Outcome {
    let stream = Stream::new();
    let _gate = Gate::close(&stream);
    clear_last_error();
    say!("cudaStreamQuery: {}", name(cu!(cudaStreamQuery(stream.raw()))));
    say!("last error: {}", name(cu!(cudaGetLastError())));
    be_refused();
    cu!(cudaStreamQuery(stream.raw()));
    say!("last error of a refusal and then not-ready: {}", name(cu!(cudaGetLastError())));
    Ok(())
}

fn after_name_and_text() -> Outcome {
    be_refused();
    let _ = name(REFUSED);
    say!("last error after cudaGetErrorName: {}", name(cu!(cudaGetLastError())));
    Ok(())
}

fn texts() -> Outcome {
    for code in [0, 1, 2, 3, 4, 35, 100, 101, 201, 205, 208, 302, 303, 400, 600, 700, 709, 719, 800, 801, 900, 901, 999]
    {
        say!("{}: {}", name(cudaError_t(code)), text(cudaError_t(code)));
    }
    say!("{}: {}", name(cudaError_t(12345)), text(cudaError_t(12345)));
    Ok(())
}
