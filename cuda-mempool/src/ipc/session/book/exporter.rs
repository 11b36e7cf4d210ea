//! The exporter's side of the protocol.

use super::STEP;
use crate::ipc::session::frame::{Body, Farewell, Turn};
use crate::ipc::session::violation::Violation;

/// What the exporter knows of its slots.
#[derive(Debug)]
pub struct ExporterBook {
    slots: u32,
    entries: Vec<Entry>,
    vacant: Vec<u32>,
    welcomed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    stand: Stand,
    generation: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// No buffer's.
    Vacant,
    /// The exporter has the buffer.
    Home { mapped: bool },
    /// The importer has it.
    Lent,
    /// The importer was told to unmap it.
    Retiring,
}

/// What a frame of the importer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImporterSaid {
    /// It has mapped the page.
    Welcome,
    /// The descriptor tells of its life.
    Life,
    /// The buffer came back.
    Returned(Turn),
    /// The memory is not mapped there any more. The slot is vacant, if the exporter had asked.
    Unmapped {
        /// Of which hand-over it was the end.
        turn: Turn,
        /// Whether the exporter had asked.
        asked: bool,
    },
    /// It takes nothing any more.
    Bye(Farewell),
}

impl ExporterBook {
    pub fn new(slots: u32) -> Self {
        Self { slots, entries: Vec::new(), vacant: Vec::new(), welcomed: false }
    }

