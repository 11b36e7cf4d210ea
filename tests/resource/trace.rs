//! The timeline of a resource, read back as viewers of the trace event format read it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cuda_mempool::resource::{CudaAsyncMemoryResource, LimitAdaptor, LogAdaptor};
use cuda_mempool::{DeviceBuffer, Stream};
use serde_json::Value;

use crate::apart::anywhere;
use crate::sim::{self, must};
use crate::suite::Outcome;

const LIMIT: usize = 1 << 20;

pub fn a_log_opens_in_viewers() -> Outcome {
    anywhere(1, |_machine| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace.json");
        let pool = must(CudaAsyncMemoryResource::new(Some(0), None, None));
        let resource = Arc::new(LogAdaptor::to_file(LimitAdaptor::new(pool, LIMIT), &path).expect("a file"));
        std::thread::scope(|threads| {
            for thread in 1..=4 {
                let resource = resource.clone();
                threads.spawn(move || {
                    let stream = must(Stream::new(sim::device(0)));
                    let alloc = |length| DeviceBuffer::<u8>::from_resource(resource.clone(), &stream, length);
                    for round in 0..50 {
                        let kept = must(alloc(thread * 100 + round));
                        drop(must(alloc(round + 1)));
                        assert!(alloc(LIMIT + 1).is_err());
                        drop(kept);
                    }
                });
            }
        });
        assert!(Arc::into_inner(resource).is_some(), "it is dropped, and the file complete");

        let trace = Trace::read(&std::fs::read(&path).expect("the file"));
        assert_eq!((trace.blocks, trace.failures, trace.streams), (4 * 50 * 2, 4 * 50, 4));
        assert_eq!(trace.last_count, Some(0), "the curve ends where nothing is in use");
        assert!(trace.highest_count <= LIMIT as u64);
    })
}

pub fn a_forked_child_writes_nothing() -> Outcome {
    anywhere(1, |_machine| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace.json");
        let pool = must(CudaAsyncMemoryResource::new(Some(0), None, None));
        let resource = Arc::new(LogAdaptor::to_file(pool, &path).expect("a file"));
        let stream = must(Stream::new(sim::device(0)));
        let kept = must(DeviceBuffer::<u8>::from_resource(resource.clone(), &stream, 100));
        // SAFETY: the child calls nothing that a lock of another thread could stop, and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = (0..1000).all(|_| DeviceBuffer::<u8>::from_resource(resource.clone(), &stream, 1).is_err());
            let flushed = resource.flush().is_ok();
            drop(kept);
            drop(resource);
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(i32::from(!(refused && flushed))) };
        }
        let mut status = -1;
        // SAFETY: the child is this process's own, and the out pointer is valid.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
        drop(kept);
        drop(resource);
        let trace = Trace::read(&std::fs::read(&path).expect("the file"));
        assert_eq!((trace.blocks, trace.failures), (1, 0));
    })
}

/// What a trace says, once it is seen to be one.
#[derive(Default)]
struct Trace {
    blocks: usize,
    failures: usize,
    streams: usize,
    last_count: Option<u64>,
    highest_count: u64,
}

impl Trace {
    /// Panics where the format is not kept.
    fn read(text: &[u8]) -> Self {
        let events: Vec<Value> = serde_json::from_slice(text).expect("a list of events");
        let mut trace = Self::default();
        let (mut live, mut named, mut last) = (HashMap::new(), HashSet::new(), 0.0);
        for event in &events {
            let text = |member: &str| event[member].as_str().unwrap_or_else(|| panic!("no {member}: {event}"));
            let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("not a number: {event}"));
            let time = event["ts"].as_f64().expect("microseconds");
            assert!(time >= last, "times go up: {event}");
            last = time;
            assert_eq!(number(&event["pid"]), u64::from(std::process::id()));
            let track = number(&event["tid"]);
            match text("ph") {
                "M" => {
                    assert_eq!(text("name"), "thread_name");
                    assert!(event["args"]["name"].is_string() && named.insert(track), "one name each: {event}");
                }
                // Bars are told apart by category and id, and end on the name they began with.
                "b" => {
                    let block = (text("cat"), text("id"));
                    number(&event["args"]["bytes"]);
                    assert_eq!(live.insert(block, text("name")), None, "a block twice: {event}");
                    trace.blocks += 1;
                }
                "e" => assert_eq!(live.remove(&(text("cat"), text("id"))), Some(text("name")), "{event}"),
                "C" => {
                    let bytes = number(&event["args"]["bytes"]);
                    trace.last_count = Some(bytes);
                    trace.highest_count = trace.highest_count.max(bytes);
                }
                "i" => {
                    assert_eq!((text("s"), &event["args"]["error"]), ("t", &Value::from("OutOfMemory")));
                    trace.failures += 1;
                }
                other => panic!("no event is of the kind {other}"),
            }
            assert!(named.contains(&track), "a stream without a name: {event}");
        }
        assert!(live.is_empty(), "bars that do not end: {live:?}");
        trace.streams = named.len();
        trace
    }
}
