//! The cap, trimming, priming, and what the statistics say.

use std::time::Duration;

use allocator_api2::vec::Vec as PinnedVec;
use cuda_mempool::host::{NumaAllocator, PinnedBox};
use cuda_mempool::ErrorKind;

use crate::{alone, on_simulator, pinned, registered, with_each_kind};

const MIB: usize = 1 << 20;

pub fn a_cap_is_kept_and_the_reason_is_told() {
    alone(|device| {
        let capped = NumaAllocator::builder().near(device).cap(40 * MIB).build()?;
        let mut bytes = PinnedVec::<u8, _>::new_in(capped.clone());
        assert!(bytes.try_reserve_exact(30 * MIB).is_ok());
        assert!(bytes.try_reserve_exact(50 * MIB).is_err());
        let reason = capped.take_last_error().unwrap();
        assert_eq!(reason.kind(), ErrorKind::OutOfMemory);
        assert!(reason.to_string().contains("cap"), "{reason}");
        drop(bytes);
        assert!(PinnedBox::<[u8]>::zeroed(&capped, 40 * MIB).is_ok(), "what was freed can be had again");
        assert!(capped.stats().peak_taken_bytes <= 40 * MIB);
        Ok(())
    });
}

pub fn trim_gives_everything_back() {
    with_each_kind(|_, pinned| {
        drop(PinnedBox::<[u8]>::zeroed(&pinned, 100)?);
        drop(PinnedBox::<[u8]>::zeroed(&pinned, 60 * MIB)?);
        assert!(pinned.reserved()? >= 60 * MIB, "freed memory stays warm");
        assert_eq!(pinned.trim()?, pinned.chunk_size());
        assert_eq!(pinned.stats().taken_bytes, 0);
        assert_eq!(pinned.reserved()?, 0);
        Ok(())
    });
}

pub fn primed_memory_is_there() {
    with_each_kind(|_, pinned| {
        pinned.prime(200 * MIB)?;
        let primed = pinned.reserved()?;
        assert!(primed >= 200 * MIB && pinned.stats().taken_bytes == 0, "{primed}");
        let boxes = [100, 60].map(|size| PinnedBox::<[u8]>::zeroed(&pinned, size * MIB));
        assert_eq!(pinned.reserved()?, primed, "nothing more was taken from the system");
        drop(boxes);
        pinned.prime(200 * MIB)?;
        assert_eq!(pinned.reserved()?, primed, "what is free counts");
        pinned.prime(0)?;
        pinned.trim()?;
        assert_eq!(pinned.reserved()?, 0);
        Ok(())
    });
}

pub fn priming_stays_below_the_cap() {
    alone(|device| {
        let capped = NumaAllocator::builder().near(device).cap(100 * MIB).build()?;
        let error = capped.prime(101 * MIB).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert_eq!(capped.reserved()?, 0);
        capped.prime(100 * MIB)
    });
}

pub fn more_than_any_machine_has_is_not_primed() {
    with_each_kind(|_, pinned| {
        for bytes in [usize::MAX, isize::MAX as usize + 1, isize::MAX as usize] {
            let kind = on_one_cpu(|| pinned.prime(bytes)).unwrap_err().kind();
            assert!(matches!(kind, ErrorKind::OutOfMemory | ErrorKind::SizeOverflow), "{kind:?}");
        }
        assert_eq!(pinned.reserved()?, 0);
        Ok(())
    });
}

