//! The semaphores as streams use them.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use cuda_mempool_sys as sys;

use super::page::{Page, Word};
use crate::current::CurrentDevice;
use crate::error::call;
use crate::ipc::driver::{self, DevicePointer};
use crate::{teardown, Device, Error, ErrorKind, Result, Stream};

/// The page, and how this machine lets streams reach it.
///
/// Where streams can write and wait for words themselves, they do. Elsewhere a host function writes, and the host waits
/// before it lets a stream go on. Each end decides for itself: the words are the same.
#[derive(Debug)]
pub(super) struct Signals {
    /// Before the page: it is unregistered before it is unmapped.
    registered: Option<Registered>,
    page: Arc<Page>,
    refused: AtomicBool,
}

impl Signals {
    /// `by_host` leaves the stream memory operations unused, also where there are some.
    pub(super) fn new(page: Page, device: Device, by_host: bool) -> Self {
        let usable = !by_host && driver::has_stream_memory_operations();
        let register = || match Registered::new(&page, device) {
            Ok(registered) => Some(registered),
            Err(error) => {
                log::warn!("the hosts keep the order of a session: its page cannot be registered: {error}");
                None
            }
        };
        let registered = if usable { register() } else { None };
        Self { registered, page: Arc::new(page), refused: AtomicBool::new(false) }
    }

    /// Whether streams wait by themselves. If not, the host has to wait until [`has`](Self::has) says yes.
    pub(super) fn on_stream(&self) -> bool {
        self.registered.is_some() && !self.refused.load(Ordering::Relaxed)
    }

    /// Whether the word has come to `value`.
    pub(super) fn has(&self, word: Word, slot: u32, value: u32) -> bool {
        self.page.has(word, slot, value)
    }

    /// Writes the word now, from the host.
    pub(super) fn set(&self, word: Word, slot: u32, value: u32) {
        self.page.set(word, slot, value);
    }

    /// Writes the word when the stream has done what was enqueued so far.
    pub(super) fn write(&self, stream: &Stream, word: Word, slot: u32, value: u32) -> Result<()> {
        if let Some(address) = self.address(word, slot) {
            // SAFETY: the page stays registered until the streams that were given it have passed: see the keeper.
            match unsafe { driver::write_value(stream, address, value) } {
                Err(error) if error.kind() == ErrorKind::Unsupported => self.refused.store(true, Ordering::Relaxed),
                answer => return answer,
            }
        }
        let page = Arc::clone(&self.page);
        stream.launch_host_fn(move || page.set(word, slot, value))
    }

    /// Has the stream wait for the word. Nothing is enqueued where the host has to wait.
    pub(super) fn wait(&self, stream: &Stream, word: Word, slot: u32, value: u32) -> Result<()> {
        let Some(address) = self.address(word, slot) else { return Ok(()) };
        // SAFETY: as in `write`.
        match unsafe { driver::wait_value(stream, address, value) } {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                self.refused.store(true, Ordering::Relaxed);
                Ok(())
            }
            answer => answer,
        }
    }

    fn address(&self, word: Word, slot: u32) -> Option<DevicePointer> {
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        self.registered.as_ref().map(|registered| registered.device + word.offset(slot) as u64)
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

/// Refuses streams that a session cannot use from its own thread, or that would put the hand-over into a graph.
pub(super) fn usable(stream: &Stream) -> Result<()> {
    const FUNCTION: &str = "cuStreamWaitValue32";
    if stream.raw() == sys::cudaStreamPerThread {
        let why = "a per-thread stream cannot be used to share memory: other threads cannot reach it";
        return Err(Error::refused(ErrorKind::WrongThread, FUNCTION, why));
    }
    let _current = stream.enter(FUNCTION)?;
    stream.refuse_capture(FUNCTION, "a buffer cannot be handed over in a graph")
}
