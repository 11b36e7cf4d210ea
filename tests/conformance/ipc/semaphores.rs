//! Words of shared memory that streams write and wait for.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::driver::{entry_point, CuResult, CUDA_SUCCESS};
use crate::support::child::Peer;
use crate::support::ipc::{Page, PAGE};
use crate::support::link::Link;
use crate::support::prelude::*;

area! {
    isolated: [
        stream_waits_until_the_processor_writes,
        processor_sees_what_a_stream_writes,
        wait_is_for_the_value_or_more,
        stream_waits_for_another_stream,
        words_of_a_sealed_page_work_and_it_takes_no_hole,
        kernel_waits_until_the_processor_writes,
        processes_hand_memory_over_without_a_host_wait,
        processor_frees_a_stream_whose_peer_was_killed,
    ],
    roles: [take_over, be_busy],
    questions: [value_behind_the_wait, stream_behind_a_hole],
}

const GEQ: u32 = 0;
const WRITE_DEFAULT: u32 = 0;

type StreamValue = unsafe extern "C" fn(cudaStream_t, u64, u32, u32) -> CuResult;

/// The two stream operations of the driver.
struct Operations {
    wait: StreamValue,
    write: StreamValue,
}

impl Operations {
    fn load() -> Result<Self, Skip> {
        let wait = entry_point(c"cuStreamWaitValue32")?;
        let write = entry_point(c"cuStreamWriteValue32")?;
        // SAFETY: the driver's functions of these names have this signature since CUDA 12.0.
        unsafe {
            Ok(Self {
                wait: std::mem::transmute::<*mut c_void, StreamValue>(wait),
                write: std::mem::transmute::<*mut c_void, StreamValue>(write),
            })
        }
    }
}

/// A shared page that streams of this process reach.
struct Semaphores {
    operations: Operations,
    page: Page,
    device: u64,
}

impl Semaphores {
    #[track_caller]
    fn new(page: Page) -> Result<Self, Skip> {
        let operations = Operations::load()?;
        ok!(cudaHostRegister(page.address(), PAGE, cudaHostRegisterMapped | cudaHostRegisterPortable));
        let mut device = null_mut();
        ok!(cudaHostGetDevicePointer(&mut device, page.address(), 0));
        Ok(Self { operations, page, device: device as u64 })
    }

    fn word(&self, index: usize) -> &AtomicU32 {
        assert!(index < PAGE / 4);
        // SAFETY: the page is mapped for as long as this lives, and everyone uses the word atomically.
        unsafe { &*self.page.address().cast::<AtomicU32>().add(index) }
    }

    #[track_caller]
    fn wait(&self, stream: &Stream, index: usize, value: u32) {
        // SAFETY: the address is of a word of the page, which is registered for as long as this lives.
        let answer = unsafe { (self.operations.wait)(stream.raw(), self.device + 4 * index as u64, value, GEQ) };
        assert_eq!(answer, CUDA_SUCCESS);
    }

    #[track_caller]
    fn write(&self, stream: &Stream, index: usize, value: u32) {
        let address = self.device + 4 * index as u64;
        // SAFETY: as for `wait`.
        let answer = unsafe { (self.operations.write)(stream.raw(), address, value, WRITE_DEFAULT) };
        assert_eq!(answer, CUDA_SUCCESS);
    }
}

impl Drop for Semaphores {
    fn drop(&mut self) {
        ask!(cudaHostUnregister(self.page.address()));
    }
}

const MOMENT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(5);

fn stream_waits_until_the_processor_writes() -> Outcome {
    let semaphores = Semaphores::new(Page::new())?;
    let stream = Stream::new();
    semaphores.wait(&stream, 0, 1);
    assert!(!stream.settles_within(MOMENT));
    semaphores.word(0).store(1, Ordering::Release);
    assert!(stream.settles_within(LONG));
    Ok(())
}

