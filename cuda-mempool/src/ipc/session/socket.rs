//! Frames and descriptors over the caller's socket.
//!
//! Nothing here waits, except [`wait`]. The socket's own flags are left as they are.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::frame::LENGTH;
use super::violation::Violation;

/// As many descriptors as are taken at once: the kernel closes the rest, and says so.
const FDS: usize = 4;
// SAFETY: computes a size.
const CONTROL: usize = unsafe { libc::CMSG_SPACE((FDS * size_of::<RawFd>()) as u32) } as usize;

/// Aligned as control messages have to be.
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// What could be read.
#[derive(Debug)]
pub(super) enum Received {
    /// A frame, with the descriptor that came with it.
    Frame([u8; LENGTH], Option<OwnedFd>),
    /// Not a whole frame yet.
    Nothing,
    /// The other end is closed, or its process is gone.
    Closed,
}

/// The reading half: a frame may come in pieces.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: [u8; LENGTH],
    filled: usize,
    fd: Option<OwnedFd>,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self { bytes: [0; LENGTH], filled: 0, fd: None }
    }

    /// Reads what is there, at most to the end of a frame.
    ///
    /// Every descriptor that comes is owned at once, so none can leak.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<Received, ReceiveError> {
        loop {
            let mut fds = Fds { list: Default::default(), count: 0 };
            let read = match receive_some(socket, &mut self.bytes[self.filled..], &mut fds) {
                Ok(read) => read,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
                    io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => return Ok(Received::Closed),
                    _ => return Err(ReceiveError::Io(error)),
                },
            };
            if fds.count > 0 {
                let found = fds.count + usize::from(self.fd.is_some());
                if found > 1 {
                    return Err(ReceiveError::Violation(Violation::Descriptors { expected: 1, found }));
                }
                self.fd = fds.list[0].take();
            }
            if read == 0 {
                return Ok(Received::Closed);
            }
            self.filled += read;
            if self.filled == LENGTH {
                self.filled = 0;
                return Ok(Received::Frame(self.bytes, self.fd.take()));
            }
        }
    }

    /// Looks at the next frame, if it is there as a whole, and leaves it.
    pub(super) fn peek(&self, socket: BorrowedFd<'_>) -> Option<[u8; LENGTH]> {
        let mut bytes = self.bytes;
        let room = &mut bytes[self.filled..];
        // SAFETY: the buffer has the length that is given. Without room for control messages no descriptor is made.
        let read = unsafe {
            libc::recv(socket.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), libc::MSG_PEEK | libc::MSG_DONTWAIT)
        };
        (read == room.len() as isize).then_some(bytes)
    }
}

/// Why nothing can be read any more.
#[derive(Debug)]
pub(super) enum ReceiveError {
    Io(io::Error),
    Violation(Violation),
}

struct Fds {
    list: [Option<OwnedFd>; FDS],
    count: usize,
}

fn receive_some(socket: BorrowedFd<'_>, bytes: &mut [u8], fds: &mut Fds) -> io::Result<usize> {
    let mut control = Control([0; CONTROL]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zeroes are a valid message header.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL as _;
    // SAFETY: the header describes buffers that live through the call.
    let read = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) };
    if read < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled the control buffer to the length in the header.
    unsafe { take_fds(&message, fds) };
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        fds.count += 1;
    }
    Ok(read as usize)
}

/// # Safety
/// `message` must have been filled by `recvmsg`, and its control buffer be alive.
unsafe fn take_fds(message: &libc::msghdr, fds: &mut Fds) {
    // SAFETY: the caller's promise, for this and the steps below.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: not null, so a header within the control buffer.
        let header = unsafe { &*next };
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: computes a size.
            let data = header.cmsg_len as usize - unsafe { libc::CMSG_LEN(0) } as usize;
            for index in 0..data / size_of::<RawFd>() {
                // SAFETY: within the data of this header, which are descriptors that the kernel just made for us.
                let fd =
                    unsafe { OwnedFd::from_raw_fd(libc::CMSG_DATA(next).cast::<RawFd>().add(index).read_unaligned()) };
                if let Some(place) = fds.list.get_mut(fds.count) {
                    *place = Some(fd);
                }
                fds.count += 1;
            }
        }
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
}

