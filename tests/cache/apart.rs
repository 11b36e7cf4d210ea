//! Tests that leave nothing of their thread behind.

use crate::sim::{self, Sim};

/// Runs a test alone with the simulator, on a thread of its own, or notes that it is skipped. When the next test counts
/// what is live, the events are gone with which this one's thread ordered streams.
pub fn apart(devices: usize, test: impl FnOnce(&Sim) + Send) {
    if let Some(alone) = sim::alone(devices) {
        let sim: &Sim = &alone;
        elsewhere(|| test(sim));
    }
}

/// Does something on a thread of its own, of which nothing is left then.
pub fn elsewhere<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    // To join waits for a thread's own data to be gone; the end of the scope does not.
    let ended = std::thread::scope(|threads| threads.spawn(work).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