fn processor_sees_what_a_stream_writes() -> Outcome {
    let semaphores = Semaphores::new(Page::new())?;
    let stream = Stream::new();
    let gate = Gate::close(&stream);
    semaphores.write(&stream, 3, 77);
    assert_eq!(semaphores.word(3).load(Ordering::Acquire), 0);
    gate.open();
    stream.synchronize();
    assert_eq!(semaphores.word(3).load(Ordering::Acquire), 77);
    assert_eq!(semaphores.word(2).load(Ordering::Acquire), 0);
    assert_eq!(semaphores.word(4).load(Ordering::Acquire), 0);
    Ok(())
}

fn wait_is_for_the_value_or_more() -> Outcome {
    let semaphores = Semaphores::new(Page::new())?;
    let stream = Stream::new();
    semaphores.word(0).store(5, Ordering::Release);
    semaphores.wait(&stream, 0, 5);
    semaphores.wait(&stream, 0, 4);
    assert!(stream.settles_within(LONG));
    semaphores.wait(&stream, 0, 6);
    assert!(!stream.settles_within(MOMENT));
    semaphores.word(0).store(9, Ordering::Release);
    assert!(stream.settles_within(LONG));
    Ok(())
}

fn stream_waits_for_another_stream() -> Outcome {
    let semaphores = Semaphores::new(Page::new())?;
    let (a, b) = (Stream::new(), Stream::new());
    let gate = Gate::close(&a);
    semaphores.write(&a, 0, 1);
    semaphores.wait(&b, 0, 1);
    semaphores.write(&b, 1, 1);
    assert!(!b.settles_within(MOMENT));
    gate.open();
    assert!(b.settles_within(LONG));
    assert_eq!(semaphores.word(1).load(Ordering::Acquire), 1);
    Ok(())
}

fn words_of_a_sealed_page_work_and_it_takes_no_hole() -> Outcome {
    let page = Page::new();
    page.seal()?;
    let semaphores = Semaphores::new(page)?;
    let stream = Stream::new();
    semaphores.wait(&stream, 0, 1);
    semaphores.write(&stream, 1, 7);
    assert_eq!(semaphores.page.make_hole().map_err(|error| error.kind()), Err(std::io::ErrorKind::PermissionDenied));
    assert!(!stream.settles_within(MOMENT));
    semaphores.word(0).store(1, Ordering::Release);
    assert!(stream.settles_within(LONG));
    assert_eq!(semaphores.word(1).load(Ordering::Acquire), 7);
    Ok(())
}

/// Whether a stream sees what the processor writes when the memory under the page was changed. If not, the process has a
/// stream that never ends.
fn stream_behind_a_hole() -> Outcome {
    let semaphores = Semaphores::new(Page::new())?;
    let stream = Stream::new();
    semaphores.wait(&stream, 0, 1);
    say!("a hole is made: {}", semaphores.page.make_hole().is_ok());
    semaphores.word(0).store(1, Ordering::Release);
    say!("the stream goes on: {}", stream.settles_within(LONG));
    std::mem::forget((semaphores, stream));
    Ok(())
}

fn kernel_waits_until_the_processor_writes() -> Outcome {
    let semaphores = Semaphores::new(Page::new())?;
    let kernels = machine::kernels()?;
    let stream = Stream::new();
    // SAFETY: a word of the page, which is registered until the stream has settled.
    unsafe { kernels.wait_for(stream.raw(), semaphores.device as *const u32, 1) }?;
    let settled = stream.settles_within(MOMENT);
    semaphores.word(0).store(1, Ordering::Release);
    stream.synchronize();
    assert!(!settled, "the kernel waits");
    Ok(())
}

const ROUNDS: u32 = 100;
const SIZE: usize = 1 << 20;
/// The words by which a round is handed over, and given back.
const READY: usize = 0;
const TAKEN: usize = 16;

