//! `PinnedBox`: owning, dropping and failing half-way.

use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;

use cuda_mempool::host::{NumaAllocator, PinnedBox};
use cuda_mempool::ErrorKind;

use crate::{alone, pinned, with_each_kind};

const fn assert_send_and_sync<T: Send + Sync>() {}
const _: () = assert_send_and_sync::<PinnedBox<[u32]>>();

/// Counts how many are alive.
struct Counted(Rc<Cell<isize>>);

impl Counted {
    fn new(alive: &Rc<Cell<isize>>) -> Self {
        alive.set(alive.get() + 1);
        Self(alive.clone())
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

pub fn every_constructor_holds_what_it_is_given() {
    with_each_kind(|_, pinned| {
        assert_eq!(*PinnedBox::new(&pinned, 7_u8)?, 7);
        assert_eq!(*PinnedBox::from_slice(&pinned, &["a", "b"])?, ["a", "b"]);
        assert_eq!(*PinnedBox::from_fn(&pinned, 3, |index| index * 2)?, [0, 2, 4]);
        assert_eq!(*PinnedBox::<[u16]>::zeroed(&pinned, 5)?, [0; 5]);
        let odd = (0..10_000).filter(|number| number % 2 == 1);
        assert!(PinnedBox::from_iter(&pinned, odd.clone())?.iter().copied().eq(odd));
        assert_eq!(pinned.stats().live_blocks, 0);
        Ok(())
    });
}

pub fn no_bytes_take_no_memory() {
    with_each_kind(|_, pinned| {
        assert!(PinnedBox::<[u64]>::zeroed(&pinned, 0)?.is_empty());
        assert_eq!(PinnedBox::from_iter(&pinned, [(); 1000])?.len(), 1000);
        assert_eq!(pinned.stats().taken_bytes, 0);
        Ok(())
    });
}

pub fn elements_are_dropped_once() {
    with_each_kind(|_, pinned| {
        let alive = Rc::default();
        let boxed = PinnedBox::from_iter(&pinned, (0..100).map(|_| Counted::new(&alive)))?;
        let copied = PinnedBox::from_slice(&pinned, &boxed)?;
        assert_eq!(alive.get(), 200);
        drop(boxed);
        assert_eq!(alive.get(), 100);
        drop(copied);
        assert_eq!((alive.get(), pinned.stats().live_blocks), (0, 0));
        Ok(())
    });
}

pub fn a_panic_half_way_leaks_nothing() {
    with_each_kind(|_, pinned| {
        let alive: Rc<Cell<isize>> = Rc::default();
        let make = |index| if index == 50 { panic!("half-way") } else { Counted::new(&alive) };
        assert!(catch_unwind(AssertUnwindSafe(|| PinnedBox::from_fn(&pinned, 100, make))).is_err());
        assert_eq!((alive.get(), pinned.stats().live_blocks), (0, 0));

        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("in its drop");
            }
        }
        let boxed = PinnedBox::new(&pinned, (Bomb, 5_u64))?;
        assert!(catch_unwind(AssertUnwindSafe(|| drop(boxed))).is_err());
        assert_eq!(pinned.stats().live_blocks, 0);
        Ok(())
    });
}

pub fn a_panic_while_failing_leaks_nothing() {
    struct Bomb(bool);
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(!self.0, "in its drop");
        }
    }
    alone(|device| {
        let capped = NumaAllocator::builder().near(device).cap(1 << 20).build()?;
        let endless = (0..).map(|index| (Bomb(index == 0), [0_u8; 50_000]));
        assert!(catch_unwind(AssertUnwindSafe(|| PinnedBox::from_iter(&capped, endless.filter(|_| true)))).is_err());
        assert_eq!(capped.stats().live_blocks, 0);
        Ok(())
    });
}

pub fn parts_make_a_box_again() {
    alone(|device| {
        let (pointer, handle) = PinnedBox::from_slice(&pinned(device)?, &[1_u32, 2, 3])?.into_raw_parts();
        // SAFETY: the parts of one box, used once.
        let boxed: PinnedBox<[u32]> = unsafe { PinnedBox::from_raw_parts(pointer, handle) };
        assert_eq!(*boxed, [1, 2, 3]);
        let handle: NumaAllocator = boxed.allocator().clone();
        drop(boxed);
        assert_eq!(handle.stats().live_blocks, 0);
        Ok(())
    });
}

pub fn lengths_that_overflow_are_refused() {
    with_each_kind(|_, pinned| {
        let error = PinnedBox::<[u64]>::zeroed(&pinned, usize::MAX / 4).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SizeOverflow);
        Ok(())
    });
}
