//! The blocks that a cache holds, in the order in which they came back.

use std::collections::VecDeque;
use std::iter;

use super::class::SizeClass;

/// Blocks by class. The one that came back last is handed out first, and the one that has been here longest goes first.
pub(super) struct Shelf<B> {
    /// One queue for each class, oldest in front.
    queues: Box<[VecDeque<Kept<B>>]>,
    /// Those that are not in here are empty.
    occupied: Classes,
    bytes: usize,
    /// Counts the blocks that came, as a clock.
    arrivals: u64,
}

struct Kept<B> {
    arrival: u64,
    block: B,
}

impl<B> Shelf<B> {
    pub(super) fn new() -> Self {
        let queues = (0..SizeClass::COUNT).map(|_| VecDeque::new()).collect();
        Self { queues, occupied: Classes::default(), bytes: 0, arrivals: 0 }
    }

    /// Keeps a block.
    #[inline]
    pub(super) fn put(&mut self, class: SizeClass, block: B) {
        self.arrivals += 1;
        self.queues[class.index()].push_back(Kept { arrival: self.arrivals, block });
        self.occupied.insert(class);
        self.bytes += class.bytes();
    }

    /// Hands out the block of this class that was kept last.
    #[inline]
    pub(super) fn take(&mut self, class: SizeClass) -> Option<B> {
        let kept = self.queues[class.index()].pop_back()?;
        self.bytes -= class.bytes();
        Some(kept.block)
    }

    /// Hands out the block that has been kept longest, if more than `bytes` are kept.
    #[inline]
    pub(super) fn take_oldest_above(&mut self, bytes: usize) -> Option<B> {
        if self.bytes <= bytes {
            return None;
        }
        self.take_oldest()
    }

    #[inline(never)]
    fn take_oldest(&mut self) -> Option<B> {
        // Not when the last of a class is taken: that is what is done most.
        self.occupied.retain(|class| !self.queues[class.index()].is_empty());
        let arrival = |class: &SizeClass| self.queues[class.index()].front().map(|kept| kept.arrival);
        let class = self.occupied.iter().min_by_key(arrival)?;
        let kept = self.queues[class.index()].pop_front()?;
        self.bytes -= class.bytes();
        Some(kept.block)
    }

    /// Bytes of all blocks kept.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many blocks are kept.
    pub(super) fn blocks(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }
}

/// A set of classes.
#[derive(Clone, Default)]
struct Classes([u64; SizeClass::COUNT.div_ceil(64)]);

impl Classes {
    #[inline]
    fn insert(&mut self, class: SizeClass) {
        self.0[class.index() / 64] |= 1 << (class.index() % 64);
    }

    fn retain(&mut self, stays: impl Fn(SizeClass) -> bool) {
        for class in self.clone().iter().filter(|&class| !stays(class)) {
            self.0[class.index() / 64] &= !(1 << (class.index() % 64));
        }
    }

    fn iter(&self) -> impl Iterator<Item = SizeClass> + '_ {
        self.0.iter().enumerate().flat_map(|(word, &bits)| {
            // Each time without the lowest bit.
            let rest = iter::successors(Some(bits), |bits| Some(bits & bits.wrapping_sub(1)));
            rest.take_while(|&bits| bits != 0)
                .map(move |bits| SizeClass::from_index(word * 64 + bits.trailing_zeros() as usize))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Put(usize),
        Take(usize),
        TrimTo(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let size = prop_oneof![1..5000_usize, 1..(1_usize << 40)];
        let step = prop_oneof![
            3 => size.clone().prop_map(Step::Put),
            2 => size.prop_map(Step::Take),
            1 => (0..20_000_usize).prop_map(Step::TrimTo),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// The model is a plain list of blocks in the order in which they came.
        #[test]
        fn it_acts_as_a_list_would(steps in steps()) {
            let mut shelf = Shelf::new();
            let mut model: Vec<(SizeClass, usize)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Put(bytes) => {
                        shelf.put(SizeClass::holding(bytes), number);
                        model.push((SizeClass::holding(bytes), number));
                    }
                    Step::Take(bytes) => {
                        let class = SizeClass::holding(bytes);
                        let newest = model.iter().rposition(|&(of, _)| of == class);
                        let expected = newest.map(|index| model.remove(index).1);
                        prop_assert_eq!(shelf.take(class), expected);
                    }
                    Step::TrimTo(bytes) => {
                        while model.iter().map(|(class, _)| class.bytes()).sum::<usize>() > bytes {
                            prop_assert_eq!(shelf.take_oldest_above(bytes), Some(model.remove(0).1));
                        }
                        prop_assert_eq!(shelf.take_oldest_above(bytes), None);
                    }
                }
                prop_assert_eq!(shelf.blocks(), model.len());
                prop_assert_eq!(shelf.bytes(), model.iter().map(|(class, _)| class.bytes()).sum::<usize>());
            }
        }
    }
}
