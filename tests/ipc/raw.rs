//! A peer that says whatever it likes, byte by byte, in this same process.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, AtomicU8, Ordering};

use cuda_mempool::ipc::protocol::frame::{Body, Frame, Fresh, Hello, Lend, Place, Turn, LENGTH};
use cuda_mempool::ipc::protocol::nonce::Nonce;
use cuda_mempool::ipc::PointerExport;
use cuda_mempool::MemPool;

use crate::world::device;

/// As long as the page of a session.
const PAGE: u64 = 4096 * 16;
pub const SLOTS: u32 = 4096;

pub struct RawPeer {
    pub socket: UnixStream,
    pub nonce: Nonce,
    pub sequence: u64,
}

impl RawPeer {
    /// With the socket for the victim.
    pub fn new() -> (Self, UnixStream) {
        let (socket, theirs) = UnixStream::pair().expect("a pair");
        (Self { socket, nonce: Nonce([0x77; 16]), sequence: 0 }, theirs)
    }

    pub fn frame(&mut self, body: Body) -> [u8; LENGTH] {
        let frame = Frame { sequence: self.sequence, sender: self.nonce, body };
        self.sequence += 1;
        frame.encode()
    }

    /// Says a frame, with these descriptors. A victim that has hung up is no failure.
    pub fn say(&mut self, body: Body, fds: &[OwnedFd]) {
        let bytes = self.frame(body);
        self.send(&bytes, fds);
    }

    pub fn send(&mut self, bytes: &[u8], fds: &[OwnedFd]) {
        if fds.is_empty() {
            let _ = (&self.socket).write_all(bytes);
            return;
        }
        let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let size = std::mem::size_of_val(raw.as_slice()) as u32;
        let mut control = vec![0_u64; 128];
        let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: the header describes buffers that live through the call, with room for the descriptors.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size) as _;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size) as _;
            std::ptr::copy_nonoverlapping(raw.as_ptr(), libc::CMSG_DATA(header).cast(), raw.len());
            libc::sendmsg(self.socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL);
        }
    }

    /// Greets as an exporter of this pool would.
    pub fn greet(&mut self, pool: &MemPool) {
        self.say(hello(), &[page(PAGE, SEALS)]);
        self.say(Body::Pool { origin: self.nonce, number: 1 }, &[pool.export_fd().expect("a descriptor")]);
    }

    /// The next frame of the victim, which comes with a descriptor.
    pub fn heard_with_fd(&mut self) -> (Body, OwnedFd) {
        let (mut bytes, mut control) = ([0; LENGTH], [0_u64; 8]);
        let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: LENGTH };
        // SAFETY: the header describes buffers that live through the call; the descriptor that the kernel makes is owned.
        let fd = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = std::mem::size_of_val(&control) as _;
            let read = libc::recvmsg(self.socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC | libc::MSG_WAITALL);
            assert_eq!(read, LENGTH as isize);
            let header = libc::CMSG_FIRSTHDR(&message);
            assert!(!header.is_null(), "no descriptor came");
            OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned())
        };
        (Frame::decode(&bytes).expect("a good frame").body, fd)
    }

    /// What the victim has said so far, without the descriptors.
    pub fn heard(&mut self) -> Vec<Body> {
        self.socket.set_nonblocking(true).expect("a flag");
        let mut bytes = Vec::new();
        let _ = (&self.socket).read_to_end(&mut bytes);
        self.socket.set_nonblocking(false).expect("a flag");
        let frames = bytes.chunks_exact(LENGTH).map(|bytes| bytes.try_into().expect("a chunk"));
        frames.map(|bytes| Frame::decode(bytes).expect("a good frame").body).collect()
    }
}

pub const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

pub fn good_page() -> OwnedFd {
    page(PAGE, SEALS)
}

/// A memory file of this length, with these seals.
pub fn page(length: u64, seals: i32) -> OwnedFd {
    // SAFETY: the name is a C string, and the descriptor is made for us.
    let fd = unsafe {
        let fd = libc::memfd_create(c"a page".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        assert!(fd >= 0);
        OwnedFd::from_raw_fd(fd)
    };
    File::from(fd.try_clone().expect("a descriptor")).set_len(length).expect("it grows");
    // SAFETY: works on an open descriptor.
    assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
    fd
}

/// Shared memory of a session, mapped as a peer would, before nobody can any more.
pub struct Scribbler {
    start: *mut u8,
    fd: OwnedFd,
}

impl Scribbler {
    pub fn new(page: &OwnedFd) -> Self {
        let fd = page.try_clone().expect("a descriptor");
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), PAGE as usize, access, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Self { start: start.cast(), fd }
    }

    /// Writes somewhere in the page.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= PAGE as usize);
        for (index, &byte) in bytes.iter().enumerate() {
            // SAFETY: within the mapping. The victim uses it by atomics, and so does this.
            unsafe { AtomicU8::from_ptr(self.start.add(offset + index)) }.store(byte, Ordering::Release);
        }
    }

    /// Writes a whole word, at once.
    pub fn write_word(&self, offset: usize, word: u32) {
        assert!(offset + 4 <= PAGE as usize && offset % 4 == 0);
        // SAFETY: as above, and aligned.
        unsafe { AtomicU32::from_ptr(self.start.add(offset).cast()) }.store(word, Ordering::Release);
    }

    /// Tries to make a hole in the memory, in either way that there is. Says whether that could be done.
    pub fn make_hole(&self) -> bool {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: works on an open descriptor, and on a mapping of this process.
        unsafe {
            libc::fallocate(self.fd.as_raw_fd(), mode, 0, PAGE as i64) == 0
                || libc::madvise(self.start.cast(), PAGE as usize, libc::MADV_REMOVE) == 0
        }
    }

    /// Whether the victim has closed the page to others.
    pub fn is_closed(&self) -> bool {
        // SAFETY: works on an open descriptor.
        unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_GET_SEALS) & libc::F_SEAL_FUTURE_WRITE != 0 }
    }
}

impl Drop for Scribbler {
    fn drop(&mut self) {
        // SAFETY: it was mapped, and is not used again.
        unsafe { libc::munmap(self.start.cast(), PAGE as usize) };
    }
}

pub fn null() -> OwnedFd {
    File::open("/dev/null").expect("/dev/null").into()
}

pub fn socket() -> OwnedFd {
    UnixStream::pair().expect("a pair").0.into()
}

pub fn hello() -> Body {
    Body::Hello(Hello { slots: SLOTS, place: Place::Device(device().uuid().expect("a UUID")) })
}

/// The first hand-over of a buffer.
pub fn lend(export: &PointerExport) -> Lend {
    Lend {
        turn: Turn { slot: 0, generation: 2 },
        element: 1,
        offset: export.offset as u64,
        bytes: export.bytes as u64,
        tag: 0,
        fresh: Some(Fresh { passing: false, range: (export.offset + export.bytes) as u64, blob: export.blob }),
    }
}

/// Small, seeded, the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// The descriptor of a dead end: a socket whose other end is closed.
pub fn dead() -> OwnedFd {
    UnixStream::pair().expect("a pair").0.into()
}

/// A sign of life that lasts.
pub fn alive() -> OwnedFd {
    // SAFETY: makes a descriptor.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: it was just made for us.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