    /// A slot for another buffer, if there is one.
    pub fn enter(&mut self) -> Option<u32> {
        let slot = match self.vacant.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.entries.len()).ok().filter(|&slot| slot < self.slots)?;
                self.entries.push(Entry { stand: Stand::Vacant, generation: 0 });
                slot
            }
        };
        self.entries[slot as usize].stand = Stand::Home { mapped: false };
        Some(slot)
    }

    /// Whether the importer has to be told how to map the buffer.
    pub fn is_fresh(&self, slot: u32) -> bool {
        self.entries[slot as usize].stand == Stand::Home { mapped: false }
    }

    /// The value of `Ready` in the last hand-over of this slot.
    pub fn last_generation(&self, slot: u32) -> u32 {
        self.entries[slot as usize].generation
    }

    /// What the next hand-over of the buffer will be.
    pub fn next_turn(&self, slot: u32) -> Turn {
        Turn { slot, generation: self.entries[slot as usize].generation.wrapping_add(STEP) }
    }

    /// The buffer is handed over, by this turn.
    pub fn lend(&mut self, turn: Turn) {
        let entry = &mut self.entries[turn.slot as usize];
        debug_assert!(matches!(entry.stand, Stand::Home { .. }));
        *entry = Entry { stand: Stand::Lent, generation: turn.generation };
    }

    /// Whether this hand-over is going on.
    pub fn is_lent(&self, turn: Turn) -> bool {
        let Entry { stand, generation } = self.entries[turn.slot as usize];
        stand == Stand::Lent && generation == turn.generation
    }

    /// Whether any hand-over is going on.
    pub fn has_lent(&self) -> bool {
        self.entries.iter().any(|entry| entry.stand == Stand::Lent)
    }

    /// The buffer goes away: what to say, if the importer has it mapped. If not, the slot is vacant.
    pub fn retire(&mut self, slot: u32) -> Option<Turn> {
        let entry = &mut self.entries[slot as usize];
        debug_assert!(matches!(entry.stand, Stand::Home { .. }));
        if entry.stand == (Stand::Home { mapped: false }) {
            entry.stand = Stand::Vacant;
            self.vacant.push(slot);
            return None;
        }
        entry.stand = Stand::Retiring;
        Some(Turn { slot, generation: entry.generation })
    }

    /// Takes what the importer says.
    pub fn accept(&mut self, body: &Body) -> Result<ImporterSaid, Violation> {
        match body {
            Body::Welcome if !self.welcomed => {
                self.welcomed = true;
                return Ok(ImporterSaid::Welcome);
            }
            // These need no greeting.
            Body::Life | Body::Bye(_) => {}
            _ if !self.welcomed => return Err(Violation::OutOfTurn("a frame before the welcome")),
            _ => {}
        }
        match *body {
            Body::Life => Ok(ImporterSaid::Life),
            Body::Return { turn, mapped } => {
                let entry = self.entry(turn)?;
                if entry.stand != Stand::Lent {
                    return Err(Violation::OutOfTurn("the return of a buffer that is not lent"));
                }
                entry.stand = Stand::Home { mapped };
                Ok(ImporterSaid::Returned(turn))
            }
            Body::Retired(turn) => {
                let entry = self.entry(turn)?;
                match entry.stand {
                    Stand::Retiring => {
                        entry.stand = Stand::Vacant;
                        self.vacant.push(turn.slot);
                        Ok(ImporterSaid::Unmapped { turn, asked: true })
                    }
                    Stand::Home { mapped: true } => {
                        entry.stand = Stand::Home { mapped: false };
                        Ok(ImporterSaid::Unmapped { turn, asked: false })
                    }
                    _ => Err(Violation::OutOfTurn("the unmapping of memory that is not mapped")),
                }
            }
            Body::Bye(farewell) => Ok(ImporterSaid::Bye(farewell)),
            Body::Welcome => Err(Violation::OutOfTurn("a second welcome")),
            Body::Hello(_) | Body::Pool { .. } | Body::Lend(_) | Body::Retire(_) => {
                Err(Violation::OutOfTurn("a frame that only exporters send"))
            }
        }
    }

    fn entry(&mut self, turn: Turn) -> Result<&mut Entry, Violation> {
        let entry = self.entries.get_mut(turn.slot as usize).ok_or(Violation::Slot(turn.slot))?;
        if entry.generation != turn.generation {
            let Turn { slot, generation } = turn;
            return Err(Violation::Generation { slot, expected: entry.generation, found: generation });
        }
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::session::nonce::Nonce;

    const FIRST: Turn = Turn { slot: 0, generation: 2 };
    const SECOND: Turn = Turn { slot: 0, generation: 4 };
    const OUT_OF_TURN: Violation = Violation::OutOfTurn("");

    /// Violations are compared by kind here: the texts are for readers.
    fn kind(answer: Result<ImporterSaid, Violation>) -> Result<ImporterSaid, Violation> {
        answer.map_err(|violation| match violation {
            Violation::OutOfTurn(_) => OUT_OF_TURN,
            other => other,
        })
    }

    fn welcomed() -> ExporterBook {
        let mut book = ExporterBook::new(4);
        assert_eq!(book.accept(&Body::Welcome), Ok(ImporterSaid::Welcome));
        book
    }

    fn lent() -> ExporterBook {
        let mut book = welcomed();
        assert_eq!(book.enter(), Some(0));
        assert_eq!(book.next_turn(0), FIRST);
        book.lend(FIRST);
        book
    }

    fn returned(mapped: bool) -> ExporterBook {
        let mut book = lent();
        assert_eq!(book.accept(&Body::Return { turn: FIRST, mapped }), Ok(ImporterSaid::Returned(FIRST)));
        book
    }

    fn retiring() -> ExporterBook {
        let mut book = returned(true);
        assert_eq!(book.retire(0), Some(FIRST));
        book
    }

    #[test]
    fn every_frame_in_every_state() {
        let back = |turn| Body::Return { turn, mapped: true };
        let unmapped = |asked| Ok(ImporterSaid::Unmapped { turn: FIRST, asked });
        type State = fn() -> ExporterBook;
        let new: State = || ExporterBook::new(4);
        let home: State = || returned(true);
        let cases: Vec<(&str, State, Body, Result<ImporterSaid, Violation>)> = vec![
            ("new", new, Body::Life, Ok(ImporterSaid::Life)),
            ("new", new, back(FIRST), Err(OUT_OF_TURN)),
            ("new", new, Body::Bye(Farewell::Done), Ok(ImporterSaid::Bye(Farewell::Done))),
            ("welcomed", welcomed, Body::Welcome, Err(OUT_OF_TURN)),
            ("welcomed", welcomed, Body::Life, Ok(ImporterSaid::Life)),
            ("welcomed", welcomed, Body::Bye(Farewell::Failed), Ok(ImporterSaid::Bye(Farewell::Failed))),
            ("welcomed", welcomed, back(FIRST), Err(Violation::Slot(0))),
            ("welcomed", welcomed, Body::Retired(FIRST), Err(Violation::Slot(0))),
            ("welcomed", welcomed, Body::Retire(FIRST), Err(OUT_OF_TURN)),
            ("welcomed", welcomed, Body::Pool { origin: Nonce([0; 16]), number: 0 }, Err(OUT_OF_TURN)),
            ("lent", lent, back(FIRST), Ok(ImporterSaid::Returned(FIRST))),
            ("lent", lent, back(SECOND), Err(Violation::Generation { slot: 0, expected: 2, found: 4 })),
            ("lent", lent, back(Turn { slot: 1, ..FIRST }), Err(Violation::Slot(1))),
            ("lent", lent, back(Turn { slot: u32::MAX, ..FIRST }), Err(Violation::Slot(u32::MAX))),
            ("lent", lent, Body::Retired(FIRST), Err(OUT_OF_TURN)),
            ("home", home, back(FIRST), Err(OUT_OF_TURN)),
            ("home", home, Body::Retired(FIRST), unmapped(false)),
            ("unmapped", || returned(false), Body::Retired(FIRST), Err(OUT_OF_TURN)),
            ("retiring", retiring, Body::Retired(FIRST), unmapped(true)),
            ("retiring", retiring, back(FIRST), Err(OUT_OF_TURN)),
        ];
        for (name, state, body, expected) in cases {
            assert_eq!(kind(state().accept(&body)), expected, "{name}: {body:?}");
        }
    }

    #[test]
    fn only_memory_that_is_not_mapped_is_fresh() {
        let mut book = welcomed();
        let slot = book.enter().expect("room");
        assert!(book.is_fresh(slot));
        assert!(!returned(true).is_fresh(0));
        assert!(returned(false).is_fresh(0));
    }

    #[test]
    fn slots_are_used_again_with_new_generations() {
        let mut book = retiring();
        assert!(book.accept(&Body::Retired(FIRST)).is_ok());
        assert_eq!(book.enter(), Some(0));
        assert_eq!(book.next_turn(0), SECOND);
        assert_eq!(book.retire(0), None);
        assert_eq!((0..5).map(|_| book.enter()).collect::<Vec<_>>(), [Some(0), Some(1), Some(2), Some(3), None]);
    }
}
