//! The adaptors over a resource without CUDA.

use std::cell::Cell;
use std::ffi::c_void;
use std::io::{self, Write};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use super::*;
use crate::resource::fake::Fake;
use crate::resource::{DeviceMemoryResource, ALIGNMENT};
use crate::{ErrorKind, Stream};

#[test]
fn statistics_count_bytes_and_blocks() {
    let resource = StatisticsAdaptor::new(Fake::with_capacity(1000));
    let stream = Fake::stream();
    let first = resource.allocate(100, &stream).unwrap();
    let second = resource.allocate(200, &stream).unwrap();
    // SAFETY: given back as they were handed out, here and below.
    unsafe { resource.deallocate(first, 100, &stream) }.unwrap();
    let third = resource.allocate(50, &stream).unwrap();
    assert_eq!(resource.allocate(1000, &stream).unwrap_err().kind(), ErrorKind::OutOfMemory);

    assert_eq!(resource.bytes(), Counter { current: 250, peak: 300, total: 350 });
    assert_eq!(resource.blocks(), Counter { current: 2, peak: 2, total: 3 });
    resource.reset_peaks();
    assert_eq!(resource.bytes().peak, 250);

    // SAFETY: as above.
    unsafe { resource.deallocate(second, 200, &stream) }.unwrap();
    // SAFETY: as above.
    unsafe { resource.deallocate(third, 50, &stream) }.unwrap();
    assert_eq!(resource.bytes(), Counter { current: 0, peak: 250, total: 350 });
    assert!(resource.upstream().state().live.is_empty());
}

#[test]
fn statistics_of_many_threads_add_up() {
    let resource = StatisticsAdaptor::new(Fake::with_capacity(usize::MAX));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = Fake::stream();
                for bytes in 1..=100 {
                    let pointer = resource.allocate(bytes, &stream).unwrap();
                    // SAFETY: given back as it was handed out.
                    unsafe { resource.deallocate(pointer, bytes, &stream) }.unwrap();
                }
            });
        }
    });
    assert_eq!(resource.blocks().total, 400);
    assert_eq!(resource.bytes().total, 4 * 5050);
    assert_eq!(resource.bytes().current, 0);
}

#[test]
fn statistics_of_blocks_that_change_threads() {
    let resource = StatisticsAdaptor::new(Fake::with_capacity(1000));
    let allocate = || resource.allocate(100, &Fake::stream()).unwrap().as_ptr() as usize;
    let give_back = |address: usize| {
        let pointer = NonNull::new(address as *mut c_void).unwrap();
        // SAFETY: given back as it was handed out.
        unsafe { resource.deallocate(pointer, 100, &Fake::stream()) }.unwrap();
    };
    let elsewhere = |work: &(dyn Fn() -> usize + Sync)| std::thread::scope(|scope| scope.spawn(work).join().unwrap());

    let own = allocate();
    elsewhere(&|| {
        give_back(own);
        0
    });
    assert_eq!(resource.bytes(), Counter { current: 0, peak: 100, total: 100 });
    let foreign = [elsewhere(&allocate), elsewhere(&allocate), elsewhere(&allocate)];
    foreign.into_iter().for_each(give_back);
    let last = allocate();
    assert_eq!(resource.bytes(), Counter { current: 100, peak: 300, total: 500 });
    give_back(last);
    assert_eq!(resource.blocks(), Counter { current: 0, peak: 3, total: 5 });
}