/// What became of bytes to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// So many are on their way.
    Bytes(usize),
    /// The other end is closed, or its process is gone.
    Closed,
}

/// Sends what the socket takes, with a descriptor if there is one. A full socket takes nothing.
pub(super) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<Sent> {
    let mut control = Control([0; CONTROL]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeroes are a valid message header.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    if let Some(fd) = fd {
        let size = size_of::<RawFd>() as u32;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: the control buffer has room for one header with one descriptor, and is aligned for it.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(size) as _;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size) as _;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd.as_raw_fd());
        }
    }
    loop {
        // SAFETY: the header describes buffers that live through the call, which does not write to them.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
        if sent >= 0 {
            return Ok(Sent::Bytes(sent as usize));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => return Ok(Sent::Bytes(0)),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected => {
                return Ok(Sent::Closed)
            }
            _ => return Err(error),
        }
    }
}

/// Waits for `events` on each of `fds`, until `deadline` if there is one. Gives what happened to each; nothing when the
/// time is up.
///
/// Hang-ups are always waited for. A descriptor below zero is left out.
pub(super) fn wait<const N: usize>(fds: [(RawFd, i16); N], deadline: Option<Instant>) -> io::Result<[i16; N]> {
    let mut polled = fds.map(|(fd, events)| libc::pollfd { fd, events, revents: 0 });
    loop {
        let timeout = deadline.map_or(-1, |deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            // Rounded up, so that the time is up when poll says so.
            i32::try_from((left + Duration::from_micros(999)).as_millis()).unwrap_or(i32::MAX)
        });
        // SAFETY: the array has the length that is given.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, timeout) };
        if ready >= 0 {
            return Ok(polled.map(|polled| polled.revents));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn open_fds() -> usize {
        std::fs::read_dir("/proc/self/fd").expect("Linux has it").count()
    }

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().expect("a socket pair")
    }

    fn null() -> OwnedFd {
        std::fs::File::open("/dev/null").expect("/dev/null").into()
    }

    fn receive(inbox: &mut Inbox, socket: &UnixStream) -> Result<Received, ReceiveError> {
        inbox.receive(socket.as_fd())
    }

    #[test]
    fn a_frame_comes_whole_or_in_pieces() {
        let (mut ours, theirs) = pair();
        let mut inbox = Inbox::new();
        let frame: [u8; LENGTH] = std::array::from_fn(|index| index as u8);
        assert!(matches!(receive(&mut inbox, &theirs), Ok(Received::Nothing)));
        for piece in frame.chunks(50) {
            assert!(inbox.peek(theirs.as_fd()).is_none());
            assert!(matches!(receive(&mut inbox, &theirs), Ok(Received::Nothing)));
            ours.write_all(piece).expect("room");
        }
        assert_eq!(inbox.peek(theirs.as_fd()), Some(frame));
        assert!(matches!(receive(&mut inbox, &theirs), Ok(Received::Frame(bytes, None)) if bytes == frame));
        ours.write_all(&[frame, frame].concat()).expect("room");
        drop(ours);
        assert!(matches!(receive(&mut inbox, &theirs), Ok(Received::Frame(bytes, None)) if bytes == frame));
        assert!(matches!(receive(&mut inbox, &theirs), Ok(Received::Frame(bytes, None)) if bytes == frame));
        assert!(matches!(receive(&mut inbox, &theirs), Ok(Received::Closed)));
    }

    #[test]
    fn a_descriptor_comes_with_its_frame_and_closes_on_exec() {
        let (ours, theirs) = pair();
        let fd = null();
        assert_eq!(send(ours.as_fd(), &[1; LENGTH], Some(fd.as_fd())).ok(), Some(Sent::Bytes(LENGTH)));
        assert_eq!(send(ours.as_fd(), &[2; LENGTH], None).ok(), Some(Sent::Bytes(LENGTH)));
        let mut inbox = Inbox::new();
        // To look does not take the descriptor.
        assert!(inbox.peek(theirs.as_fd()).is_some());
        let Ok(Received::Frame(_, Some(got))) = receive(&mut inbox, &theirs) else { panic!("no descriptor") };
        // SAFETY: asks for the flags of an open descriptor.
        assert_eq!(unsafe { libc::fcntl(got.as_raw_fd(), libc::F_GETFD) }, libc::FD_CLOEXEC);
        assert!(matches!(receive(&mut inbox, &theirs), Ok(Received::Frame(_, None))));
    }

    /// Sends one byte with `count` descriptors.
    fn send_fds(socket: &UnixStream, count: usize) {
        let fds: Vec<OwnedFd> = (0..count).map(|_| null()).collect();
        let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let mut byte = [7_u8];
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let size = (count * size_of::<RawFd>()) as u32;
        let mut control = vec![0_u64; 64];
        // SAFETY: the header and the control buffer live through the call, and the buffer has room for the descriptors.
        unsafe {
            let mut message: libc::msghdr = zeroed();
            message.msg_iov = &mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size) as _;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size) as _;
            std::ptr::copy_nonoverlapping(raw.as_ptr(), libc::CMSG_DATA(header).cast(), count);
            assert_eq!(libc::sendmsg(socket.as_raw_fd(), &message, 0), 1);
        }
    }

    /// The counts of open descriptors must not see those of other tests, so these share one test.
    #[test]
    fn too_many_descriptors_are_an_error_and_none_leaks() {
        let before = open_fds();
        for counts in [&[2][..], &[4], &[20], &[1, 1], &[0, 3]] {
            let (ours, theirs) = pair();
            let mut inbox = Inbox::new();
            let mut outcome = Ok(Received::Nothing);
            for &count in counts {
                match count {
                    0 => (&ours).write_all(&[0]).expect("room"),
                    _ => send_fds(&ours, count),
                }
                outcome = receive(&mut inbox, &theirs);
            }
            assert!(
                matches!(outcome, Err(ReceiveError::Violation(Violation::Descriptors { found, .. })) if found > 1),
                "{counts:?}: {outcome:?}"
            );
        }
        // Never read at all: the kernel closes them with the socket.
        let (ours, theirs) = pair();
        send_fds(&ours, 3);
        drop((ours, theirs));
        // Other tests of this program open a few at the same time.
        let after = open_fds();
        assert!(after < before + 15, "{before} descriptors before, {after} after");
    }

    #[test]
    fn a_full_socket_takes_nothing_and_a_closed_one_says_so() {
        let (ours, theirs) = pair();
        let mut rounds = 0;
        while send(ours.as_fd(), &[0; LENGTH], None).expect("no error") == Sent::Bytes(LENGTH) {
            rounds += 1;
        }
        assert!(rounds > 0);
        assert_eq!(send(ours.as_fd(), &[0; LENGTH], None).ok(), Some(Sent::Bytes(0)));
        let soon = Some(Instant::now() + Duration::from_millis(20));
        assert_eq!(wait([(ours.as_raw_fd(), libc::POLLOUT)], soon).ok(), Some([0]));
        assert!(soon <= Some(Instant::now()));
        drop(theirs);
        assert_eq!(send(ours.as_fd(), &[0; LENGTH], None).ok(), Some(Sent::Closed));
        let happened = wait([(ours.as_raw_fd(), 0)], None).expect("no error");
        assert_ne!(happened[0] & libc::POLLHUP, 0);
    }
}
