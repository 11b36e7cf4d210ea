//! Collections live in pinned memory, move between threads, and give it back.

use std::thread;

use allocator_api2::boxed::Box as PinnedAnyBox;
use allocator_api2::vec::Vec as PinnedVec;
use cuda_mempool::host::NumaAllocator;
use cuda_mempool::{MemPool, Stream};
use hashbrown::{DefaultHashBuilder, HashMap};

use crate::with_each_kind;

const fn assert_send_and_sync<T: Send + Sync>() {}
const _: () = assert_send_and_sync::<PinnedVec<u32, NumaAllocator>>();

pub fn a_vector_grows_and_shrinks() {
    with_each_kind(|_, pinned| {
        let mut words = PinnedVec::new_in(pinned.clone());
        words.extend(0..3_000_000_u32);
        assert!(pinned.contains(words.as_slice()));
        words.truncate(1000);
        words.shrink_to_fit();
        assert!(words.iter().copied().eq(0..1000));
        assert!(pinned.contains(words.as_slice()));
        assert!(pinned.stats().live_bytes < 8192);
        drop(words);
        assert_eq!(pinned.stats().live_blocks, 0);
        Ok(())
    });
}

pub fn the_memory_outlives_the_handle_it_came_from() {
    with_each_kind(|_, pinned| {
        let mut words = PinnedVec::with_capacity_in(10, pinned.clone());
        let moved = pinned;
        drop(moved);
        words.extend([1_u8, 2, 3]);
        let boxed = PinnedAnyBox::new_in([4_u64; 100], words.allocator().clone());
        drop(words);
        assert_eq!(*boxed, [4; 100]);
        Ok(())
    });
}

pub fn vectors_made_on_one_thread_end_on_another() {
    with_each_kind(|_, pinned| {
        let made: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4_u8)
                .map(|value| {
                    let pinned = pinned.clone();
                    scope.spawn(move || {
                        let mut vectors = Vec::new();
                        for size in (1..50).map(|step| step * 700) {
                            let mut bytes = PinnedVec::new_in(pinned.clone());
                            bytes.resize(size, value);
                            vectors.push(bytes);
                        }
                        vectors
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        thread::scope(|scope| {
            for (value, vectors) in made.into_iter().enumerate() {
                scope.spawn(move || {
                    for bytes in vectors {
                        assert!(bytes.iter().all(|&byte| usize::from(byte) == value));
                    }
                });
            }
        });
        assert_eq!(pinned.stats().live_blocks, 0);
        Ok(())
    });
}

pub fn a_hash_map_keeps_its_entries() {
    with_each_kind(|_, pinned| {
        let mut squares = HashMap::with_hasher_in(DefaultHashBuilder::default(), pinned.clone());
        for number in 0..100_000_u64 {
            squares.insert(number, number * number);
        }
        squares.retain(|number, _| number % 3 == 0);
        squares.shrink_to_fit();
        for number in 0..100_000 {
            let square = squares.get(&number);
            assert_eq!(square.copied(), (number % 3 == 0).then_some(number * number));
            assert!(square.map_or(true, |square| pinned.contains(square)));
        }
        drop(squares);
        assert_eq!(pinned.stats().live_blocks, 0);
        Ok(())
    });
}

pub fn a_scope_copies_there_and_back() {
    with_each_kind(|device, pinned| {
        let stream = Stream::new(device)?;
        let mut input = PinnedVec::new_in(pinned.clone());
        input.extend(0..1_000_000_u32);
        let mut output = PinnedVec::new_in(pinned);
        output.resize(input.len(), 0);
        let mut buffer = MemPool::default_for(device)?.alloc(&stream, input.len())?;
        stream.scope(|s| {
            s.copy_from_host(&mut buffer, &input)?;
            s.copy_to_host(&buffer, &mut output)
        })?;
        assert_eq!(input, output);
        Ok(())
    });
}

#[cfg(feature = "nightly")]
pub mod standard {
    use std::collections::{BTreeMap, VecDeque};

    use super::*;

    const _: () = assert_send_and_sync::<Vec<u32, NumaAllocator>>();

    pub fn vec_box_and_deque() {
        with_each_kind(|_, pinned| {
            let mut words = Vec::new_in(pinned.clone());
            words.extend(0..100_000_u32);
            let boxed = words.clone().into_boxed_slice();
            let mut deque = VecDeque::new_in(pinned.clone());
            for &word in &words {
                deque.push_back(word);
                deque.push_front(word);
            }
            assert!(pinned.contains(words.as_slice()) && pinned.contains(&*boxed));
            assert!(pinned.contains(deque.front().unwrap()));
            assert!(boxed.iter().eq(&words));
            assert!(deque.iter().skip(words.len()).eq(&words));
            drop((words, boxed, deque));
            assert_eq!(pinned.stats().live_blocks, 0);
            Ok(())
        });
    }

    pub fn ordered_map() {
        with_each_kind(|_, pinned| {
            let mut names = BTreeMap::new_in(pinned.clone());
            for number in (0..10_000_u32).rev() {
                names.insert(number, Vec::from_iter([number]));
            }
            for number in (0..10_000).step_by(2) {
                names.remove(&number);
            }
            assert_eq!(names.len(), 5000);
            assert!(names.iter().all(|(number, name)| name == &[*number] && pinned.contains(number)));
            drop(names);
            assert_eq!(pinned.stats().live_blocks, 0);
            Ok(())
        });
    }
}