#[test]
fn a_limit_refuses_what_would_be_above_it_and_nothing_else() {
    let resource = LimitAdaptor::new(Fake::with_capacity(150), 100);
    let stream = Fake::stream();
    let all = resource.allocate(100, &stream).unwrap();
    let error = resource.allocate(1, &stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("limit of the resource is 100"), "{error}");
    assert_eq!(resource.allocate(usize::MAX, &stream).unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!(resource.upstream().state().calls, 1, "a refusal does not reach the resource");

    // SAFETY: given back as it was handed out.
    unsafe { resource.deallocate(all, 100, &stream) }.unwrap();
    assert_eq!(resource.used(), 0);
    resource.upstream().state().capacity = 10;
    assert!(resource.allocate(60, &stream).is_err());
    assert_eq!(resource.used(), 0, "what the resource refuses is not in use");
}

#[test]
fn a_panic_behind_a_limit_leaves_nothing_in_use() {
    let retry = RetryAdaptor::with_callback(Fake::with_capacity(10), |_, _, _| panic!("no room"));
    let resource = LimitAdaptor::new(retry, 100);
    let allocate = |bytes| resource.allocate(bytes, &Fake::stream());
    assert!(catch_unwind(AssertUnwindSafe(|| allocate(60))).is_err());
    assert_eq!(resource.used(), 0);
    assert!(allocate(10).is_ok());
    assert_eq!(resource.used(), 10);
}

#[test]
fn what_is_not_taken_back_is_still_out() {
    let file = Shared::default();
    let log = LogAdaptor::to_writer(Fake::with_capacity(1000), file.clone());
    let resource = StatisticsAdaptor::new(LimitAdaptor::new(log, 1000));
    let stream = Fake::stream();
    let block = resource.allocate(100, &stream).unwrap();
    let fake = resource.upstream().upstream().upstream();
    for stuck in [true, false] {
        fake.state().stuck = stuck;
        // SAFETY: given back as it was handed out, once.
        let answer = unsafe { resource.deallocate(block, 100, &stream) };
        let out = if stuck { 100 } else { 0 };
        assert_eq!(answer.is_err(), stuck);
        assert_eq!((resource.bytes().current, resource.upstream().used()), (out as u64, out));
    }
    drop(resource);
    let curve = file.events().into_iter().filter(|event| event["ph"] == "C");
    assert_eq!(curve.map(|event| event["args"]["bytes"].as_u64()).collect::<Vec<_>>(), [100, 0, 100, 0].map(Some));
}

/// RMM: the failure callback is called, the allocation is tried again, and then the failure is passed on.
#[test]
fn rmm_failure_callback_retry_allocation_once() {
    let calls = Cell::new(0);
    let resource = RetryAdaptor::with_callback(Fake::with_capacity(10), |_, bytes, _| {
        assert_eq!(bytes, 11);
        calls.set(calls.get() + 1);
        true
    });
    assert_eq!(resource.allocate(11, &Fake::stream()).unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert_eq!(calls.get(), 1);
    assert_eq!(resource.upstream().state().calls, 2);
}

#[test]
fn a_retry_gets_the_room_that_the_callback_made() {
    let resource = RetryAdaptor::with_callback(Fake::with_capacity(10), |fake, bytes, _| {
        fake.state().capacity += bytes;
        true
    });
    assert!(resource.allocate(11, &Fake::stream()).is_ok());
}

#[test]
fn no_retry_when_the_callback_says_so_or_memory_is_not_what_lacks() {
    let resource = RetryAdaptor::with_callback(Fake::with_capacity(10), |_, _, _| false);
    assert!(resource.allocate(11, &Fake::stream()).is_err());
    assert_eq!(resource.upstream().state().calls, 1);

    let refused = LimitAdaptor::new(Fake::with_capacity(10), 5);
    let resource = RetryAdaptor::with_callback(&refused, |_, _, _| unreachable!("memory is there"));
    assert!(resource.allocate(5, &Fake::stream()).is_ok());
}

/// RMM: alignment forwarded through adaptors.
#[test]
fn rmm_alignment_is_forwarded_through_adaptors() {
    let log = LogAdaptor::to_writer(Fake::with_capacity(1 << 20), io::sink());
    let resource =
        StatisticsAdaptor::new(LimitAdaptor::new(RetryAdaptor::with_callback(log, |_, _, _| false), 1 << 20));
    let stream = Fake::stream();
    for alignment in [256, 4096, 1 << 16] {
        let pointer = resource.allocate_async_aligned(100, alignment, &stream).unwrap();
        assert_eq!(pointer.as_ptr() as usize % alignment, 0);
        // SAFETY: given back as it was handed out; the fake checks it.
        unsafe { resource.deallocate_async_aligned(pointer, 100, alignment, &stream) }.unwrap();
    }
}

#[test]
fn adaptors_that_keep_accounts_equal_themselves_alone() {
    let fake = Fake::with_capacity(0);
    let (first, second) = (StatisticsAdaptor::new(&fake), StatisticsAdaptor::new(&fake));
    assert!(first.is_equal(&first) && !first.is_equal(&second) && !first.is_equal(&fake));
    let as_any: &dyn DeviceMemoryResource = &first;
    assert!(as_any == &first as &dyn DeviceMemoryResource && as_any != &second as &dyn DeviceMemoryResource);
    assert!(RetryAdaptor::with_callback(&first, |_, _, _| true).is_equal(&first));
    assert!(Arc::new(&fake).is_equal(&Box::new(&fake)));
}

/// A writer that can be read, and that fails when it is full.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<File>>);

struct File {
    bytes: Vec<u8>,
    room: usize,
}

impl Default for File {
    fn default() -> Self {
        Self { bytes: Vec::new(), room: usize::MAX }
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.0.lock().unwrap();
        let fits = bytes.len().min(file.room - file.bytes.len());
        if fits == 0 && !bytes.is_empty() {
            return Err(io::Error::other("full"));
        }
        file.bytes.write(&bytes[..fits])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().bytes.clone()).unwrap()
    }

    /// Of a finished trace.
    fn events(&self) -> Vec<serde_json::Value> {
        serde_json::from_str(&self.text()).unwrap()
    }
}

#[test]
fn the_log_is_a_trace_of_lives_and_of_bytes_in_use() {
    let file = Shared::default();
    let resource = LogAdaptor::to_writer(Fake::with_capacity(1000), file.clone());
    let stream = Fake::stream();
    let first = resource.allocate(100, &stream).unwrap();
    let second = resource.allocate_async_aligned(200, 4096, &stream).unwrap();
    assert!(resource.allocate(5000, &stream).is_err());
    // SAFETY: given back as they were handed out.
    unsafe { resource.deallocate(first, 100, &stream) }.unwrap();

    resource.flush().unwrap();
    let unfinished = format!("{}\n]", file.text());
    assert!(serde_json::from_str::<serde_json::Value>(&unfinished).is_ok(), "opens also when it is cut off");
    // SAFETY: as above.
    unsafe { resource.deallocate_async_aligned(second, 200, 4096, &stream) }.unwrap();
    drop(resource);

    let events = file.events();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    assert_eq!(
        of("C").iter().map(|event| event["args"]["bytes"].as_u64().unwrap()).collect::<Vec<_>>(),
        [100, 300, 200, 0]
    );
    assert_eq!(of("M")[0]["args"]["name"], "stream 0x1");
    assert_eq!(of("i")[0]["args"]["error"], "OutOfMemory");
    let ids = |phase| of(phase).iter().map(|event| event["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(ids("b"), [format!("{first:p}"), format!("{second:p}")]);
    assert_eq!(ids("b"), ids("e"));
    assert_eq!(of("b")[1]["args"]["alignment"], 4096);
    assert_eq!(of("b")[0]["args"]["alignment"], ALIGNMENT);
    assert!(events.windows(2).all(|pair| pair[0]["ts"].as_f64() <= pair[1]["ts"].as_f64()));
}

#[test]
fn a_log_of_nothing_is_a_trace_too() {
    let file = Shared::default();
    drop(LogAdaptor::to_writer(Fake::with_capacity(0), file.clone()));
    assert!(file.events().is_empty());
}

/// Of the file system that was full for a time.
#[test]
fn a_log_goes_on_after_a_failure_as_a_trace() {
    for written in 0..200 {
        let file = Shared::default();
        let resource = LogAdaptor::to_writer(Fake::with_capacity(1000), file.clone());
        let stream = Fake::stream();
        file.0.lock().unwrap().room = written;
        let first = resource.allocate(100, &stream).unwrap();
        let second = resource.allocate(200, &stream).unwrap();
        // SAFETY: given back as it was handed out.
        unsafe { resource.deallocate(first, 100, &stream) }.unwrap();
        assert!(resource.flush().is_err());
        file.0.lock().unwrap().room = usize::MAX;
        // SAFETY: as above.
        unsafe { resource.deallocate(second, 200, &stream) }.unwrap();
        let _third = resource.allocate(50, &Stream::per_thread(resource.device())).unwrap();
        drop(resource);
        let events = file.events();
        let curve: Vec<_> = events.iter().filter(|event| event["ph"] == "C").collect();
        assert_eq!(curve.iter().rev().take(2).map(|event| &event["args"]["bytes"]).collect::<Vec<_>>(), [50, 0]);
        let named = |track: &serde_json::Value| events.iter().any(|event| event["ph"] == "M" && &event["tid"] == track);
        assert!(curve.iter().all(|event| named(&event["tid"])));
    }
}

#[test]
fn a_log_that_cannot_be_written_fails_no_allocation() {
    let file = Shared::default();
    let resource = LogAdaptor::to_writer(Fake::with_capacity(1000), file.clone());
    file.0.lock().unwrap().room = 0;
    assert!(resource.allocate(100, &Fake::stream()).is_ok());
    assert_eq!(resource.flush().unwrap_err().to_string(), "full");
}

#[test]
fn a_writer_that_panics_fails_no_allocation_and_no_drop() {
    struct Panics;
    impl Write for Panics {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            panic!("on a write");
        }

        fn flush(&mut self) -> io::Result<()> {
            panic!("on a flush");
        }
    }
    let resource = LogAdaptor::to_writer(Fake::with_capacity(1000), Panics);
    let stream = Fake::stream();
    let block = resource.allocate(100, &stream).unwrap();
    // SAFETY: given back as it was handed out.
    unsafe { resource.deallocate(block, 100, &stream) }.unwrap();
    assert!(resource.upstream().state().live.is_empty());
    assert!(resource.flush().unwrap_err().to_string().contains("panicked"));
    drop(resource);
}
