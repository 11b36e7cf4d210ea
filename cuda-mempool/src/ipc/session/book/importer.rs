//! The importer's side of the protocol.

use super::STEP;
use crate::ipc::session::frame::{Body, Farewell, Hello, Lend, Turn};
use crate::ipc::session::nonce::Nonce;
use crate::ipc::session::violation::Violation;

/// What the importer knows of the exporter's slots.
#[derive(Debug)]
pub struct ImporterBook {
    slots: u32,
    stage: Stage,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Greeted,
    Open,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    stand: Stand,
    generation: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// No memory is mapped.
    Unmapped,
    /// The buffer is ours.
    Held,
    /// The memory is mapped, and the buffer is the exporter's.
    Idle,
}

/// What a frame of the exporter means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExporterSaid {
    /// The descriptor is the page.
    Hello(Hello),
    /// The descriptor is the pool.
    Pool {
        /// The process that made it.
        origin: Nonce,
        /// Which of its pools it is.
        number: u64,
    },
    /// The descriptor tells of its life.
    Life,
    /// A buffer is ours.
    Offered(Lend),
    /// The memory is to be unmapped, and the exporter told. It is unmapped in this book.
    Retire(Turn),
    /// It asks for something that was done already.
    Nothing,
    /// It hands over nothing any more.
    Bye(Farewell),
}

impl ImporterBook {
    pub fn new(slots: u32) -> Self {
        Self { slots, stage: Stage::New, entries: Vec::new() }
    }

    /// The buffer goes back. Says whether its memory stays mapped.
    pub fn give_back(&mut self, turn: Turn, mapped: bool) {
        let entry = &mut self.entries[turn.slot as usize];
        debug_assert!(entry.stand == Stand::Held && entry.generation == turn.generation);
        entry.stand = if mapped { Stand::Idle } else { Stand::Unmapped };
    }

    /// Unmaps, of the importer's own accord, all that is not in use: what to say of each.
    pub fn unmap_idle(&mut self) -> Vec<Turn> {
        let mut turns = Vec::new();
        for (slot, entry) in (0_u32..).zip(&mut self.entries) {
            if entry.stand == Stand::Idle {
                entry.stand = Stand::Unmapped;
                turns.push(Turn { slot, generation: entry.generation });
            }
        }
        turns
    }

    /// Takes what the exporter says.
    pub fn accept(&mut self, body: &Body) -> Result<ExporterSaid, Violation> {
        match (self.stage, body) {
            (Stage::New, Body::Hello(hello)) => {
                if hello.slots != self.slots {
                    return Err(Violation::Field("the number of slots"));
                }
                self.stage = Stage::Greeted;
                Ok(ExporterSaid::Hello(*hello))
            }
            (Stage::New, _) => Err(Violation::OutOfTurn("a frame before the greeting")),
            (Stage::Greeted, &Body::Pool { origin, number }) => {
                self.stage = Stage::Open;
                Ok(ExporterSaid::Pool { origin, number })
            }
            (Stage::Greeted, _) => Err(Violation::OutOfTurn("a frame before the pool")),
            (Stage::Open, body) => self.accept_open(body),
        }
    }