/// Where there is one, one thread gets all.
fn on_one_cpu<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let alone = || {
        // SAFETY: the sets are as large as is said, and all zero is a set.
        unsafe {
            let mut cpus: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, std::mem::size_of_val(&cpus), &mut cpus);
            let first = (0..libc::CPU_SETSIZE as usize).find(|&cpu| libc::CPU_ISSET(cpu, &cpus)).expect("this one");
            libc::CPU_ZERO(&mut cpus);
            libc::CPU_SET(first, &mut cpus);
            libc::sched_setaffinity(0, std::mem::size_of_val(&cpus), &cpus);
        }
        work()
    };
    std::thread::scope(|scope| scope.spawn(alone).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

pub fn free_registered_memory_joins_and_is_cut_again() {
    alone(|device| {
        let pinned = registered(device)?;
        pinned.prime(64 * MIB)?;
        let take = |size: usize| PinnedBox::<[u8]>::zeroed(&pinned, size * MIB);
        let [first, second, third] = [take(10)?, take(20)?, take(34)?];
        assert_eq!(pinned.reserved()?, 64 * MIB, "all three fit");
        drop((first, third));
        drop(second);
        let whole = take(64)?;
        assert_eq!(pinned.reserved()?, 64 * MIB, "and so does one of their length");
        assert_eq!(pinned.trim()?, 0);
        assert_eq!(pinned.reserved()?, 64 * MIB, "what is in use stays");
        drop(whole);
        pinned.trim()?;
        assert_eq!(pinned.reserved()?, 0);
        Ok(())
    });
}

pub fn statistics_follow_the_blocks() {
    alone(|device| {
        let pinned = NumaAllocator::builder().near(device).chunk_size(4 * MIB).build()?;
        assert_eq!(pinned.stats(), Default::default());
        let small = PinnedBox::<[u8]>::zeroed(&pinned, 1000)?;
        let large = PinnedBox::<[u8]>::zeroed(&pinned, 5 * MIB)?;
        let stats = pinned.stats();
        assert_eq!((stats.live_blocks, stats.chunks, stats.large_blocks), (2, 1, 1));
        assert_eq!((stats.chunk_bytes, stats.large_bytes), (4 * MIB, 5 * MIB));
        assert_eq!(stats.taken_bytes, 9 * MIB);
        assert_eq!(stats.cached_bytes(), stats.taken_bytes - stats.live_bytes);
        assert!(stats.live_bytes >= 5 * MIB + 1000 && stats.live_bytes < 5 * MIB + 1200);
        drop((small, large));
        let after = pinned.stats();
        assert_eq!((after.live_blocks, after.live_bytes, after.large_bytes), (0, 0, 0));
        assert_eq!((after.taken_bytes, after.peak_taken_bytes), (4 * MIB, 9 * MIB));
        assert!(after.stocked_bytes >= 1000 && after.peak_carved_bytes >= 1000);
        Ok(())
    });
}

pub fn chunk_sizes_out_of_range_are_refused() {
    alone(|device| {
        for bytes in [0, (1 << 30) + 1] {
            let error = NumaAllocator::builder().near(device).chunk_size(bytes).build().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidValue);
        }
        let pinned = NumaAllocator::builder().near(device).chunk_size(1).build()?;
        assert_eq!(pinned.chunk_size(), 64 << 10);
        drop(PinnedBox::<[u8]>::zeroed(&pinned, 200_000)?);
        Ok(())
    });
}

pub fn new_memory_is_waited_for() {
    on_simulator(|sim, device| {
        let pinned = pinned(device)?;
        sim.set_delay(Duration::from_millis(2), 1);
        let before = sim.calls("cudaStreamSynchronize");
        let large = (0..20).map(|_| PinnedBox::from_slice(&pinned, &[1_u8; 5 << 20])).collect::<Result<Vec<_>, _>>();
        sim.set_delay(Duration::ZERO, 1);
        assert!(sim.calls("cudaStreamSynchronize") > before, "a stream that is behind must be waited for");
        assert!(large?.iter().all(|large| large[large.len() - 1] == 1));
        Ok(())
    });
}

pub fn warm_blocks_cost_no_call() {
    on_simulator(|sim, device| {
        let pinned = pinned(device)?;
        drop(PinnedBox::new(&pinned, [1_u8; 1000])?);
        let before = sim.total_calls();
        for _ in 0..1000 {
            drop(PinnedBox::new(&pinned, [1_u8; 1000])?);
            drop(PinnedBox::new(&pinned, [1_u8; 20])?);
        }
        assert_eq!(sim.total_calls(), before);
        Ok(())
    });
}
