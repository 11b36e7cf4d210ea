//! A pool as the source of chunks and large blocks.

use std::ptr::NonNull;
use std::thread;

use super::source::Source;
use crate::buffer::free;
use crate::stream::RelaxedCapture;
use crate::{teardown, DeviceBuffer, Error, ErrorKind, MemPool, Result, Stream};

/// What a pool gets from the system is a multiple of this many bytes (as measured).
const STEP: usize = 32 << 20;

/// More have not been measured to get memory faster.
const MAX_THREADS: usize = 16;

/// A pool of host memory, with the stream that its memory is allocated and freed on.
pub(super) struct PoolSource {
    pool: MemPool,
    stream: Stream,
}

impl PoolSource {
    pub(super) fn new(pool: MemPool, stream: Stream) -> Self {
        Self { pool, stream }
    }

    pub(super) fn pool(&self) -> &MemPool {
        &self.pool
    }

    /// Has the pool get `bytes` from the system, on several threads, and keep them.
    pub(super) fn prime(&self, bytes: usize) -> Result<()> {
        let _relaxed = relaxed("cudaMallocFromPoolAsync")?;
        // What was freed must be done with before streams other than its own can have it.
        self.stream.synchronize()?;
        let steps = bytes.div_ceil(STEP);
        let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS).min(steps);
        let share = |index: usize| (steps / threads + usize::from(index < steps % threads)) * STEP;
        let got = thread::scope(|scope| {
            let spawn = |index| {
                let get = move || self.get(share(index));
                thread::Builder::new().spawn_scoped(scope, get).map_err(|error| no_thread(&error))
            };
            let running: Vec<_> = (0..threads).map(spawn).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Result<DeviceBuffer<u8>>>| match thread.join() {
                Ok(got) => got,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            running.into_iter().map(|thread| thread.and_then(join)).collect::<Vec<_>>()
        });
        // Freed only now, so that no thread got what another had before.
        let mut streams = Vec::new();
        let mut outcome = Ok(());
        for share in got {
            match share {
                Ok(buffer) => streams.push(buffer.stream().clone()),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        streams.iter().map(Stream::synchronize).fold(outcome, Result::and)
    }

    fn get(&self, bytes: usize) -> Result<DeviceBuffer<u8>> {
        let _relaxed = relaxed("cudaMallocFromPoolAsync")?;
        let stream = Stream::new(self.stream.device())?;
        let buffer = self.pool.alloc(&stream, bytes)?;
        stream.synchronize()?;
        Ok(buffer)
    }
}

impl Drop for PoolSource {
    /// A pool ends when its memory is back. Here that is soon: nothing but allocations and frees is on the stream.
    fn drop(&mut self) {
        let _relaxed = RelaxedCapture::enter();
        teardown::release("cudaStreamSynchronize", || self.stream.synchronize());
    }
}

/// A collection may grow or be dropped while another thread captures, which neither should notice.
pub(super) fn relaxed(function: &'static str) -> Result<Option<RelaxedCapture>> {
    teardown::reachable(function)?;
    Ok(RelaxedCapture::enter())
}

fn no_thread(error: &std::io::Error) -> Error {
    Error::refused(ErrorKind::Other, "cudaMallocFromPoolAsync", format!("no thread to get memory on: {error}"))
}

// SAFETY: host memory of a pool is valid for the CPU once the stream has got to its allocation, and until it is freed.
unsafe impl Source for PoolSource {
    /// What the runtime promises.
    const ALIGN: usize = 256;

    fn take(&self, len: usize) -> Result<NonNull<u8>> {
        let _relaxed = relaxed("cudaMallocFromPoolAsync")?;
        let buffer = self.pool.alloc::<u8>(&self.stream, len)?;
        if !self.stream.query()? {
            self.stream.synchronize()?;
        }
        let start = buffer.into_raw().pointer;
        // SAFETY: a buffer's pointer is not null.
        Ok(unsafe { NonNull::new_unchecked(start) })
    }

    unsafe fn give(&self, block: NonNull<[u8]>) -> bool {
        let _relaxed = relaxed("cudaFreeAsync");
        // SAFETY: the memory came from `into_raw` above, with a length that the runtime aligned, and is not used any
        // more.
        let freed = teardown::try_release("cudaFreeAsync", || unsafe { free(block.cast(), &self.stream) });
        freed.inspect_err(teardown::report).is_ok()
    }

    fn trim(&self) -> Result<()> {
        let _relaxed = relaxed("cudaMemPoolTrimTo")?;
        self.pool.sync_and_trim(&self.stream, 0)
    }
}