    fn accept_open(&mut self, body: &Body) -> Result<ExporterSaid, Violation> {
        match body {
            Body::Life => Ok(ExporterSaid::Life),
            Body::Lend(lend) => {
                let entry = self.entry(lend.turn, STEP)?;
                match (entry.stand, &lend.fresh) {
                    (Stand::Unmapped, Some(_)) | (Stand::Idle, None) => {}
                    (Stand::Held, _) => return Err(Violation::OutOfTurn("a buffer that was handed over before")),
                    (Stand::Unmapped, None) => return Err(Violation::OutOfTurn("memory that was never mapped")),
                    (Stand::Idle, Some(_)) => return Err(Violation::OutOfTurn("memory that is mapped already")),
                }
                *entry = Entry { stand: Stand::Held, generation: lend.turn.generation };
                Ok(ExporterSaid::Offered(lend.clone()))
            }
            &Body::Retire(turn) => {
                let entry = self.entry(turn, 0)?;
                match entry.stand {
                    Stand::Idle => {
                        entry.stand = Stand::Unmapped;
                        Ok(ExporterSaid::Retire(turn))
                    }
                    // Both ends had the same thought.
                    Stand::Unmapped => Ok(ExporterSaid::Nothing),
                    Stand::Held => Err(Violation::OutOfTurn("the retirement of a buffer that is lent")),
                }
            }
            &Body::Bye(farewell) => Ok(ExporterSaid::Bye(farewell)),
            Body::Hello(_) | Body::Pool { .. } => Err(Violation::OutOfTurn("a second greeting")),
            Body::Welcome | Body::Return { .. } | Body::Retired(_) => {
                Err(Violation::OutOfTurn("a frame that only importers send"))
            }
        }
    }

