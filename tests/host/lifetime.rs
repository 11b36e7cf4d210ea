//! The end of allocators, forked children, and captures that go on elsewhere.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Mutex};
use std::thread;

use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec as PinnedVec;
use cuda_mempool::host::{NumaAllocator, PinnedBox, Stats};
use cuda_mempool::{sys, Result, Stream};

use crate::{alone, on_simulator, pinned, registered, skip, with_each_kind};

pub fn clones_are_equal_and_others_are_not() {
    alone(|device| {
        let (first, second) = (pinned(device)?, pinned(device)?);
        assert_eq!(first, first.clone());
        assert_ne!(first, second);
        Ok(())
    });
}

pub fn the_last_handle_gives_everything_back() {
    on_simulator(|sim, device| {
        let before = sim.live();
        let pinned = pinned(device)?;
        let small = PinnedBox::new(&pinned, [1_u8; 100])?;
        let large = PinnedBox::<[u8]>::zeroed(&pinned, 50 << 20)?;
        drop(pinned);
        drop(small);
        assert_eq!(sim.live().pool_allocations, before.pool_allocations + 2, "the large box holds its allocator");
        drop(large);
        assert_eq!(sim.live(), before, "{}", sim.leak_report());
        Ok(())
    });
}

pub fn registered_memory_is_given_back_too() {
    on_simulator(|sim, device| {
        let before = sim.live();
        let pinned = registered(device)?;
        let boxes = [100, 50 << 20, 1 << 20].map(|size| PinnedBox::<[u8]>::zeroed(&pinned, size));
        assert_eq!(sim.live().registered_ranges, before.registered_ranges + 2, "a chunk, and what is large");
        drop(pinned);
        assert!(boxes.iter().all(Result::is_ok));
        drop(boxes);
        assert_eq!(sim.live(), before, "{}", sim.leak_report());
        Ok(())
    });
}

pub fn a_leaked_collection_keeps_its_memory() {
    with_each_kind(|_, pinned| {
        let mut words = PinnedVec::new_in(pinned);
        words.extend(0..1000_u32);
        let leaked: &'static mut [u32] = words.leak();
        leaked[0] = 1;
        assert_eq!(leaked.iter().sum::<u32>(), 499_501);
        Ok(())
    });
}

pub fn blocks_lost_by_hand_go_with_the_allocator() {
    on_simulator(|sim, device| {
        let before = sim.live();
        let pinned = pinned(device)?;
        let lost = [100, 1 << 20, 50 << 20].map(|size| pinned.allocate(std::alloc::Layout::array::<u8>(size).unwrap()));
        assert!(lost.iter().all(Result::is_ok));
        drop(pinned);
        assert_eq!(sim.live(), before, "{}", sim.leak_report());
        Ok(())
    });
}

/// Keeps what is logged as a warning.
struct Warnings(Mutex<Vec<String>>);

impl log::Log for Warnings {
    fn enabled(&self, metadata: &log::Metadata) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record) {
        self.0.lock().unwrap().push(record.args().to_string());
        panic!("no drop notices");
    }

    fn flush(&self) {}
}

pub fn blocks_lost_by_hand_are_reported_in_debug_builds() {
    static WARNINGS: Warnings = Warnings(Mutex::new(Vec::new()));
    alone(|device| {
        log::set_logger(&WARNINGS).expect("no other test logs");
        log::set_max_level(log::LevelFilter::Warn);
        drop(PinnedBox::new(&pinned(device)?, 1));
        assert!(WARNINGS.0.lock().unwrap().is_empty());
        let lossy = pinned(device)?;
        assert!(lossy.allocate(std::alloc::Layout::new::<[u8; 100]>()).is_ok());
        drop(lossy);
        let warnings = WARNINGS.0.lock().unwrap();
        assert_eq!(warnings.len(), usize::from(cfg!(debug_assertions)), "{warnings:?}");
        assert!(warnings.iter().all(|warning| warning.starts_with("1 blocks")), "{warnings:?}");
        Ok(())
    });
}

pub fn a_forked_child_touches_nothing() {
    with_each_kind(|_, pinned| {
        let small = PinnedBox::<[u8]>::zeroed(&pinned, 100)?;
        let large = PinnedBox::<[u8]>::zeroed(&pinned, 50 << 20)?;
        let with_drops = PinnedBox::from_fn(&pinned, 3, |index| index.to_string())?;
        // SAFETY: the child calls nothing that a lock of another thread could stop, and leaves by `_exit`.
        match unsafe { libc::fork() } {
            0 => {
                drop((small, large, with_drops));
                let nothing = pinned.stats() == Stats::default();
                let refused = PinnedBox::new(&pinned, 1).is_err() && pinned.trim().is_err() && pinned.prime(1).is_err();
                drop(pinned);
                // SAFETY: ends the child without running what belongs to the parent.
                unsafe { libc::_exit(i32::from(!(nothing && refused))) }
            }
            child => {
                assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
                let mut status = -1;
                // SAFETY: the child is this process's.
                unsafe { libc::waitpid(child, &mut status, 0) };
                assert_eq!(status, 0, "the child's status");
            }
        }
        assert_eq!(pinned.stats().live_blocks, 3);
        assert_eq!(*with_drops, ["0", "1", "2"]);
        drop((small, large, with_drops));
        assert_eq!(pinned.stats().live_blocks, 0);
        Ok(())
    });
}

