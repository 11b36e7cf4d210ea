//! Tests that leave nothing of their thread behind, on any machine or on the simulated runtime alone.

use cuda_mempool::{MemPool, Stream};

use crate::launcher::Launcher;
use crate::sim::{self, must, Sim};
use crate::suite::{self, Outcome};

/// What a test runs on. What only the simulated runtime can tell is not asked elsewhere.
#[derive(Clone, Copy)]
pub struct Machine<'s>(Option<&'s Sim>);

impl<'s> Machine<'s> {
    pub fn sim(self) -> Option<&'s Sim> {
        self.0
    }

    /// Counts calls from now on.
    pub fn count_calls(self) {
        self.0.into_iter().for_each(Sim::reset);
    }

    /// So often was a function called since then.
    pub fn assert_calls(self, function: &str, times: u64) {
        if let Some(sim) = self.0 {
            assert_eq!(sim.calls(function), times, "{function}");
        }
    }

    /// So many calls were made since then.
    pub fn assert_all_calls(self, times: u64) {
        if let Some(sim) = self.0 {
            assert_eq!(sim.all_calls(), times);
        }
    }
}

/// Runs a test on GPUs or on the simulated runtime, on a thread of its own: of that nothing is left when is asked in the
/// end what is. Nothing may be, no drop may have failed, and nothing may have raced.
pub fn anywhere(devices: usize, test: impl FnOnce(Machine<'_>) + Send) -> Outcome {
    let watch = suite::watch(devices)?;
    let machine = Machine(watch.sim());
    elsewhere(|| test(machine));
    // Frees that no stream was waited for are done then.
    must(sim::device(0).synchronize());
    watch.assert_gone();
    Ok(())
}

/// As [`anywhere`], on one device, with kernels for it.
pub fn with_kernels(test: impl FnOnce(Machine<'_>, &Launcher<'_>) + Send) -> Outcome {
    let watch = suite::watch(1)?;
    let machine = Machine(watch.sim());
    let launcher = Launcher::new(machine.sim(), &[sim::device(0)])?;
    elsewhere(|| launch_once(&launcher));
    elsewhere(|| test(machine, &launcher));
    must(sim::device(0).synchronize());
    watch.assert_gone();
    Ok(())
}

/// The first launch of a kernel may wait for all that the device does, which a test may hold up.
fn launch_once(launcher: &Launcher<'_>) {
    let stream = must(Stream::new(sim::device(0)));
    let mut word = must(must(MemPool::default_for(stream.device())).alloc::<u32>(&stream, 1));
    // SAFETY: the buffer has one element, on that stream.
    unsafe { launcher.fill(&stream, word.as_mut_ptr(), 1, 0) };
    must(stream.synchronize());
}

/// Runs a test on the simulated runtime, on a thread of its own.
pub fn simulated(devices: usize, test: impl FnOnce(&Sim) + Send) -> Outcome {
    let alone = suite::simulated(devices)?;
    let sim: &Sim = &alone;
    elsewhere(|| test(sim));
    Ok(())
}

/// Does something on a thread of its own, of which nothing is left then.
pub fn elsewhere<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    // To join waits for a thread's own data to be gone; the end of the scope does not.
    let ended = std::thread::scope(|threads| threads.spawn(work).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
