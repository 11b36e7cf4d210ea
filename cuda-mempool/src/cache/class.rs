//! Size classes: what a cache rounds a request up to, so that blocks of like size can stand in for each other.

/// The step of the smallest classes, in bytes: pools hand out memory in pieces of this size.
const UNIT: usize = 512;

/// Classes between one power of two and the next. Four of them keep a block at most a quarter above the request.
const STEPS: usize = 4;

/// A size that cached blocks have: 1, 2, 3 or 4 units, then 5, 6, 7, 8, 10, 12, 14, 16, 20, … units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SizeClass(usize);

impl SizeClass {
    /// How many classes there are: enough for `isize::MAX` bytes.
    pub(super) const COUNT: usize = Self::holding(isize::MAX as usize).index() + 1;

    /// The smallest class of at least `bytes`, which must be at most `isize::MAX`.
    #[inline]
    pub(super) const fn holding(bytes: usize) -> Self {
        let below = bytes.saturating_sub(1) / UNIT;
        if below < STEPS {
            return Self(below);
        }
        let doublings = (below.ilog2() - STEPS.ilog2()) as usize;
        // Between STEPS and 2 * STEPS - 1: the leading digits of the size, rounded down.
        let leading = below >> doublings;
        Self(doublings * STEPS + leading)
    }

    /// The size of its blocks, in bytes.
    #[inline]
    pub(super) const fn bytes(self) -> usize {
        let index = self.index();
        if index < STEPS {
            return (index + 1) * UNIT;
        }
        let doublings = index / STEPS - 1;
        let leading = index % STEPS + STEPS;
        ((leading + 1) << doublings) * UNIT
    }

    /// The class with this index, which must be below [`COUNT`](Self::COUNT).
    pub(super) const fn from_index(index: usize) -> Self {
        Self(index)
    }

    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sizes of every magnitude, the ones around powers of two among them.
    fn sizes() -> impl Strategy<Value = usize> {
        prop_oneof![
            1..=isize::MAX as usize,
            1..100_000_usize,
            (0..63_u32, -2..=2_isize).prop_map(|(power, off)| (1_usize << power).saturating_add_signed(off).max(1)),
        ]
        .prop_map(|bytes| bytes.min(isize::MAX as usize))
    }

    #[test]
    fn the_smallest_classes_are_steps_of_a_unit() {
        let bytes: Vec<_> = (0..10).map(|index| SizeClass::from_index(index).bytes() / UNIT).collect();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 10, 12]);
    }

    #[test]
    fn every_class_holds_its_own_size_and_no_byte_more() {
        for index in 0..SizeClass::COUNT - 1 {
            let bytes = SizeClass::from_index(index).bytes();
            assert_eq!(SizeClass::holding(bytes).index(), index);
            assert_eq!(SizeClass::holding(bytes + 1).index(), index + 1);
        }
    }

    proptest! {
        #[test]
        fn a_block_is_large_enough_and_at_most_a_quarter_too_large(bytes in sizes()) {
            let block = SizeClass::holding(bytes).bytes();
            let rounded = bytes.div_ceil(UNIT) * UNIT;
            prop_assert!(block >= bytes);
            prop_assert!(block - rounded <= rounded / 4, "{bytes} bytes take {block}");
        }

        #[test]
        fn a_larger_request_never_gets_a_smaller_class(a in sizes(), b in sizes()) {
            prop_assert_eq!(a.cmp(&b).is_le(), SizeClass::holding(a) <= SizeClass::holding(b) && a <= b);
        }
    }
}