pub fn a_child_forked_while_others_allocate_does_not_hang() {
    with_each_kind(|_, pinned| {
        let done = AtomicBool::new(false);
        let allocate = || {
            while !done.load(Ordering::Relaxed) {
                drop(PinnedBox::<[u8]>::zeroed(&pinned, 100));
                drop(PinnedBox::<[u8]>::zeroed(&pinned, 5 << 20));
                assert!(pinned.allocate(std::alloc::Layout::new::<[u8; 1 << 50]>()).is_err());
            }
        };
        let inherited = PinnedBox::new(&pinned, 1)?;
        std::thread::scope(|scope| {
            scope.spawn(allocate);
            let mut statuses = (0..50).map(|_| {
                // SAFETY: the child asks the allocator alone, and leaves, by a signal if it hangs.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: as above.
                    unsafe { libc::alarm(5) };
                    let nothing = pinned.stats() == Stats::default() && !pinned.contains(&*inherited);
                    let refused = pinned.allocate(std::alloc::Layout::new::<u8>()).is_err();
                    let untold = pinned.take_last_error().is_none();
                    // SAFETY: ends the child without running what belongs to the parent.
                    unsafe { libc::_exit(i32::from(!(nothing && refused && untold))) };
                }
                let mut status = -1;
                // SAFETY: the child is this process's, and the out pointer is valid.
                unsafe { libc::waitpid(child, &mut status, 0) };
                status
            });
            let bad = statuses.find(|&status| status != 0);
            done.store(true, Ordering::Relaxed);
            assert_eq!(bad, None, "a child's status");
        });
        Ok(())
    });
}

pub fn a_capture_elsewhere_goes_on_beside_small_allocations() {
    a_capture_elsewhere_goes_on_beside(|pinned| {
        drop(PinnedBox::<[u8]>::zeroed(&pinned, 100)?);
        Ok(())
    });
}

pub fn a_capture_elsewhere_goes_on_beside_large_allocations() {
    a_capture_elsewhere_goes_on_beside(|pinned| {
        drop(PinnedBox::<[u8]>::zeroed(&pinned, 50 << 20)?);
        Ok(())
    });
}

pub fn a_capture_elsewhere_goes_on_beside_priming() {
    a_capture_elsewhere_goes_on_beside(|pinned| pinned.prime(64 << 20));
}

pub fn a_capture_elsewhere_goes_on_beside_trimming() {
    a_capture_elsewhere_goes_on_beside(|pinned| pinned.trim().map(drop));
}

pub fn a_capture_elsewhere_goes_on_beside_the_last_drop() {
    a_capture_elsewhere_goes_on_beside(|pinned| {
        drop(pinned);
        Ok(())
    });
}

/// What an allocator does on one thread must not spoil a capture on another. One in global mode is spoilt on an H200
/// (driver 580.159), whatever the mode of the thread that allocates.
fn a_capture_elsewhere_goes_on_beside(work: impl Fn(NumaAllocator) -> Result<()> + Send + Sync) {
    with_each_kind(|device, pinned| {
        let stream = Stream::new(device)?;
        let mode = sys::cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal;
        // SAFETY: the stream is alive.
        let begun = unsafe { sys::cudaStreamBeginCapture(stream.as_raw(), mode) };
        if begun == sys::cudaError_t::cudaErrorNotSupported {
            skip("this runtime does not capture");
            return Ok(());
        }
        assert_eq!(begun, sys::cudaError_t::cudaSuccess);
        let outcome = thread::scope(|scope| scope.spawn(|| work(pinned)).join().unwrap());
        let mut graph = null_mut();
        // SAFETY: the stream is alive and the out pointer valid.
        let ended = unsafe { sys::cudaStreamEndCapture(stream.as_raw(), &mut graph) };
        outcome?;
        assert_eq!(ended, sys::cudaError_t::cudaSuccess, "the capture was disturbed");
        // SAFETY: the graph is the capture's, destroyed once.
        unsafe { sys::cudaGraphDestroy(graph) };
        Ok(())
    });
}

pub fn the_last_handle_may_go_on_any_thread() {
    alone(|device| {
        let words = PinnedBox::from_slice(&pinned(device)?, &[1_u32; 100])?;
        let (sender, receiver) = mpsc::channel();
        let thread =
            thread::spawn(move || receiver.into_iter().map(|words: PinnedBox<[u32]>| words.len()).sum::<usize>());
        sender.send(words).unwrap();
        drop(sender);
        assert_eq!(thread.join().unwrap(), 100);
        Ok(())
    });
}
