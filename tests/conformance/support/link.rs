//! A socket between two processes of the suite: frames of bytes, and file descriptors.

use std::io::{self, Read, Write};
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::time::Duration;

/// One end. A peer that says nothing for too long is an error, as is one that has gone.
pub struct Link(UnixStream);

/// What a peer sends instead of anything else when an assertion of its role failed; the text of it follows.
pub const FAILED: &[u8] = b"failed";

const PATIENCE: Duration = Duration::from_secs(40);

impl Link {
    pub fn new(socket: UnixStream) -> Self {
        let link = Self(socket);
        link.set_patience(PATIENCE);
        link
    }

    /// How long the peer may say nothing.
    pub fn set_patience(&self, patience: Duration) {
        self.0.set_read_timeout(Some(patience)).expect("the timeout is not zero");
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("the peer reads");
    }

    #[track_caller]
    pub fn receive(&mut self) -> Vec<u8> {
        let bytes = self.try_receive().expect("the peer answers");
        if bytes == FAILED {
            let text = self.try_receive().unwrap_or_default();
            panic!("in the peer: {}", String::from_utf8_lossy(&text));
        }
        bytes
    }

    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).expect("a short frame");
        self.0.write_all(&length.to_ne_bytes())?;
        self.0.write_all(bytes)
    }

    pub fn try_receive(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; size_of::<u32>()];
        self.0.read_exact(&mut length)?;
        let mut bytes = vec![0; u32::from_ne_bytes(length) as usize];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Tells the peer that a step is done.
    pub fn signal(&mut self) {
        self.send(b"done");
    }

    /// Waits for the peer's [`signal`](Self::signal).
    pub fn wait(&mut self) {
        assert_eq!(self.receive(), b"done");
    }

    /// Sends a duplicate of a file descriptor.
    pub fn send_fd(&mut self, fd: BorrowedFd<'_>) {
        let mut byte = [0u8];
        let mut control = Control::empty();
        let mut part = io_slice(&mut byte);
        let message = message(&mut part, &mut control);
        // SAFETY: the control buffer has room for one header and one descriptor, and `message` points to it.
        let sent = unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
            libc::CMSG_DATA(header).cast::<i32>().write_unaligned(fd.as_raw_fd());
            libc::sendmsg(self.0.as_raw_fd(), &message, 0)
        };
        assert_eq!(sent, 1, "sendmsg: {}", io::Error::last_os_error());
    }

    pub fn receive_fd(&mut self) -> OwnedFd {
        let mut byte = [0u8];
        let mut control = Control::empty();
        let mut part = io_slice(&mut byte);
        let mut message = message(&mut part, &mut control);
        // SAFETY: the buffers that `message` points to live through the call.
        let received = unsafe { libc::recvmsg(self.0.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
        assert_eq!(received, 1, "recvmsg: {}", io::Error::last_os_error());
        // SAFETY: the kernel has filled in the control buffer; a descriptor that it passes is owned by the receiver.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            assert!(!header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS, "the peer sends a file descriptor");
            OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<i32>().read_unaligned())
        }
    }
}

/// Room for one file descriptor, aligned as a control header must be.
#[repr(C)]
union Control {
    header: libc::cmsghdr,
    bytes: [u8; 64],
}

impl Control {
    fn empty() -> Self {
        Self { bytes: [0; 64] }
    }
}

fn io_slice(byte: &mut [u8; 1]) -> libc::iovec {
    libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() }
}

fn message(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: all zeroes are a valid message header.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = ptr::from_mut(control).cast();
    // SAFETY: only computes a length.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<i32>() as u32) } as _;
    message
}
