//! Memory of the kernel: mapped on a node, taken from the system by several threads at once, and registered with CUDA.

use std::io;
use std::mem::ManuallyDrop;
use std::ptr::{null_mut, NonNull};
use std::thread;

use cuda_mempool_sys as sys;

use super::pool_source::relaxed;
use super::way::round_up;
use crate::current::CurrentDevice;
use crate::error::call;
use crate::{teardown, Device, Error, ErrorKind, Location, Result};

const REGISTER: &str = "cudaHostRegister";
const UNREGISTER: &str = "cudaHostUnregister";

/// What the kernel takes at once where it may, in bytes.
const HUGE_PAGE: usize = 2 << 20;

/// The smallest page that a kernel has.
const PAGE: usize = 4096;

/// Bytes that are worth a thread of their own.
const SHARE: usize = 32 << 20;

/// More have not been measured to be faster.
const MAX_THREADS: usize = 16;

/// Pinned memory that every device reaches. Given back when dropped.
pub(super) struct Mapping {
    mapped: ManuallyDrop<Mapped>,
    device: Device,
}

impl Mapping {
    /// Of `len` bytes, a multiple of a huge page's. It is registered in the context of `device`, for all devices.
    pub(super) fn new(len: usize, place: Location, device: Device) -> Result<Self> {
        let _relaxed = relaxed(REGISTER)?;
        let _current = CurrentDevice::set(device)?;
        teardown::watch_forks();
        let mapped = Mapped::new(len)?;
        mapped.put(place)?;
        // Smaller pages do as well, only slower.
        mapped.advise(libc::MADV_HUGEPAGE);
        // A forked child is not to have pages that a device may write.
        mapped.advise(libc::MADV_DONTFORK);
        mapped.populate();
        let flags = sys::cudaHostRegisterPortable | sys::cudaHostRegisterMapped;
        // SAFETY: the memory is mapped, and stays so until it is unregistered.
        unsafe { call!(cudaHostRegister(mapped.start().as_ptr().cast(), len, flags)) }?;
        Ok(Self { mapped: ManuallyDrop::new(mapped), device })
    }

    /// Refuses a place of which no memory can be had.
    pub(super) fn require_place(place: Location) -> Result<()> {
        Mapped::new(HUGE_PAGE)?.put(place)
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.mapped.start()
    }

    pub(super) fn len(&self) -> usize {
        self.mapped.len
    }

    /// Gives it back. On failure it stays as it is.
    pub(super) fn close(self) -> Result<(), (Self, Error)> {
        let mut this = ManuallyDrop::new(self);
        let answer = teardown::try_release(UNREGISTER, || this.release());
        answer.map_err(|error| (ManuallyDrop::into_inner(this), error))
    }

    fn release(&mut self) -> Result<()> {
        let _relaxed = relaxed(UNREGISTER)?;
        let _current = CurrentDevice::set(self.device)?;
        // SAFETY: it was registered when it was made, and is not used any more.
        unsafe { call!(cudaHostUnregister(self.start().as_ptr().cast())) }?;
        // SAFETY: the value ends here, by `close` or by its own drop.
        unsafe { ManuallyDrop::drop(&mut self.mapped) };
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        teardown::release(UNREGISTER, || self.release());
    }
}

/// Memory before it is registered, or after.
struct Mapped {
    /// All that was mapped: a huge page more than is used, from the first one on that is whole.
    whole: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its memory, and nothing in it belongs to a thread.
unsafe impl Send for Mapped {}

impl Mapped {
    fn new(len: usize) -> Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let room = len.saturating_add(HUGE_PAGE);
        // SAFETY: the kernel chooses where, so nothing else is there.
        let whole = unsafe { libc::mmap(null_mut(), room, protection, flags, -1, 0) };
        if whole == libc::MAP_FAILED {
            let why = format!("the system has no {len} bytes: {}", io::Error::last_os_error());
            return Err(Error::refused(ErrorKind::OutOfMemory, REGISTER, why));
        }
        // SAFETY: without being told to, the system maps nothing at address zero.
        Ok(Self { whole: unsafe { NonNull::new_unchecked(whole.cast()) }, len })
    }

    fn start(&self) -> NonNull<u8> {
        let offset = (self.whole.as_ptr() as usize).wrapping_neg() & (HUGE_PAGE - 1);
        // SAFETY: a huge page more is mapped than is used.
        unsafe { NonNull::new_unchecked(self.whole.as_ptr().add(offset)) }
    }

    /// Has the pages come from a node, and from no other.
    fn put(&self, place: Location) -> Result<()> {
        const BITS: usize = usize::BITS as usize;
        let Location::HostNuma(node) = place else { return Ok(()) };
        let node = node as usize;
        let mut nodes = [0_usize; 1024 / BITS];
        let Some(word) = nodes.get_mut(node / BITS) else { return Err(no_node(node, "no kernel has so many")) };
        *word = 1 << (node % BITS);
        // The kernel takes one off the number of bits.
        let bits = nodes.len() * BITS + 1;
        // SAFETY: the range is mapped, and the mask has so many bits.
        let answer = unsafe {
            let (start, len) = (self.start().as_ptr(), self.len);
            libc::syscall(libc::SYS_mbind, start, len, libc::MPOL_BIND, nodes.as_ptr(), bits, 0_usize)
        };
        if answer == 0 {
            return Ok(());
        }
        Err(no_node(node, &format!("mbind answers: {}", io::Error::last_os_error())))
    }

    fn advise(&self, advice: libc::c_int) {
        // SAFETY: the range is mapped, and the advice changes no contents.
        unsafe { libc::madvise(self.start().as_ptr().cast(), self.len, advice) };
    }

    /// Takes the pages from the system, which clears them first: most of the work, and done by several threads.
    fn populate(&self) {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let share = round_up(self.len.div_ceil(threads), HUGE_PAGE).max(SHARE);
        let start = self.start().as_ptr() as usize;
        let shares = (0..self.len).step_by(share).map(|from| start + from..start + self.len.min(from + share));
        thread::scope(|scope| {
            for pages in shares {
                let touch = move || {
                    for page in pages.step_by(PAGE) {
                        // SAFETY: the page is part of the mapping, which nobody else knows of yet.
                        unsafe { (page as *mut u8).write_volatile(0) };
                    }
                };
                // Without a thread, the kernel takes the pages when they are registered.
                let _ = thread::Builder::new().spawn_scoped(scope, touch);
            }
        });
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: this much was mapped there, and nobody uses it any more.
        unsafe { libc::munmap(self.whole.as_ptr().cast(), self.len + HUGE_PAGE) };
    }
}

fn no_node(node: usize, why: &str) -> Error {
    Error::unsupported(REGISTER, format!("memory of NUMA node {node} of the host: {why}"))
}
