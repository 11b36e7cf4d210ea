//! Measuring, and saying what came of it.

use std::time::Instant;

/// Nanoseconds of one `work` among `count`.
pub fn of_pairs(count: usize, work: impl Fn()) -> f64 {
    let start = Instant::now();
    for _ in 0..count {
        work();
    }
    since(start) / count as f64
}

/// Nanoseconds since then.
pub fn since(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64
}

/// The medians of several measurements, taken by turns.
pub fn interleave<const N: usize>(rounds: usize, measure: [&dyn Fn() -> f64; N]) -> [f64; N] {
    let mut samples = [(); N].map(|()| Vec::new());
    for _ in 0..rounds {
        for (samples, measure) in samples.iter_mut().zip(measure) {
            samples.push(measure());
        }
    }
    samples.map(median)
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub enum Aim {
    /// Our time is at most so many times theirs.
    AtMost(f64),
    /// Theirs is at least so many times ours.
    Faster(f64),
}

pub fn report(what: &str, ours: f64, theirs: f64, aim: Aim) {
    let (ratio, met, aim) = match aim {
        Aim::AtMost(limit) => (ours / theirs, ours / theirs <= limit, format!("<= {limit}")),
        Aim::Faster(limit) => (theirs / ours, theirs / ours >= limit, format!(">= {limit}")),
    };
    let mark = if met { "met" } else { "MISSED" };
    println!("  {what}: {}, {}, ratio {ratio:.2} (aim {aim}: {mark})", time(ours), time(theirs));
}

pub fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        short if short < 1e4 => format!("{short:.1} ns"),
        long if long < 1e6 => format!("{:.1} us", long / 1e3),
        longer => format!("{:.1} ms", longer / 1e6),
    }
}
