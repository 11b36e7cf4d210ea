//! A peer that says whatever it likes, byte by byte, in this same process.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

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

pub const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

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

/// The descriptor of a dead end: a pipe whose other end is closed.
pub fn dead() -> OwnedFd {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    drop(theirs);
    ours.as_fd().try_clone_to_owned().expect("a descriptor")
}
