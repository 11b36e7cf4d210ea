//! Size classes: what lengths the small blocks have.

/// The sub-allocator's granule, in bytes, of which it keeps half a granule before each block.
pub(super) const GRANULE: usize = rlsf::GRANULARITY;
pub(super) const HEADER: usize = GRANULE / 2;

/// The strongest alignment that every block in a chunk has.
pub(super) const ALIGN: usize = HEADER;

/// Classes that the threads' own stocks hold.
pub(super) const STOCKED: usize = class_of(STOCKED_LEN) + 1;

/// The longest block of such a class, in bytes.
pub(super) const STOCKED_LEN: usize = (256 << 10) + HEADER;

/// Steps to each doubling, so that at most an eighth is lost to rounding up.
const STEPS: usize = 8;
const STEPS_LOG2: u32 = STEPS.trailing_zeros();

/// The smallest class whose blocks hold `size` bytes.
///
/// With the header every length is a whole number of granules, so that nothing is lost beside a class's own rounding.
/// Powers of two are 16 bytes below a class, for they are what most callers ask for.
#[inline]
pub(super) const fn class_of(size: usize) -> usize {
    let granules = size.saturating_sub(HEADER).div_ceil(GRANULE);
    if granules <= STEPS {
        return granules;
    }
    let below = granules - 1;
    let doubling = below.ilog2() - STEPS_LOG2;
    STEPS * doubling as usize + ((below >> doubling) & (STEPS - 1)) + STEPS + 1
}

/// The length of the blocks of a class, in bytes.
#[inline]
pub(super) const fn len_of(class: usize) -> usize {
    if class <= STEPS {
        return class * GRANULE + HEADER;
    }
    let (doubling, step) = ((class - STEPS - 1) / STEPS, (class - STEPS - 1) % STEPS);
    ((STEPS + step + 1) << doubling) * GRANULE + HEADER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_holds_its_sizes_and_loses_little() {
        let mut size = 1;
        while size < 1 << 40 {
            for size in [size - 1, size, size + 1, size + size / 3] {
                let class = class_of(size);
                let len = len_of(class);
                assert!(len >= size, "{size} in a block of {len}");
                assert!(len <= size + size / STEPS + GRANULE + HEADER, "{size} in a block of {len}");
                assert_eq!((len + HEADER) % GRANULE, 0);
                assert_eq!(class_of(len), class, "a block's whole length is in its own class");
                assert!(class == 0 || len_of(class - 1) < size, "{size} would do with a smaller class");
            }
            size *= 2;
        }
    }

    #[test]
    fn classes_grow() {
        for class in 1..400 {
            assert!(len_of(class - 1) < len_of(class));
        }
        assert_eq!(len_of(STOCKED - 1), STOCKED_LEN);
    }
}
