//! Times, and the numbers made of them.

use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// How often a new buffer is handed over, and how often the same again.
pub(crate) const FIRST: usize = 200;
pub(crate) const REPEATED: usize = 5000;
pub(crate) const MEGABYTE: usize = 1 << 20;

/// Nanoseconds of a clock that is the same in all processes.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the out pointer is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sends what was measured to the other process.
pub(crate) fn give(words: &mut UnixStream, samples: &[u64]) -> Outcome {
    let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_ne_bytes()).collect();
    Ok(words.write_all(&bytes)?)
}

pub(crate) fn take(words: &mut UnixStream, count: usize) -> Outcome<Vec<u64>> {
    let mut bytes = vec![0; count * 8];
    words.read_exact(&mut bytes)?;
    Ok(bytes.chunks_exact(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("eight"))).collect())
}

/// Prints median and 99th percentile, and gives the median in microseconds.
pub(crate) fn report(what: &str, mut samples: Vec<u64>) -> f64 {
    samples.sort_unstable();
    let at = |percent: usize| samples[samples.len() * percent / 100] as f64 / 1e3;
    println!("  {what:<52} median {:>8.1} us   p99 {:>8.1} us", at(50), at(99));
    at(50)
}
