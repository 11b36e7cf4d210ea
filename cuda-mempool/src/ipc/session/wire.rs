//! Frames as the two halves of a session see them: numbered, checked, and never waited for.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::book::Conversation;
use super::frame::{Body, Frame, LENGTH};
use super::nonce::Nonce;
use super::socket::{self, Inbox, ReceiveError, Received, Sent};
use super::violation::Violation;

/// Both directions of one socket.
#[derive(Debug)]
pub(super) struct Wire {
    conversation: Conversation,
    inbox: Inbox,
    /// What the socket has not taken yet.
    outbox: VecDeque<Outgoing>,
}

#[derive(Debug)]
struct Outgoing {
    bytes: [u8; LENGTH],
    sent: usize,
    fd: Option<OwnedFd>,
}

/// What came.
#[derive(Debug)]
pub(super) enum Heard {
    Body(Body, Option<OwnedFd>),
    Nothing,
    Closed,
}

/// Why the wire cannot be used any more.
#[derive(Debug)]
pub enum WireError {
    Io(io::Error),
    Violation(Violation),
    /// The other end is closed.
    Closed,
}

impl Wire {
    pub(super) fn new(own: Nonce) -> Self {
        Self { conversation: Conversation::new(own), inbox: Inbox::new(), outbox: VecDeque::new() }
    }

    /// The next frame, if it is there.
    pub(super) fn hear(&mut self, socket: BorrowedFd<'_>) -> Result<Heard, WireError> {
        let (bytes, fd) = match self.inbox.receive(socket) {
            Ok(Received::Frame(bytes, fd)) => (bytes, fd),
            Ok(Received::Nothing) => return Ok(Heard::Nothing),
            Ok(Received::Closed) => return Ok(Heard::Closed),
            Err(ReceiveError::Io(error)) => return Err(WireError::Io(error)),
            Err(ReceiveError::Violation(violation)) => return Err(WireError::Violation(violation)),
        };
        let frame = Frame::decode(&bytes)
            .and_then(|frame| self.conversation.admit(&frame, fd.is_some()).map(|()| frame))
            .map_err(WireError::Violation)?;
        Ok(Heard::Body(frame.body, fd))
    }

    /// What the next frame says, if it is there as a whole. It is left, and not yet checked.
    pub(super) fn peek(&self, socket: BorrowedFd<'_>) -> Option<Result<Body, Violation>> {
        let bytes = self.inbox.peek(socket)?;
        Some(Frame::decode(&bytes).map(|frame| frame.body))
    }

    /// Sends a frame, or keeps it until the socket takes it.
    pub(super) fn say(&mut self, socket: BorrowedFd<'_>, body: Body, fd: Option<OwnedFd>) -> Result<(), WireError> {
        let bytes = self.conversation.say(body).encode();
        if self.outbox.is_empty() {
            let sent = send(socket, &bytes, fd.as_ref())?;
            if sent == LENGTH {
                return Ok(());
            }
            self.outbox.push_back(Outgoing { bytes, sent, fd: fd.filter(|_| sent == 0) });
        } else {
            self.outbox.push_back(Outgoing { bytes, sent: 0, fd });
        }
        Ok(())
    }

    /// Whether something waits for the socket to have room.
    pub(super) fn has_unsent(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Sends what the socket takes.
    pub(super) fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<(), WireError> {
        while let Some(next) = self.outbox.front_mut() {
            let sent = match send(socket, &next.bytes[next.sent..], next.fd.as_ref()) {
                Err(WireError::Closed) => {
                    // It will not go, however often it is tried.
                    self.outbox.clear();
                    return Err(WireError::Closed);
                }
                sent => sent?,
            };
            if sent == 0 {
                return Ok(());
            }
            next.fd = None;
            next.sent += sent;
            if next.sent == LENGTH {
                self.outbox.pop_front();
            }
        }
        Ok(())
    }
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8], fd: Option<&OwnedFd>) -> Result<usize, WireError> {
    match socket::send(socket, bytes, fd.map(AsFd::as_fd)) {
        Ok(Sent::Bytes(sent)) => Ok(sent),
        Ok(Sent::Closed) => Err(WireError::Closed),
        Err(error) => Err(WireError::Io(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_slow_reader_gets_every_frame_in_order() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (mut sender, mut receiver) = (Wire::new(Nonce([1; 16])), Wire::new(Nonce([2; 16])));
        const FRAMES: usize = 3000;
        for _ in 0..FRAMES {
            let fd = ours.as_fd().try_clone_to_owned().expect("a descriptor");
            sender.say(ours.as_fd(), Body::Life, Some(fd)).expect("kept");
            sender.say(ours.as_fd(), Body::Welcome, None).expect("kept");
        }
        assert!(sender.has_unsent());
        let mut heard = 0;
        while heard < 2 * FRAMES {
            sender.flush(ours.as_fd()).expect("the reader is there");
            while let Heard::Body(body, fd) = receiver.hear(theirs.as_fd()).expect("good frames") {
                assert_eq!((body == Body::Life, body == Body::Welcome), (heard % 2 == 0, heard % 2 == 1));
                assert_eq!(fd.is_some(), body.has_fd());
                heard += 1;
            }
        }
        assert!(!sender.has_unsent());
    }

    #[test]
    fn what_cannot_be_sent_any_more_is_dropped() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut sender = Wire::new(Nonce([1; 16]));
        while !sender.has_unsent() {
            sender.say(ours.as_fd(), Body::Welcome, None).expect("kept");
        }
        theirs.shutdown(std::net::Shutdown::Read).expect("a socket");
        assert!(matches!(sender.flush(ours.as_fd()), Err(WireError::Closed)));
        assert!(!sender.has_unsent(), "nobody waits for room that will not be");
    }
}
