//! What one process hands to another: pools, pointers, events.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

use cuda_mempool_sys::{
    cudaEventDisableTiming, cudaEventInterprocess, cudaIpcEventHandle_t, cudaMemPoolPtrExportData, cudaMemPool_t,
};

use super::fact::Skip;
use super::guards::{Event, Stream};
use super::link::Link;
use super::pool::Pool;
use super::words::FD;

/// The pool as a file descriptor, which is closed with the guard.
#[track_caller]
pub fn export_pool(pool: &Pool) -> OwnedFd {
    let mut fd: c_int = -1;
    ok!(cudaMemPoolExportToShareableHandle(std::ptr::from_mut(&mut fd).cast(), pool.raw(), FD, 0));
    assert!(fd >= 0);
    // SAFETY: the runtime has just opened it for the caller.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

#[track_caller]
pub fn import_pool(fd: BorrowedFd<'_>) -> Pool {
    let mut pool: cudaMemPool_t = null_mut();
    ok!(cudaMemPoolImportFromShareableHandle(&mut pool, fd_as_handle(fd.as_raw_fd()), FD, 0));
    Pool::from_raw(pool)
}

/// A file descriptor the way an import takes it: as the value of a pointer.
pub fn fd_as_handle(fd: c_int) -> *mut c_void {
    fd as isize as *mut c_void
}

#[track_caller]
pub fn export_pointer(pointer: *mut c_void) -> cudaMemPoolPtrExportData {
    let mut data = cudaMemPoolPtrExportData { reserved: [0; 64] };
    ok!(cudaMemPoolExportPointer(&mut data, pointer));
    data
}

#[track_caller]
pub fn import_pointer(pool: &Pool, data: &cudaMemPoolPtrExportData) -> *mut c_void {
    let (mut pointer, mut data) = (null_mut(), *data);
    ok!(cudaMemPoolImportPointer(&mut pointer, pool.raw(), &mut data));
    pointer
}

/// An event for other processes.
#[track_caller]
pub fn interprocess_event() -> Event {
    Event::with_flags(cudaEventDisableTiming | cudaEventInterprocess)
}

#[track_caller]
pub fn event_handle(event: &Event) -> cudaIpcEventHandle_t {
    let mut handle = cudaIpcEventHandle_t { reserved: [0; 64] };
    ok!(cudaIpcGetEventHandle(&mut handle, event.raw()));
    handle
}

#[track_caller]
pub fn open_event(handle: cudaIpcEventHandle_t) -> Event {
    let mut event = null_mut();
    ok!(cudaIpcOpenEventHandle(&mut event, handle));
    Event::from_raw(event)
}

/// A page of memory that processes share.
pub struct Page {
    file: OwnedFd,
    address: *mut c_void,
}

pub const PAGE: usize = 4096;

impl Page {
    pub fn new() -> Self {
        // SAFETY: the name is a C string; a descriptor that is returned is the caller's.
        let file = unsafe {
            let fd = libc::memfd_create(c"page".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
            assert!(fd >= 0, "memfd_create: {}", std::io::Error::last_os_error());
            OwnedFd::from_raw_fd(fd)
        };
        File::from(file.try_clone().expect("a duplicate")).set_len(PAGE as u64).expect("room for a page");
        Self::map(file)
    }

    fn map(file: OwnedFd) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping takes the place of no other.
        let address = unsafe { libc::mmap(null_mut(), PAGE, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert!(address != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        Self { file, address }
    }

    pub fn address(&self) -> *mut c_void {
        self.address
    }

    /// From now on it can be written where it is mapped already, and nobody can take its memory away.
    pub fn seal(&self) -> Result<(), Skip> {
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_FUTURE_WRITE;
        // SAFETY: works on an open descriptor.
        if unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
            return Skip::because("this system cannot seal shared memory against future writes");
        }
        Ok(())
    }

    /// Gives the page's memory back to the system, if it lets that be done.
    pub fn make_hole(&self) -> std::io::Result<()> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: works on an open descriptor.
        match unsafe { libc::fallocate(self.file.as_raw_fd(), mode, 0, PAGE as i64) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map`, and nothing refers to it any more.
        unsafe { libc::munmap(self.address, PAGE) };
    }
}

impl Link {
    pub fn send_pool(&mut self, pool: &Pool) {
        self.send_fd(export_pool(pool).as_fd());
    }

    #[track_caller]
    pub fn receive_pool(&mut self) -> Pool {
        import_pool(self.receive_fd().as_fd())
    }

    pub fn send_pointer(&mut self, pointer: *mut c_void) {
        self.send(&export_pointer(pointer).reserved);
    }

    pub fn receive_pointer_data(&mut self) -> cudaMemPoolPtrExportData {
        cudaMemPoolPtrExportData { reserved: self.receive().try_into().expect("64 bytes") }
    }

    pub fn send_event(&mut self, event: &Event) {
        self.send(&event_handle(event).reserved.map(|byte| byte as u8));
    }

    #[track_caller]
    pub fn receive_event(&mut self) -> Event {
        let bytes: [u8; 64] = self.receive().try_into().expect("64 bytes");
        open_event(cudaIpcEventHandle_t { reserved: bytes.map(|byte| byte as _) })
    }

    pub fn send_page(&mut self, page: &Page) {
        self.send_fd(page.file.as_fd());
    }

    pub fn receive_page(&mut self) -> Page {
        Page::map(self.receive_fd())
    }
}

/// What an importer was handed: a pool, and one pointer of it.
pub struct Imported {
    pub stream: Stream,
    pub pool: Pool,
    pub data: cudaMemPoolPtrExportData,
    pub pointer: *mut c_void,
}

impl Imported {
    /// Imports what [`Link::send_pool`] and [`Link::send_pointer`] sent.
    #[track_caller]
    pub fn receive(link: &mut Link) -> Self {
        let pool = link.receive_pool();
        let data = link.receive_pointer_data();
        let pointer = import_pointer(&pool, &data);
        Self { stream: Stream::new(), pool, data, pointer }
    }

    /// The first bytes of the memory.
    #[track_caller]
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        copied_from(self.pointer, &self.stream)
    }

    #[track_caller]
    pub fn free(&self) {
        ok!(cudaFreeAsync(self.pointer, self.stream.raw()));
        self.stream.synchronize();
    }
}

/// The first bytes of memory that a stream reaches.
#[track_caller]
pub fn copied_from<const N: usize>(pointer: *mut c_void, stream: &Stream) -> [u8; N] {
    let mut bytes = [0; N];
    let to = bytes.as_mut_ptr().cast();
    ok!(cudaMemcpyAsync(to, pointer, N, cuda_mempool_sys::cudaMemcpyKind::cudaMemcpyDefault, stream.raw()));
    stream.synchronize();
    bytes
}
