//! A second process: this test program once more, in another role.

#![allow(dead_code)] // not every test program uses all of it

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

const ROLE: &str = "CUDART_SIM_TEST_ROLE";
const SOCKET: &str = "CUDART_SIM_TEST_SOCKET";

/// The other process, seen from the test.
pub struct Peer {
    child: Child,
    pub socket: Socket,
}

/// The way to the other process.
pub struct Socket(UnixStream);

impl Peer {
    /// Starts this program again so that its test `role` calls [`as_peer`].
    pub fn start(role: &str) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        // SAFETY: the descriptor is open; the child shall have it.
        assert_eq!(unsafe { libc::fcntl(theirs.as_raw_fd(), libc::F_SETFD, 0) }, 0);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", role, "--nocapture"])
            .env(ROLE, role)
            .env(SOCKET, theirs.as_raw_fd().to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child, socket: Socket(ours) }
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end. Gives what it said on standard error too.
    pub fn end(mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap(), said)
    }

    /// Waits for its good end.
    #[track_caller]
    pub fn join(self) {
        let (status, said) = self.end();
        assert!(status.success(), "the peer ended with {status} (signal {:?}): {said}", status.signal());
    }
}

impl Socket {
    pub fn send<const N: usize>(&mut self, bytes: [u8; N]) {
        self.0.write_all(&bytes).unwrap();
    }

    pub fn receive<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).expect("the other process has ended");
        bytes
    }

    /// Sends an open file.
    pub fn send_fd(&self, fd: i32) {
        let mut control = [0_u64; 8];
        let (mut byte, mut message) = (b'f', message(&mut control));
        let mut io = libc::iovec { iov_base: std::ptr::addr_of_mut!(byte).cast(), iov_len: 1 };
        message.msg_iov = &mut io;
        // SAFETY: the message, its byte and its control room are valid for the call.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(header).cast::<i32>().write_unaligned(fd);
            assert_eq!(libc::sendmsg(self.0.as_raw_fd(), &message, 0), 1);
        }
    }

    /// Receives an open file.
    pub fn receive_fd(&self) -> i32 {
        let mut control = [0_u64; 8];
        let (mut byte, mut message) = (0_u8, message(&mut control));
        let mut io = libc::iovec { iov_base: std::ptr::addr_of_mut!(byte).cast(), iov_len: 1 };
        message.msg_iov = &mut io;
        // SAFETY: the message, its byte and its control room are valid for the call; the sender sent one descriptor.
        unsafe {
            assert_eq!(libc::recvmsg(self.0.as_raw_fd(), &mut message, 0), 1);
            let header = libc::CMSG_FIRSTHDR(&message);
            assert!(!header.is_null());
            libc::CMSG_DATA(header).cast::<i32>().read_unaligned()
        }
    }
}

fn message(control: &mut [u64; 8]) -> libc::msghdr {
    // SAFETY: a message of zeroes is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: only computes a length.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(4) } as _;
    message
}

/// Runs the body if this process was started for the role; does nothing in an ordinary test run.
pub fn as_peer(role: &str, body: impl FnOnce(Socket)) {
    if std::env::var(ROLE).as_deref() == Ok(role) {
        let fd = std::env::var(SOCKET).unwrap().parse().unwrap();
        // SAFETY: the starter left the descriptor open for this process alone.
        body(Socket(unsafe { UnixStream::from_raw_fd(fd) }));
    }
}