fn processes_hand_memory_over_without_a_host_wait() -> Outcome {
    let pool = Pool::device_for_ipc()?;
    let semaphores = Semaphores::new(Page::new())?;
    let kernels = machine::kernels().ok();
    let stream = Stream::new();
    let memory = pool.alloc(SIZE, &stream);
    stream.synchronize();
    let mut peer = Peer::start(&AREA, "take_over");
    peer.link.send_page(&semaphores.page);
    peer.link.send_pool(&pool);
    peer.link.send_pointer(memory.ptr());
    peer.link.wait();
    for round in 1..=ROUNDS {
        // Where there are kernels, the memory is late: a peer that does not wait would see it.
        if let Some(kernels) = &kernels {
            kernels.spin(stream.raw(), 1_000_000)?;
        }
        ok!(cudaMemsetAsync(memory.ptr(), round as i32, SIZE, stream.raw()));
        semaphores.write(&stream, READY, round);
        semaphores.wait(&stream, TAKEN, round);
    }
    peer.finish()?;
    assert!(stream.settles_within(LONG));
    memory.free();
    Ok(())
}

fn take_over(link: &mut Link) {
    let page = link.receive_page();
    let imported = crate::support::ipc::Imported::receive(link);
    let semaphores = Semaphores::new(page).expect("the exporter had the operations");
    let host = HostMemory::new(SIZE);
    link.signal();
    for round in 1..=ROUNDS {
        semaphores.wait(&imported.stream, READY, round);
        let any = cudaMemcpyKind::cudaMemcpyDefault;
        ok!(cudaMemcpyAsync(host.ptr(), imported.pointer, SIZE, any, imported.stream.raw()));
        semaphores.write(&imported.stream, TAKEN, round);
        imported.stream.synchronize();
        // SAFETY: pinned memory of that size; the copy into it is done.
        let bytes = unsafe { std::slice::from_raw_parts(host.ptr().cast::<u8>(), SIZE) };
        assert!(bytes.iter().all(|byte| u32::from(*byte) == round), "round {round}");
    }
    imported.free();
}

fn processor_frees_a_stream_whose_peer_was_killed() -> Outcome {
    let semaphores = Semaphores::new(Page::new())?;
    let stream = Stream::new();
    let mut peer = Peer::start(&AREA, "be_busy");
    peer.link.send_page(&semaphores.page);
    peer.link.wait();
    semaphores.wait(&stream, READY, 1);
    assert!(!stream.settles_within(MOMENT));
    peer.kill();
    assert!(!stream.settles_within(MOMENT), "the peer's write never comes");
    semaphores.word(READY).store(1, Ordering::Release);
    assert!(stream.settles_within(LONG));
    Ok(())
}

/// Has a write behind work that takes longer than this process will live.
fn be_busy(link: &mut Link) {
    let semaphores = Semaphores::new(link.receive_page()).expect("the survivor had the operations");
    let stream = Stream::new();
    let kernels = machine::kernels().ok();
    let gate = kernels.is_none().then(|| Gate::close(&stream));
    if let Some(kernels) = &kernels {
        kernels.spin(stream.raw(), 20_000_000_000).expect("the kernel starts");
    }
    semaphores.write(&stream, READY, 1);
    link.signal();
    link.wait();
    drop(gate);
}

/// GEQ by signed difference or by unsigned order.
fn value_behind_the_wait() -> Outcome {
    let semaphores = Semaphores::new(Page::new())?;
    let stream = Stream::new();
    semaphores.word(0).store(1, Ordering::Release);
    semaphores.wait(&stream, 0, u32::MAX);
    say!("1 passes a wait for u32::MAX: {}", stream.settles_within(Duration::from_millis(300)));
    semaphores.word(0).store(u32::MAX, Ordering::Release);
    stream.synchronize();
    semaphores.wait(&stream, 0, 1);
    say!("u32::MAX passes a wait for 1: {}", stream.settles_within(Duration::from_millis(300)));
    semaphores.word(0).store(1, Ordering::Release);
    stream.synchronize();
    Ok(())
}
