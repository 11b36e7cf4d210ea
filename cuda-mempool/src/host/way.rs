//! Which way a request goes.

use std::alloc::Layout;

use super::class;

/// Large blocks, and chunks that the cap cuts short, are whole multiples of this many bytes.
pub(super) const LARGE_STEP: usize = 64 << 10;

/// The way of a request. It follows from the layout alone, and is the same for every size from the one asked for to the
/// length that was reported, so freeing goes back the same way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Way {
    /// Zero bytes: nothing is allocated.
    Nothing,
    /// Through a thread's stock: a block of this class.
    Stock(usize),
    /// Straight from a chunk, for it is long, or more strongly aligned than the stocks' blocks. The block's layout.
    Chunk(Layout),
    /// Straight from the source. The block's layout.
    Source(Layout),
}

impl Way {
    /// The way when blocks up to `longest` bytes come from chunks.
    #[inline]
    pub(super) fn of(layout: Layout, longest: usize) -> Self {
        if layout.align() <= class::ALIGN && layout.size() <= class::STOCKED_LEN && layout.size() > 0 {
            Self::Stock(class::class_of(layout.size()))
        } else {
            Self::of_rarer(layout, longest)
        }
    }

    fn of_rarer(layout: Layout, longest: usize) -> Self {
        let (size, align) = (layout.size(), layout.align().max(class::ALIGN));
        let carved = match align {
            class::ALIGN => class::len_of(class::class_of(size)),
            _ => round_up(size, class::GRANULE),
        };
        // A size that no longer is one when rounded up is more than any source has, and goes on as it is.
        let block = |rounded| Layout::from_size_align(rounded, align).unwrap_or(layout);
        if size == 0 {
            Self::Nothing
        } else if carved <= longest && align <= longest {
            Self::Chunk(block(carved))
        } else {
            Self::Source(block(round_up(size, LARGE_STEP)))
        }
    }

    /// The layout of the block that this way leads to.
    pub(super) fn block(self) -> Layout {
        match self {
            Self::Nothing => Layout::new::<()>(),
            // SAFETY: the lengths are those of real blocks, and the alignment is a power of two.
            Self::Stock(class) => unsafe { Layout::from_size_align_unchecked(class::len_of(class), class::ALIGN) },
            Self::Chunk(layout) | Self::Source(layout) => layout,
        }
    }

    /// Whether the block is part of a chunk.
    pub(super) fn is_carved(self) -> bool {
        matches!(self, Self::Stock(_) | Self::Chunk(_))
    }
}

/// The next multiple of `step`, a power of two. No layout's size overflows.
pub(super) const fn round_up(size: usize, step: usize) -> usize {
    (size + step - 1) & !(step - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fitting_size_goes_the_same_way() {
        let longest = 4 << 20;
        for align in [1, 8, 16, 32, 256, 4096, 1 << 20] {
            let mut size = 2;
            while size < 1 << 34 {
                for size in [size - 1, size, size + 1, size + size / 7] {
                    let layout = Layout::from_size_align(size, align).unwrap();
                    let way = Way::of(layout, longest);
                    let block = way.block();
                    assert!(block.size() >= size && block.align() >= align.min(class::ALIGN), "{layout:?}: {way:?}");
                    for fits in [size, (size + block.size()) / 2, block.size()] {
                        let layout = Layout::from_size_align(fits, align).unwrap();
                        assert_eq!(Way::of(layout, longest), way, "{size} in {layout:?}");
                    }
                }
                size *= 2;
            }
        }
    }

    #[test]
    fn absurd_sizes_go_to_the_source() {
        for align in [1, 16, 1 << 20] {
            let size = isize::MAX as usize - (align - 1);
            let layout = Layout::from_size_align(size, align).unwrap();
            assert!(matches!(Way::of(layout, 4 << 20), Way::Source(block) if block.size() >= size));
        }
    }
}
