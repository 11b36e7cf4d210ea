//! What the tests share: a device, a pool, slow work, and counts of what a process holds.

use std::fs;
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use cuda_mempool::ipc::{self, Exporter, ImportedPool, Importer, Lease, Options, SharedBuffer};
use cuda_mempool::{Access, Device, DeviceBuffer, Event, HandleTypes, Location, MemPool, Stream};

use crate::kernel::Kernels;
use crate::sim::{self, Sim};

/// As long as nothing that works takes.
pub const LONG: Duration = Duration::from_secs(20);
/// How soon after a peer's death everything must go on.
pub const SOON: Duration = Duration::from_secs(1);

/// Why no test can run here.
pub fn why_not() -> Option<String> {
    match Device::new(0) {
        Ok(_) => None,
        Err(why) if std::env::var_os("CUDA_MEMPOOL_REQUIRE_DEVICE").is_some() => panic!("no device: {why}"),
        Err(why) => Some(format!("no device: {why}")),
    }
}

/// Why the test that runs asks nothing here, or not all.
static SKIPPED: Mutex<Option<String>> = Mutex::new(None);

/// Has the test that runs counted as skipped.
pub fn skip(why: &str) {
    *SKIPPED.lock().expect("no panic") = Some(format!("skipped: {why}"));
}

/// What was said of the last test, once.
pub fn skipped() -> Option<String> {
    SKIPPED.lock().expect("no panic").take()
}

/// The simulator, for what only that can be asked.
pub fn simulator() -> Option<&'static Sim> {
    if sim().is_none() {
        skip("needs the simulated runtime");
    }
    sim()
}

/// The simulator, if this is it.
pub fn sim() -> Option<&'static Sim> {
    sim::with_devices(1)
}

pub fn device() -> Device {
    Device::new(0).expect("there is a device")
}

pub fn stream() -> Stream {
    Stream::new(device()).expect("a stream")
}

/// A pool that can be shared, which keeps what it has.
pub fn pool() -> MemPool {
    pool_at(device())
}

pub fn pool_at(location: impl Into<Location>) -> MemPool {
    let pool = MemPool::builder(location)
        .handle_types(HandleTypes::POSIX_FD)
        .grant(device(), Access::ReadWrite)
        .release_threshold(u64::MAX)
        .build()
        .expect("a pool that can be shared");
    // The first export makes a descriptor that the runtime keeps as long as the pool: see the conformance tests.
    drop(pool.export_fd().expect("a descriptor"));
    pool
}

/// Where the tests that are for every kind of pool make theirs.
pub fn places() -> Vec<Location> {
    let mut places = vec![Location::Device(device())];
    if let Ok(Some(node)) = device().host_numa_node() {
        let pool = MemPool::builder(Location::HostNuma(node)).handle_types(HandleTypes::POSIX_FD).build();
        match pool {
            Ok(_) => places.push(Location::HostNuma(node)),
            Err(why) => eprintln!("no pools on the host: {why}"),
        }
    }
    places
}

/// Has the stream work for so long: by a kernel on a GPU, by a host function where there are no kernels.
pub fn slow(stream: &Stream, time: Duration) {
    thread_local! {
        // Never unloaded: they may run when the thread ends.
        static KERNELS: Option<ManuallyDrop<Kernels>> = Kernels::load().ok().map(ManuallyDrop::new);
    }
    KERNELS.with(|kernels| match kernels {
        Some(kernels) => kernels.spin(stream.as_raw(), time.as_nanos() as u64).expect("the stream takes a kernel"),
        None => stream.launch_host_fn(move || std::thread::sleep(time)).expect("the stream takes work"),
    });
}

/// A buffer whose bytes are set by slow work: whoever does not wait for it sees something else.
pub fn slowly_filled(pool: &MemPool, stream: &Stream, length: usize, byte: u8) -> DeviceBuffer<u8> {
    let mut buffer = pool.alloc::<u8>(stream, length).expect("memory");
    buffer.as_slice_mut().fill_bytes(!byte).expect("a fill");
    stream.synchronize().expect("no fault");
    slow(stream, Duration::from_millis(30));
    buffer.as_slice_mut().fill_bytes(byte).expect("a fill");
    buffer
}

pub fn send(exporter: &Exporter, buffer: impl Into<SharedBuffer<u8>>) -> Lease<SharedBuffer<u8>> {
    exporter.send(buffer).map_err(|(_, error)| error).expect("the peer is there")
}

/// The next buffer.
pub fn receive(importer: &Importer) -> Option<ipc::ImportedBuffer<u8>> {
    importer.recv_timeout(LONG).expect("the peer is there")
}

/// All bytes of a view are this.
pub fn is_all(bytes: &[u8], byte: u8) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&found| found == byte)
}

/// Whether the streams' order is kept by the host, so that both ways are tested by the same roles.
pub fn options() -> Options {
    Options::default().host_ordering(by_host())
}

