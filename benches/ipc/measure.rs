//! Times, and the numbers made of them.

use std::error::Error;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::results::{self, Cell, Question, Report};
use crate::statistics::{quantile, quartiles};

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// How often a new buffer is handed over, and how often the same again.
pub(crate) const FIRST: usize = 200;
pub(crate) const REPEATED: usize = 5000;
pub(crate) const MEGABYTE: usize = 1 << 20;

// What is asked.
pub(crate) const FIRST_HANDOVER: &str = "first hand-over";
pub(crate) const REPEATED_HANDOVER: &str = "repeated hand-over";
pub(crate) const THERE_AND_BACK: &str = "there and back";

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

/// What was measured so far.
#[derive(Default)]
pub(crate) struct Answers(Vec<Cell>);

impl Answers {
    /// Adds samples, in nanoseconds. The first of a question are those that the others are compared with.
    pub(crate) fn add(&mut self, workload: &str, bytes: usize, subject: &str, samples: &[u64]) {
        let mut sorted: Vec<f64> = samples.iter().map(|&sample| sample as f64).collect();
        sorted.sort_by(f64::total_cmp);
        let (nanoseconds, p99) = (quartiles(sorted.clone()), quantile(&sorted, 0.99));
        println!("{workload}, {subject}: median {:.1} us, p99 {:.1} us", nanoseconds.median / 1e3, p99 / 1e3);

        let question =
            Question { memory: "ipc".into(), workload: workload.into(), bytes: Some(bytes as u64), threads: 1 };
        let runs = samples.len();
        let result = results::Outcome { subject: subject.into(), runs, nanoseconds, p99: Some(p99), ratio: None };
        match self.0.iter_mut().find(|cell| cell.question == question) {
            Some(cell) => cell.results.push(result),
            None => self.0.push(Cell { question, baseline: subject.into(), results: vec![result] }),
        }
    }

    pub(crate) fn into_report(self) -> Report {
        Report { complete: true, cells: self.0, ..Report::default() }
    }
}
