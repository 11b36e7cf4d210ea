//! What of a length of memory is free.

use std::collections::BTreeMap;

/// Free stretches of so many bytes. What is given back joins what is free beside it.
pub(super) struct Stretches {
    whole: usize,
    /// The length of each stretch, by its offset. No two of them touch.
    free: BTreeMap<usize, usize>,
}

impl Stretches {
    /// All is free.
    pub(super) fn new(whole: usize) -> Self {
        Self { whole, free: [(0, whole)].into() }
    }

    /// Takes from the first stretch that is long enough. Where that begins.
    pub(super) fn take(&mut self, len: usize) -> Option<usize> {
        let (&offset, &length) = self.free.iter().find(|(_, &length)| length >= len)?;
        self.free.remove(&offset);
        if length > len {
            self.free.insert(offset + len, length - len);
        }
        Some(offset)
    }

    /// Gives back what was taken.
    pub(super) fn give(&mut self, mut offset: usize, mut len: usize) {
        if let Some((&before, &length)) = self.free.range(..offset).next_back() {
            if before + length == offset {
                (offset, len) = (before, length + len);
            }
        }
        if let Some(length) = self.free.remove(&(offset + len)) {
            len += length;
        }
        self.free.insert(offset, len);
    }

    /// How many bytes are free in all.
    pub(super) fn free(&self) -> usize {
        self.free.values().sum()
    }

    pub(super) fn is_all_free(&self) -> bool {
        self.free() == self.whole
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Miri takes a thousand times as long.
    const CASES: u32 = if cfg!(miri) { 2 } else { 256 };

    proptest! {
        #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

        /// An even number takes so many, an odd one gives back.
        #[test]
        fn nothing_is_taken_twice_and_all_joins_again(calls in prop::collection::vec(any::<u8>(), 1..200)) {
            const WHOLE: usize = 256;
            let mut stretches = Stretches::new(WHOLE);
            let mut taken = [false; WHOLE];
            let mut out = Vec::new();
            for call in calls {
                let number = usize::from(call) / 2;
                if call % 2 == 0 {
                    let len = number % 40 + 1;
                    let room = taken.split(|&taken| taken).map(<[bool]>::len).max();
                    match stretches.take(len) {
                        Some(offset) => {
                            assert!(taken[offset..offset + len].iter().all(|taken| !taken));
                            taken[offset..offset + len].fill(true);
                            out.push((offset, len));
                        }
                        None => assert!(room < Some(len), "{room:?} free in one, and {len} refused"),
                    }
                } else if !out.is_empty() {
                    let (offset, len) = out.swap_remove(number % out.len());
                    stretches.give(offset, len);
                    taken[offset..offset + len].fill(false);
                }
                assert_eq!(stretches.free(), taken.iter().filter(|taken| !**taken).count());
                assert_eq!(stretches.is_all_free(), out.is_empty());
            }
            out.into_iter().for_each(|(offset, len)| stretches.give(offset, len));
            assert_eq!(stretches.take(WHOLE), Some(0));
        }
    }
}
