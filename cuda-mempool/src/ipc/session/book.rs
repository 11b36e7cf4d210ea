//! What may be said when: the protocol as plain data, without a socket and without CUDA.
//!
//! A slot stands for one buffer of the exporter. Each hand-over raises its generation by two. The exporter's stream
//! writes the generation to the slot's word `Ready` when the data is there; the importer's stream writes it to `Done`
//! when the buffer is given back, and the generation plus one when the memory is unmapped for good.
//!
//! A wait for a value is enqueued only after the peer has said that the write of that value is enqueued. So no stream
//! waits for something that depends on a host, and streams that wait for each other in a circle cannot come to be.

mod exporter;
mod importer;

pub use exporter::{ExporterBook, ImporterSaid};
pub use importer::{ExporterSaid, ImporterBook};

use super::frame::{Body, Frame, Turn};
use super::nonce::Nonce;
use super::violation::Violation;

/// How much a hand-over raises the generation.
const STEP: u32 = 2;

/// The value of `Done` that says that the memory is unmapped.
pub fn unmapped(turn: Turn) -> u32 {
    turn.generation.wrapping_add(1)
}

/// What makes the frames of one session, in one direction each, a chain: nothing can be replayed, left out or slipped in.
#[derive(Debug)]
pub struct Conversation {
    own: Nonce,
    peer: Option<Nonce>,
    sent: u64,
    heard: u64,
}

impl Conversation {
    pub fn new(own: Nonce) -> Self {
        Self { own, peer: None, sent: 0, heard: 0 }
    }

    /// The frame to send next.
    pub fn say(&mut self, body: Body) -> Frame {
        let sequence = self.sent;
        self.sent += 1;
        Frame { sequence, sender: self.own, body }
    }

    /// Checks all of a frame that is not about its kind.
    pub fn admit(&mut self, frame: &Frame, with_fd: bool) -> Result<(), Violation> {
        if frame.sender == self.own {
            return Err(Violation::OwnProcess);
        }
        if *self.peer.get_or_insert(frame.sender) != frame.sender {
            return Err(Violation::Sender);
        }
        if frame.sequence != self.heard {
            return Err(Violation::Sequence { expected: self.heard, found: frame.sequence });
        }
        if frame.body.has_fd() != with_fd {
            let expected = usize::from(frame.body.has_fd());
            return Err(Violation::Descriptors { expected, found: usize::from(with_fd) });
        }
        self.heard += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Nonce = Nonce([1; 16]);
    const THEIRS: Nonce = Nonce([2; 16]);

    fn frame(sequence: u64, sender: Nonce, body: Body) -> Frame {
        Frame { sequence, sender, body }
    }

    #[test]
    fn frames_are_numbered() {
        let mut talk = Conversation::new(OURS);
        assert_eq!(talk.say(Body::Welcome), frame(0, OURS, Body::Welcome));
        assert_eq!(talk.say(Body::Life), frame(1, OURS, Body::Life));
    }

    #[test]
    fn only_the_next_frame_of_the_same_process_is_admitted() {
        let turn = Turn { slot: 0, generation: 2 };
        let quiet = Body::Retire(turn);
        type Case<'a> = (&'a [Frame], Frame, bool, Result<(), Violation>);
        let cases: [Case<'_>; 8] = [
            (&[], frame(0, THEIRS, quiet.clone()), false, Ok(())),
            (&[], frame(0, OURS, quiet.clone()), false, Err(Violation::OwnProcess)),
            (&[], frame(1, THEIRS, quiet.clone()), false, Err(Violation::Sequence { expected: 0, found: 1 })),
            (&[], frame(0, THEIRS, Body::Life), true, Ok(())),
            (&[], frame(0, THEIRS, Body::Life), false, Err(Violation::Descriptors { expected: 1, found: 0 })),
            (&[], frame(0, THEIRS, quiet.clone()), true, Err(Violation::Descriptors { expected: 0, found: 1 })),
            (
                &[frame(0, THEIRS, quiet.clone())],
                frame(0, THEIRS, quiet.clone()),
                false,
                Err(Violation::Sequence { expected: 1, found: 0 }),
            ),
            (&[frame(0, THEIRS, quiet.clone())], frame(1, Nonce([3; 16]), quiet), false, Err(Violation::Sender)),
        ];
        for (before, frame, with_fd, expected) in cases {
            let mut talk = Conversation::new(OURS);
            before.iter().for_each(|frame| assert_eq!(talk.admit(frame, frame.body.has_fd()), Ok(())));
            assert_eq!(talk.admit(&frame, with_fd), expected, "{frame:?}");
        }
    }
}
