//! The semaphores as streams use them.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use cuda_mempool_sys as sys;

use super::page::{Page, Word};
use crate::current::CurrentDevice;
use crate::error::call;
use crate::ipc::driver::{self, DevicePointer};
use crate::stream::RelaxedCapture;
use crate::{teardown, Device, Error, ErrorKind, Result, Stream};

/// The page, and how this machine lets streams reach it.
///
/// Where streams can write and wait for words themselves, they do. Elsewhere a host function writes, and the host waits
/// before it lets a stream go on. Each end decides for itself: the words are the same.
#[derive(Debug)]
pub(super) struct Signals {
    /// Before the page: it is unregistered before it is unmapped.
    registered: OnceLock<Registered>,
    page: Arc<Page>,
}

impl Signals {
    /// The hosts keep the order until [`register`](Self::register) lets the streams do it.
    pub(super) fn new(page: Page) -> Self {
        Self { registered: OnceLock::new(), page: Arc::new(page) }
    }

    /// Lets streams reach the page, where the driver has what that takes.
    pub(super) fn register(&self, device: Device) {
        if !driver::has_stream_memory_operations() {
            return;
        }
        // Another thread's capture is no reason against it.
        let _relaxed = RelaxedCapture::enter();
        let tried = Registered::new(&self.page, device).and_then(|registered| {
            registered.try_out()?;
            Ok(registered)
        });
        match tried {
            Ok(registered) => drop(self.registered.set(registered)),
            Err(error) => log::warn!("the hosts keep the order of a session, for its page cannot be used: {error}"),
        }
    }

    /// Whether streams wait by themselves. If not, the host has to wait until [`has`](Self::has) says yes.
    pub(super) fn on_stream(&self) -> bool {
        self.registered.get().is_some()
    }

    /// Whether the word has come to `value`.
    pub(super) fn has(&self, word: Word, slot: u32, value: u32) -> bool {
        self.page.has(word, slot, value)
    }

    /// Writes the word now, from the host.
    pub(super) fn set(&self, word: Word, slot: u32, value: u32) {
        self.page.set(word, slot, value);
    }

    /// Writes the word when the stream has done what was enqueued so far. Says whether that was left to the stream: when
    /// nothing has to be waited for, it is written at once.
    pub(super) fn write(&self, stream: &Stream, word: Word, slot: u32, value: u32) -> Result<bool> {
        if stream.is_surely_idle() {
            self.page.set(word, slot, value);
            return Ok(false);
        }
        if let Some(address) = self.address(word, slot) {
            // SAFETY: the page stays registered until the streams that were given it have passed: see the keeper.
            unsafe { driver::write_value(stream, address, value) }?;
        } else {
            let page = Arc::clone(&self.page);
            stream.launch_host_fn(move || page.set(word, slot, value))?;
        }
        Ok(true)
    }

    /// Has the stream wait for the word, and says whether it has to. Nothing is enqueued where the host has to wait, nor
    /// when the word is there: the work in front of it is done then.
    pub(super) fn wait(&self, stream: &Stream, word: Word, slot: u32, value: u32) -> Result<bool> {
        if self.has(word, slot, value) {
            return Ok(false);
        }
        let Some(address) = self.address(word, slot) else { return Ok(false) };
        // SAFETY: as in `write`.
        unsafe { driver::wait_value(stream, address, value) }?;
        Ok(true)
    }

    fn address(&self, word: Word, slot: u32) -> Option<DevicePointer> {
        self.registered.get().map(|registered| registered.device + word.offset(slot) as u64)
    }
}

/// Host memory that devices can reach.
#[derive(Debug)]
struct Registered {
    start: NonNull<u8>,
    device: DevicePointer,
    of: Device,
}

// SAFETY: an address, which is only given back to the runtime.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    fn new(page: &Page, of: Device) -> Result<Self> {
        let (start, length) = page.bytes();
        let _current = CurrentDevice::set(of)?;
        let flags = sys::cudaHostRegisterPortable | sys::cudaHostRegisterMapped;
        // SAFETY: the memory is mapped, and stays so until after it is unregistered.
        unsafe { call!(cudaHostRegister(start.as_ptr().cast(), length, flags)) }?;
        let mut registered = Self { start, device: 0, of };
        let mut device: *mut c_void = std::ptr::null_mut();
        // SAFETY: the out pointer is valid, and the memory registered.
        unsafe { call!(cudaHostGetDevicePointer(&mut device, start.as_ptr().cast(), 0)) }?;
        registered.device = device as u64;
        Ok(registered)
    }

    /// Whether the device knows the operations, which not every one does whose driver has them. Both come together; a wait
    /// that the peer could hold up is not tried here.
    fn try_out(&self) -> Result<()> {
        let stream = Stream::new(self.of)?;
        // SAFETY: the word is in the page, which stays registered until the stream has passed.
        let tried = unsafe { driver::write_value(&stream, self.device + Page::SPARE as u64, 1) };
        stream.synchronize().and(tried)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        teardown::release("cudaHostUnregister", || {
            let _current = CurrentDevice::set(self.of)?;
            // SAFETY: it was registered, and this is its last use.
            unsafe { call!(cudaHostUnregister(self.start.as_ptr().cast())) }
        });
    }
}

const FUNCTION: &str = "cuStreamWaitValue32";

/// Refuses what must not use a session: a forked child, in which a lock may be held by a thread that is not there, and a
/// host function.
pub(super) fn reachable() -> Result<()> {
    teardown::reachable(FUNCTION)
}

/// Refuses streams that a session cannot use from its own thread, or that would put the hand-over into a graph.
pub(super) fn usable(stream: &Stream) -> Result<()> {
    if stream.raw() == sys::cudaStreamPerThread {
        let why = "a per-thread stream cannot be used to share memory: other threads cannot reach it";
        return Err(Error::refused(ErrorKind::WrongThread, FUNCTION, why));
    }
    let _current = stream.enter(FUNCTION)?;
    stream.refuse_capture(FUNCTION, "a buffer cannot be handed over in a graph")
}
