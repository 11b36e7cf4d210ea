//! Measuring, and saying what came of it.

use std::time::Instant;

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
    samples.map(|mut samples| {
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 2]
    })
}

/// Prints two times, and whether theirs is at least `aim` times ours.
pub fn report(what: &str, ours: f64, theirs: f64, aim: f64) {
    let ratio = theirs / ours;
    let mark = if ratio >= aim { "met" } else { "MISSED" };
    println!("  {what}: {}, {}, ratio {ratio:.2} (aim >= {aim}: {mark})", time(ours), time(theirs));
}

pub fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        short if short < 1e6 => format!("{:.1} us", short / 1e3),
        longer => format!("{:.1} ms", longer / 1e6),
    }
}