pub const BY_HOST: &str = "CUDA_MEMPOOL_TEST_HOST_ORDERING";

pub fn by_host() -> bool {
    std::env::var_os(BY_HOST).is_some()
}

/// Uses once what the driver and this crate keep something of for the whole process, so that it is not taken for a leak.
pub fn warm_up() {
    let (pool, stream) = (pool(), stream());
    stream.join(&self::stream()).expect("an event");
    slow(&stream, Duration::from_millis(1));
    stream.launch_host_fn(|| {}).expect("a host function");
    let event = Event::builder(device()).interprocess(true).build().expect("an event");
    event.ipc_handle().expect("a handle");
    let imported = ImportedPool::import_fd(pool.export_fd().expect("a descriptor").as_fd()).expect("a pool");
    let buffer = pool.alloc_zeroed::<u8>(&stream, 1000).expect("memory");
    // SAFETY: everything is on one stream, and the import is freed first.
    let import = unsafe { imported.import::<u8>(&buffer.export_pointer().expect("an export"), &stream) };
    drop(import.expect("a mapping"));
    let (socket, _other) = UnixStream::pair().expect("a pair");
    Exporter::new(socket, &pool).and_then(Exporter::close).expect("a session");
    stream.synchronize().expect("no fault");
}

/// What a process holds that could leak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// What the descriptors are of.
    descriptors: Vec<PathBuf>,
    keepers: usize,
    /// Mappings of shared pages.
    pages: usize,
    /// Objects of the simulated runtime.
    objects: Option<sim::Live>,
}

impl Held {
    pub fn now() -> Self {
        let maps = fs::read_to_string("/proc/self/maps").expect("Linux has it");
        Self {
            descriptors: descriptors(),
            keepers: threads().filter(|name| name.starts_with("cuda-mempool-ip")).count(),
            pages: maps.lines().filter(|line| line.contains("cuda-mempool semaphores")).count(),
            objects: sim().map(|sim| sim.live()),
        }
    }

    /// As [`now`](Self::now), in a process that has one session: its thread takes a moment to have its name.
    pub fn beside_a_session() -> Self {
        let deadline = Instant::now() + SOON;
        loop {
            let now = Self::now();
            if now.keepers == 1 {
                return now;
            }
            assert!(Instant::now() < deadline, "{} sessions", now.keepers);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The same with one stream less.
    pub fn without_stream(mut self) -> Self {
        if let Some(objects) = &mut self.objects {
            objects.streams -= 1;
        }
        self
    }

    /// The same with one descriptor more on a GPU: where a process imports its own memory, the driver was seen to keep one
    /// in about half of the runs, also when the pool had ended.
    pub fn with_one_of_the_drivers(mut self) -> Self {
        if sim().is_none() {
            self.descriptors.push("/dev/nvidiactl".into());
        }
        self
    }

    /// How many streams the simulator has now and had not then.
    pub fn streams_since(&self) -> u64 {
        let streams = |held: &Self| held.objects.map_or(0, |objects| objects.streams);
        streams(&Self::now()) - streams(self)
    }

    fn fits_in(&self, before: &Self) -> bool {
        let ours = [self.descriptors.len(), self.keepers, self.pages].into_iter();
        let objects = |held: &Self| {
            held.objects.map_or([0; 7], |live| {
                let memory = [live.pool_allocations, live.plain_allocations, live.bytes];
                [live.streams, live.events, live.pools, live.registered_ranges, memory[0], memory[1], memory[2]]
            })
        };
        ours.zip([before.descriptors.len(), before.keepers, before.pages]).all(|(now, before)| now <= before)
            && objects(self).into_iter().zip(objects(before)).all(|(now, before)| now <= before)
    }

    /// Waits until no more is held than this.
    pub fn assert_again(&self) {
        let deadline = Instant::now() + 3 * SOON;
        loop {
            // The driver lets go of pools only when somebody has waited for the frees of their memory.
            device().synchronize().expect("no fault");
            let now = Self::now();
            if now.fits_in(self) {
                return;
            }
            assert!(Instant::now() < deadline, "held before: {self:?}, now: {now:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn descriptors() -> Vec<PathBuf> {
    let open = fs::read_dir("/proc/self/fd").expect("Linux has it");
    open.filter_map(|descriptor| fs::read_link(descriptor.ok()?.path()).ok()).collect()
}

/// The names of this process's threads, as far as the system keeps them.
fn threads() -> impl Iterator<Item = String> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux has it");
    tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
}

/// Waits until the pool has nothing in use.
pub fn assert_unused(pool: &MemPool) {
    let deadline = Instant::now() + 3 * SOON;
    loop {
        device().synchronize().expect("no fault");
        let used = pool.usage().expect("the pool is alive").used;
        if used == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{used} bytes stay in use");
        std::thread::sleep(Duration::from_millis(5));
    }
}
