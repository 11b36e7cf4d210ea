//! Free blocks on a list that runs through the blocks themselves.

use std::ptr::NonNull;

/// Free blocks of one length. The newest, whose memory is likeliest to be in the CPU's cache, comes out first.
#[derive(Debug, Default)]
pub(super) struct Stack {
    top: Option<NonNull<Link>>,
    count: usize,
}

#[derive(Debug)]
struct Link {
    below: Option<NonNull<Link>>,
}

// SAFETY: a stack owns its blocks, and nothing in them belongs to a thread.
unsafe impl Send for Stack {}

impl Stack {
    /// # Safety
    /// The block is free, unaliased until it is popped, aligned for a pointer and large enough for one.
    #[inline]
    pub(super) unsafe fn push(&mut self, block: NonNull<u8>) {
        let link = block.cast::<Link>();
        // SAFETY: the caller gives a block that holds a link.
        unsafe { link.as_ptr().write(Link { below: self.top }) };
        self.top = Some(link);
        self.count += 1;
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<NonNull<u8>> {
        let link = self.top?;
        // SAFETY: `push` wrote a link there, and the block has been the stack's alone since.
        self.top = unsafe { link.as_ref() }.below;
        self.count -= 1;
        Some(link.cast())
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count
    }
}
