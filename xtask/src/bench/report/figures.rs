//! What the crate sets out to reach, and whether a run reached it.

use super::results::{Outcome, Report};

pub struct Figure {
    pub what: &'static str,
    pub goal: Goal,
    pub unit: &'static str,
    value: fn(&Report) -> Option<f64>,
}

#[derive(Clone, Copy)]
pub enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Figure {
    /// What was measured, and whether that is good enough. `None` when it was not measured.
    pub fn of(&self, report: &Report) -> Option<(f64, bool)> {
        let value = (self.value)(report)?;
        let reached = match self.goal {
            Goal::AtMost(most) => value <= most,
            Goal::AtLeast(least) => value >= least,
        };
        Some((value, reached))
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SESSION: &str = "session";

const fn at_most(what: &'static str, most: f64, unit: &'static str, value: fn(&Report) -> Option<f64>) -> Figure {
    Figure { what, goal: Goal::AtMost(most), unit, value }
}

const fn at_least(what: &'static str, least: f64, value: fn(&Report) -> Option<f64>) -> Figure {
    Figure { what, goal: Goal::AtLeast(least), unit: "times", value }
}

pub const ALL: &[Figure] = &[
    at_most("`DeviceBuffer` alloc and drop, 64 KiB, to raw C", 1.05, "times", |r| {
        ratio(r, "device", "pairs", Some(64 * KIB), 1, "DeviceBuffer")
    }),
    at_most("… in a program that loads the runtime, to raw calls there", 1.05, "times", |r| {
        call(r, "allocate and free 64 KiB (dlopen)", "DeviceBuffer")
    }),
    at_most("… in a program that links the static runtime, to raw calls there", 1.05, "times", |r| {
        call(r, "allocate and free 64 KiB (static)", "DeviceBuffer")
    }),
    at_most("typed read of a pool's attribute, to the raw call", 1.1, "times", |r| {
        call(r, "read a pool's attribute (dylib)", "MemPool")
    }),
    at_most("typed read of a device's attribute, to the raw call", 1.1, "times", |r| {
        call(r, "read a device's attribute (dylib)", "Device")
    }),
    at_most("`set_stream`, to event record and stream wait", 1.1, "times", |r| {
        call(r, "move to another stream (dylib)", "DeviceBuffer")
    }),
    at_most("a call through `dlopen`, more than through a pointer", 2.0, "ns", |r| {
        let time = |subject| Some(find(r, "calls", "cudaGetLastError (dlopen)", None, 1, subject)?.nanoseconds.median);
        Some(time("through the crate")? - time("through a pointer")?)
    }),
    at_most("`BlockCache` hit, 64 KiB, one thread", 60.0, "ns", |r| {
        time(r, "device", "pairs", Some(64 * KIB), 1, "BlockCache")
    }),
    at_least("… faster than raw C", 15.0, |r| faster(r, "device", "pairs", 64 * KIB, 1, "BlockCache", "raw C")),
    at_least("… faster than RMM's pool", 8.0, |r| {
        faster(r, "device", "pairs", 64 * KIB, 1, "BlockCache", "RMM pool")
    }),
    at_most("… on 16 threads, to its cost on one", 3.0, "times", |r| growth(r, "device", 64 * KIB, "BlockCache")),
    at_least("… on 16 threads, faster than raw C", 200.0, |r| {
        faster(r, "device", "pairs", 64 * KIB, 16, "BlockCache", "raw C")
    }),
    at_most("`CudaAsyncMemoryResource` allocate and deallocate, 64 KiB, to raw C", 1.03, "times", |r| {
        ratio(r, "device", "pairs", Some(64 * KIB), 1, "CudaAsyncMemoryResource")
    }),
    at_most("`StatisticsAdaptor` adds to a resource", 15.0, "ns", |r| {
        let workload = "allocate and deallocate (dylib)";
        let time = |subject| time(r, "calls", workload, None, 1, subject);
        Some(time("StatisticsAdaptor on it")? - time("a resource that does nothing")?)
    }),
    at_most("`NumaAllocator`, 64 B, to malloc", 3.0, "times", |r| {
        ratio(r, "host", "pairs", Some(64), 1, "NumaAllocator")
    }),
    at_most("… 4 KiB, to malloc", 1.0, "times", |r| ratio(r, "host", "pairs", Some(4 * KIB), 1, "NumaAllocator")),
    at_most("… 64 KiB, to malloc", 1.0, "times", |r| ratio(r, "host", "pairs", Some(64 * KIB), 1, "NumaAllocator")),
    at_most("… 64 B, on 16 threads to one", 2.0, "times", |r| growth(r, "host", 64, "NumaAllocator")),
    at_most("… 64 KiB, on 16 threads to one", 2.0, "times", |r| growth(r, "host", 64 * KIB, "NumaAllocator")),
    at_least("… 64 KiB, faster than the pool's C calls and their synchronisation", 20.0, |r| {
        faster(r, "host", "pairs", 64 * KIB, 1, "NumaAllocator", "raw C pool")
    }),
    at_least("… 64 KiB, faster than `cudaHostAlloc` and `cudaFreeHost`", 5000.0, |r| {
        faster(r, "host", "pairs", 64 * KIB, 1, "NumaAllocator", "cudaHostAlloc")
    }),
    at_least("`NumaAllocator::prime` of 4 GiB, faster than `cudaHostAlloc`", 5.0, |r| {
        faster(r, "host", "ahead of time", 4096 * MIB, 1, "NumaAllocator::prime", "cudaHostAlloc")
    }),
    at_least("… of registered memory", 5.0, |r| {
        faster(r, "host", "ahead of time", 4096 * MIB, 1, "NumaAllocator::prime, registered", "cudaHostAlloc")
    }),
    at_least("bandwidth of copies to the device, to `cudaHostAlloc`'s", 0.99, |r| {
        faster(r, "host", "copied to the device", 256 * MIB, 1, "NumaAllocator", "cudaHostAlloc")
    }),
    at_least("… from registered memory", 0.99, |r| {
        faster(r, "host", "copied to the device", 256 * MIB, 1, "NumaAllocator, registered", "cudaHostAlloc")
    }),
    at_least("… to malloc's", 5.0, |r| {
        faster(r, "host", "copied to the device", 256 * MIB, 1, "NumaAllocator", "malloc")
    }),
    at_most("first hand-over of 1 MiB to another process, to the C calls", 1.2, "times", |r| {
        ratio(r, "ipc", "first hand-over", Some(MIB), 1, SESSION)
    }),
    at_most("repeated hand-over, one way", 20.0, "µs", |r| {
        Some(time(r, "ipc", "repeated hand-over", Some(MIB), 1, SESSION)? / 1e3)
    }),
    at_most("… its 99th percentile to its median", 5.0, "times", |r| {
        let outcome = find(r, "ipc", "repeated hand-over", Some(MIB), 1, SESSION)?;
        Some(outcome.p99? / outcome.nanoseconds.median)
    }),
    at_least("… faster than the first", 20.0, |r| {
        let time = |workload| time(r, "ipc", workload, Some(MIB), 1, SESSION);
        Some(time("first hand-over")? / time("repeated hand-over")?)
    }),
    at_least("… faster than torch's queue", 10.0, |r| {
        faster(r, "ipc", "repeated hand-over", MIB, 1, SESSION, "torch.multiprocessing queue")
    }),
    at_least("throughput of a ring of two buffers of 64 MiB, to plain copies", 0.95, |r| {
        faster(r, "ipc", "ring of two", 64 * MIB, 1, "session, the exporter's host waits", "plain copies")
    }),
];

fn find<'a>(
    report: &'a Report,
    memory: &str,
    workload: &str,
    bytes: Option<u64>,
    threads: usize,
    subject: &str,
) -> Option<&'a Outcome> {
    let cell = report.cells.iter().find(|cell| {
        let q = &cell.question;
        q.memory == memory && q.workload == workload && q.bytes == bytes && q.threads == threads
    })?;
    cell.results.iter().find(|outcome| outcome.subject == subject)
}

fn time(r: &Report, memory: &str, workload: &str, bytes: Option<u64>, threads: usize, subject: &str) -> Option<f64> {
    Some(find(r, memory, workload, bytes, threads, subject)?.nanoseconds.median)
}

fn ratio(r: &Report, memory: &str, workload: &str, bytes: Option<u64>, threads: usize, subject: &str) -> Option<f64> {
    Some(find(r, memory, workload, bytes, threads, subject)?.ratio?.median)
}

fn call(r: &Report, workload: &str, subject: &str) -> Option<f64> {
    ratio(r, "calls", workload, None, 1, subject)
}

fn faster(
    r: &Report,
    memory: &str,
    workload: &str,
    bytes: u64,
    threads: usize,
    subject: &str,
    than: &str,
) -> Option<f64> {
    let time = |subject| time(r, memory, workload, Some(bytes), threads, subject);
    Some(time(than)? / time(subject)?)
}

fn growth(r: &Report, memory: &str, bytes: u64, subject: &str) -> Option<f64> {
    let time = |threads| time(r, memory, "pairs", Some(bytes), threads, subject);
    Some(time(16)? / time(1)?)
}
