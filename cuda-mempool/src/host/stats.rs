//! What an allocator has and what it has handed out.

/// What an allocator holds, in numbers.
///
/// Taken while other threads go on, the numbers are each right for some moment of the call, not all for the same one.
/// Blocks are counted by the lengths that were reported: up to an eighth (and 47 bytes) above what was asked for where they
/// come from chunks, up to 64 KiB where they do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Blocks that callers hold.
    pub live_blocks: usize,
    /// Bytes of the blocks that callers hold.
    pub live_bytes: usize,
    /// Bytes of free blocks that the threads' stocks hold, ready to be handed out again.
    pub stocked_bytes: usize,
    /// The most that the live and the stocked bytes of the chunks together have come to.
    pub peak_carved_bytes: usize,
    /// Chunks, out of which small blocks are carved.
    pub chunks: usize,
    /// Bytes of all chunks.
    pub chunk_bytes: usize,
    /// Blocks too large for a chunk, which came straight from the pool.
    pub large_blocks: usize,
    /// Bytes taken from the pool for large blocks.
    pub large_bytes: usize,
    /// Bytes taken from the pool, for chunks and large blocks: what the cap bounds. What could not be given back, of which
    /// the [hook](crate::on_drop_error) was told, stays among them.
    pub taken_bytes: usize,
    /// The most that the taken bytes have come to.
    pub peak_taken_bytes: usize,
}

impl Stats {
    /// Bytes that were taken from the pool and that nobody uses at present.
    #[must_use]
    pub fn cached_bytes(&self) -> usize {
        self.taken_bytes.saturating_sub(self.live_bytes)
    }
}