    /// The slot's entry, if the turn is `step` after its last.
    fn entry(&mut self, turn: Turn, step: u32) -> Result<&mut Entry, Violation> {
        let Turn { slot, generation } = turn;
        let index = slot as usize;
        if slot >= self.slots {
            return Err(Violation::Slot(slot));
        }
        if index >= self.entries.len() {
            self.entries.resize(index + 1, Entry { stand: Stand::Unmapped, generation: 0 });
        }
        let entry = &mut self.entries[index];
        let expected = entry.generation.wrapping_add(step);
        if generation != expected {
            return Err(Violation::Generation { slot, expected, found: generation });
        }
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::session::frame::{Fresh, Place};
    use crate::ipc::PointerBlob;

    const HELLO: Body = Body::Hello(Hello { slots: 4, place: Place::HostNuma(0) });
    const POOL: Body = Body::Pool { origin: Nonce([7; 16]), number: 1 };
    const FIRST: Turn = Turn { slot: 0, generation: 2 };
    const SECOND: Turn = Turn { slot: 0, generation: 4 };
    const OUT_OF_TURN: Violation = Violation::OutOfTurn("");

    fn lend(turn: Turn, fresh: bool) -> Body {
        let fresh = fresh.then(|| Fresh { passing: false, range: 4, blob: PointerBlob::from_bytes([1; 64]) });
        Body::Lend(Lend { turn, element: 1, offset: 0, bytes: 4, tag: 0, fresh })
    }

    fn offered(turn: Turn, fresh: bool) -> Result<ExporterSaid, Violation> {
        let Body::Lend(lend) = lend(turn, fresh) else { unreachable!() };
        Ok(ExporterSaid::Offered(lend))
    }

    fn kind(answer: Result<ExporterSaid, Violation>) -> Result<ExporterSaid, Violation> {
        answer.map_err(|violation| match violation {
            Violation::OutOfTurn(_) => OUT_OF_TURN,
            other => other,
        })
    }

    fn new() -> ImporterBook {
        ImporterBook::new(4)
    }

    fn after(frames: &[Body]) -> ImporterBook {
        let mut book = new();
        for frame in frames {
            book.accept(frame).expect("a good start");
        }
        book
    }

    fn greeted() -> ImporterBook {
        after(&[HELLO])
    }

    fn open() -> ImporterBook {
        after(&[HELLO, POOL])
    }

    fn held() -> ImporterBook {
        after(&[HELLO, POOL, lend(FIRST, true)])
    }

    fn idle() -> ImporterBook {
        let mut book = held();
        book.give_back(FIRST, true);
        book
    }

    fn unmapped() -> ImporterBook {
        let mut book = held();
        book.give_back(FIRST, false);
        book
    }

    #[test]
    fn every_frame_in_every_state() {
        type State = fn() -> ImporterBook;
        let other_slots = Body::Hello(Hello { slots: 5, place: Place::HostNuma(0) });
        let at = |slot, generation| Turn { slot, generation };
        let generation =
            |slot, expected, found| Err::<ExporterSaid, _>(Violation::Generation { slot, expected, found });
        let pool = Ok(ExporterSaid::Pool { origin: Nonce([7; 16]), number: 1 });
        let cases: Vec<(&str, State, Body, Result<ExporterSaid, Violation>)> = vec![
            ("new", new, POOL, Err(OUT_OF_TURN)),
            ("new", new, Body::Life, Err(OUT_OF_TURN)),
            ("new", new, lend(FIRST, true), Err(OUT_OF_TURN)),
            ("new", new, Body::Bye(Farewell::Done), Err(OUT_OF_TURN)),
            ("new", new, other_slots, Err(Violation::Field("the number of slots"))),
            ("greeted", greeted, HELLO, Err(OUT_OF_TURN)),
            ("greeted", greeted, lend(FIRST, true), Err(OUT_OF_TURN)),
            ("greeted", greeted, POOL, pool),
            ("open", open, HELLO, Err(OUT_OF_TURN)),
            ("open", open, POOL, Err(OUT_OF_TURN)),
            ("open", open, Body::Life, Ok(ExporterSaid::Life)),
            ("open", open, Body::Welcome, Err(OUT_OF_TURN)),
            ("open", open, Body::Retired(FIRST), Err(OUT_OF_TURN)),
            ("open", open, Body::Return { turn: FIRST, mapped: true }, Err(OUT_OF_TURN)),
            ("open", open, Body::Bye(Farewell::Done), Ok(ExporterSaid::Bye(Farewell::Done))),
            ("open", open, lend(FIRST, true), offered(FIRST, true)),
            ("open", open, lend(FIRST, false), Err(OUT_OF_TURN)),
            ("open", open, lend(SECOND, true), generation(0, 2, 4)),
            ("open", open, lend(at(3, 2), true), offered(at(3, 2), true)),
            ("open", open, lend(at(4, 2), true), Err(Violation::Slot(4))),
            ("open", open, lend(at(u32::MAX, 2), true), Err(Violation::Slot(u32::MAX))),
            ("open", open, Body::Retire(FIRST), generation(0, 0, 2)),
            ("held", held, lend(FIRST, true), generation(0, 4, 2)),
            ("held", held, lend(SECOND, true), Err(OUT_OF_TURN)),
            ("held", held, lend(SECOND, false), Err(OUT_OF_TURN)),
            ("held", held, Body::Retire(FIRST), Err(OUT_OF_TURN)),
            ("held", held, lend(at(1, 2), true), offered(at(1, 2), true)),
            ("idle", idle, lend(SECOND, false), offered(SECOND, false)),
            ("idle", idle, lend(SECOND, true), Err(OUT_OF_TURN)),
            ("idle", idle, lend(FIRST, false), generation(0, 4, 2)),
            ("idle", idle, Body::Retire(FIRST), Ok(ExporterSaid::Retire(FIRST))),
            ("idle", idle, Body::Retire(SECOND), generation(0, 2, 4)),
            ("unmapped", unmapped, lend(SECOND, true), offered(SECOND, true)),
            ("unmapped", unmapped, lend(SECOND, false), Err(OUT_OF_TURN)),
            ("unmapped", unmapped, Body::Retire(FIRST), Ok(ExporterSaid::Nothing)),
        ];
        for (name, state, body, expected) in cases {
            assert_eq!(kind(state().accept(&body)), expected, "{name}: {body:?}");
        }
    }

    #[test]
    fn the_importer_unmaps_what_is_idle() {
        let mut book = idle();
        assert!(book.accept(&lend(Turn { slot: 1, generation: 2 }, true)).is_ok());
        assert_eq!(book.unmap_idle(), [FIRST]);
        assert_eq!(book.unmap_idle(), []);
        assert_eq!(book.accept(&Body::Retire(FIRST)), Ok(ExporterSaid::Nothing));
    }
}
