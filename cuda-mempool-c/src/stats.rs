//! Statistics for C.

use cuda_mempool::host::Stats;

/// What an allocator holds, in bytes unless it says otherwise.
///
/// While other threads go on, the numbers are each right for some moment, not all for the same one.
#[allow(non_camel_case_types)]
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct cuda_mempool_statistics {
    /// Blocks that callers hold: a count.
    pub live_blocks: u64,
    /// What they take, each with its head and what was added to round it up.
    pub live_bytes: u64,
    /// Pinned memory taken from the system for them and for what is kept free.
    pub taken_bytes: u64,
    /// The most that the former has come to.
    pub peak_taken_bytes: u64,
}

impl From<Stats> for cuda_mempool_statistics {
    fn from(stats: Stats) -> Self {
        Self {
            live_blocks: stats.live_blocks as u64,
            live_bytes: stats.live_bytes as u64,
            taken_bytes: stats.taken_bytes as u64,
            peak_taken_bytes: stats.peak_taken_bytes as u64,
        }
    }
}
