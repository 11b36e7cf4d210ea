//! The frames that the two ends exchange: fixed in size, versioned, every byte checked.
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 3 | magic |
//! | 4 to 5 | version |
//! | 6 to 7 | kind |
//! | 8 to 15 | sequence number of the sender, from 0 |
//! | 16 to 31 | nonce of the sender's process |
//! | 32 to 191 | fields of the kind, in the order of [`Body`], then zeroes |
//!
//! Integers are little-endian. Whether the kinds come in an order that makes sense is for the books to say.

use std::fmt;

use super::nonce::Nonce;
use super::violation::Violation;
use crate::ipc::PointerBlob;

/// How long every frame is.
pub const LENGTH: usize = 192;
const HEADER: usize = 32;
const MAGIC: [u8; 4] = *b"cmpI";
/// Both ends must have the same.
pub const VERSION: u16 = 1;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Counts the sender's frames.
    pub sequence: u64,
    /// The sender's process.
    pub sender: Nonce,
    /// What it says.
    pub body: Body,
}

/// What a frame says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The exporter's first frame, with the page of semaphores as its descriptor.
    Hello(Hello),
    /// The exporter's second frame, with the pool as its descriptor.
    Pool {
        /// The process that made the pool.
        origin: Nonce,
        /// Which of its pools it is.
        number: u64,
    },
    /// The importer's first frame.
    Welcome,
    /// A descriptor of the sender's process, which becomes readable when that ends.
    Life,
    /// Exporter: the buffer of this slot is yours.
    Lend(Lend),
    /// Importer: the buffer is yours again.
    Return {
        /// Which hand-over ends.
        turn: Turn,
        /// Whether the importer keeps the memory mapped.
        mapped: bool,
    },
    /// Exporter: unmap the memory.
    Retire(Turn),
    /// Importer: the memory is unmapped.
    Retired(Turn),
    /// The sender has nothing more to say of its own accord.
    Bye(Farewell),
}

/// What the exporter starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// How many slots the page has.
    pub slots: u32,
    /// Where the memory of the pool lies.
    pub place: Place,
}

/// Where the memory of a pool lies, in words that mean the same in every process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On the device with this UUID.
    Device([u8; 16]),
    /// On this NUMA node of the host.
    HostNuma(u32),
}

/// One hand-over of the buffer of one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The slot.
    pub slot: u32,
    /// The value of the semaphores that means this hand-over.
    pub generation: u32,
}

/// A buffer that is handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lend {
    /// Which one.
    pub turn: Turn,
    /// The size of an element.
    pub element: u32,
    /// Where the first element lies, in bytes from the start of the allocation.
    pub offset: u64,
    /// How many bytes the elements take.
    pub bytes: u64,
    /// A number of the sender's choice.
    pub tag: u64,
    /// How to map the memory, when the importer has not mapped it yet.
    pub fresh: Option<Fresh>,
}

/// Memory that the importer is to map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fresh {
    /// To be unmapped on return, because the sender is not the owner.
    pub passing: bool,
    /// The size of the allocation, in bytes.
    pub range: u64,
    /// The allocation, for the runtime.
    pub blob: PointerBlob,
}

/// Why an end says [`Body::Bye`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Farewell {
    /// It is done.
    Done,
    /// It cannot see the device of the memory.
    UnknownDevice,
    /// It is in the same process.
    OwnProcess,
    /// The other end broke the protocol.
    Violation,
    /// It could not do its part, for instance import the pool.
    Failed,
}

impl Farewell {
    const ALL: [Self; 5] = [Self::Done, Self::UnknownDevice, Self::OwnProcess, Self::Violation, Self::Failed];
}

impl fmt::Display for Farewell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "it is done",
            Self::UnknownDevice => "it cannot see the device of the memory",
            Self::OwnProcess => "it is in the same process",
            Self::Violation => "it says that the protocol was broken",
            Self::Failed => "it could not do its part",
        })
    }
}

impl Body {
    /// Whether a descriptor comes with it.
    pub fn has_fd(&self) -> bool {
        matches!(self, Self::Hello(_) | Self::Pool { .. } | Self::Life)
    }
}

impl Frame {
    /// The bytes of the frame.
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.sender.0);
        let mut fields = Writer { rest: &mut bytes[HEADER..] };
        let kind: u16 = match &self.body {
            Body::Hello(hello) => {
                fields.u32(hello.slots);
                match hello.place {
                    Place::Device(uuid) => {
                        fields.u32(0);
                        fields.bytes(&uuid);
                    }
                    Place::HostNuma(node) => {
                        fields.u32(1);
                        fields.u32(node);
                    }
                }
                1
            }
            Body::Pool { origin, number } => {
                fields.bytes(&origin.0);
                fields.u64(*number);
                2
            }
            Body::Welcome => 3,
            Body::Life => 4,
            Body::Lend(lend) => {
                fields.turn(lend.turn);
                fields.u32(lend.element);
                let mapping = lend.fresh.as_ref().map_or(0, |fresh| 1 + u32::from(fresh.passing));
                fields.u32(mapping);
                fields.u64(lend.offset);
                fields.u64(lend.bytes);
                fields.u64(lend.tag);
                if let Some(fresh) = &lend.fresh {
                    fields.u64(fresh.range);
                    fields.bytes(fresh.blob.as_bytes());
                }
                5
            }
            Body::Return { turn, mapped } => {
                fields.turn(*turn);
                fields.u32(u32::from(*mapped));
                6
            }
            Body::Retire(turn) => {
                fields.turn(*turn);
                7
            }
            Body::Retired(turn) => {
                fields.turn(*turn);
                8
            }
            Body::Bye(farewell) => {
                let index = Farewell::ALL.iter().position(|known| known == farewell);
                fields.u32(index.map_or(0, |index| index as u32));
                9
            }
        };
        bytes[6..8].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    /// Reads a frame. What it accepts, [`encode`](Self::encode) gives back byte for byte.
    ///
    /// # Errors
    /// What is wrong with the first wrong byte.
    pub fn decode(bytes: &[u8; LENGTH]) -> Result<Self, Violation> {
        let mut header = Reader { rest: bytes };
        if header.array() != MAGIC {
            return Err(Violation::NotAFrame);
        }
        let version = u16::from_le_bytes(header.array());
        if version != VERSION {
            return Err(Violation::Version { theirs: version });
        }
        let kind = u16::from_le_bytes(header.array());
        let sequence = header.u64();
        let sender = Nonce(header.array());
        let mut fields = header;
        let body = match kind {
            1 => Body::Hello(Hello {
                slots: fields.u32(),
                place: match fields.u32() {
                    0 => Place::Device(fields.array()),
                    1 => Place::HostNuma(fields.u32()),
                    _ => return Err(Violation::Field("the kind of place")),
                },
            }),
            2 => Body::Pool { origin: Nonce(fields.array()), number: fields.u64() },
            3 => Body::Welcome,
            4 => Body::Life,
            5 => {
                let (turn, element, mapping) = (fields.turn(), fields.u32(), fields.u32());
                let (offset, bytes, tag) = (fields.u64(), fields.u64(), fields.u64());
                let fresh = match mapping {
                    0 => None,
                    1 | 2 => {
                        let range = fields.u64();
                        Some(Fresh { passing: mapping == 2, range, blob: PointerBlob::from_bytes(fields.array()) })
                    }
                    _ => return Err(Violation::Field("how to map")),
                };
                Body::Lend(Lend { turn, element, offset, bytes, tag, fresh }.checked()?)
            }
            6 => Body::Return {
                turn: fields.turn(),
                mapped: match fields.u32() {
                    0 => false,
                    1 => true,
                    _ => return Err(Violation::Field("whether it is mapped")),
                },
            },
            7 => Body::Retire(fields.turn()),
            8 => Body::Retired(fields.turn()),
            9 => {
                let index = fields.u32() as usize;
                let farewell = Farewell::ALL.get(index).ok_or(Violation::Field("the farewell"))?;
                Body::Bye(*farewell)
            }
            _ => return Err(Violation::Kind(kind)),
        };
        if fields.rest.iter().any(|&byte| byte != 0) {
            return Err(Violation::Field("the padding"));
        }
        Ok(Self { sequence, sender, body })
    }
}

impl Lend {
    /// Refuses numbers that contradict each other.
    fn checked(self) -> Result<Self, Violation> {
        let end = self.offset.checked_add(self.bytes).ok_or(Violation::Field("the extent"))?;
        if i64::try_from(end).is_err() {
            return Err(Violation::Field("the extent"));
        }
        if self.element == 0 || self.bytes == 0 || self.bytes % u64::from(self.element) != 0 {
            return Err(Violation::Field("the element size"));
        }
        if self.fresh.as_ref().is_some_and(|fresh| end > fresh.range) {
            return Err(Violation::Field("the extent"));
        }
        Ok(self)
    }
}

struct Writer<'a> {
    rest: &'a mut [u8],
}

impl Writer<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        let (now, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes.len());
        now.copy_from_slice(bytes);
        self.rest = rest;
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    fn turn(&mut self, turn: Turn) {
        self.u32(turn.slot);
        self.u32(turn.generation);
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    /// The kinds of fields fit into a frame, so there is always enough left.
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let (now, rest) = self.rest.split_at(N);
        array.copy_from_slice(now);
        self.rest = rest;
        array
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    fn turn(&mut self) -> Turn {
        Turn { slot: self.u32(), generation: self.u32() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(body: Body) -> Frame {
        Frame { sequence: 0x0102_0304_0506_0708, sender: Nonce([0xa5; 16]), body }
    }

    fn lend(fresh: Option<Fresh>) -> Lend {
        Lend { turn: Turn { slot: 7, generation: 12 }, element: 4, offset: 256, bytes: 4096, tag: u64::MAX, fresh }
    }

    fn fresh(passing: bool) -> Fresh {
        Fresh { passing, range: 256 + 4096, blob: PointerBlob::from_bytes([0x5a; 64]) }
    }

    fn every_kind() -> Vec<Frame> {
        let turn = Turn { slot: 3, generation: u32::MAX };
        let mut bodies = vec![
            Body::Hello(Hello { slots: 4096, place: Place::Device([9; 16]) }),
            Body::Hello(Hello { slots: 1, place: Place::HostNuma(3) }),
            Body::Pool { origin: Nonce([1; 16]), number: 5 },
            Body::Welcome,
            Body::Life,
            Body::Lend(lend(None)),
            Body::Lend(lend(Some(fresh(false)))),
            Body::Lend(lend(Some(fresh(true)))),
            Body::Return { turn, mapped: true },
            Body::Return { turn, mapped: false },
            Body::Retire(turn),
            Body::Retired(turn),
        ];
        bodies.extend(Farewell::ALL.map(Body::Bye));
        bodies.into_iter().map(frame).collect()
    }

    #[test]
    fn frames_survive_the_way() {
        for frame in every_kind() {
            assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }
    }

    #[test]
    fn no_byte_is_without_meaning() {
        for frame in every_kind() {
            let bytes = frame.encode();
            for index in 0..LENGTH {
                for flip in [0x01, 0x80, 0xff] {
                    let mut other = bytes;
                    other[index] ^= flip;
                    if let Ok(read) = Frame::decode(&other) {
                        assert_ne!(read, frame, "byte {index} of {frame:?}");
                        assert_eq!(read.encode(), other, "byte {index} of {frame:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn says_what_is_wrong() {
        let good = frame(Body::Lend(lend(Some(fresh(false))))).encode();
        let with = |index: usize, byte: u8| {
            let mut bytes = good;
            bytes[index] = byte;
            Frame::decode(&bytes)
        };
        assert_eq!(with(0, 0), Err(Violation::NotAFrame));
        assert_eq!(with(4, 2), Err(Violation::Version { theirs: 2 }));
        assert_eq!(with(6, 0), Err(Violation::Kind(0)));
        assert_eq!(with(7, 1), Err(Violation::Kind(0x105)));
        assert_eq!(with(44, 3), Err(Violation::Field("how to map")));
        assert_eq!(with(LENGTH - 1, 1), Err(Violation::Field("the padding")));
    }

    #[test]
    fn contradicting_sizes_are_refused() {
        let refused = |change: fn(&mut Lend)| {
            let mut lend = lend(Some(fresh(false)));
            change(&mut lend);
            Frame::decode(&frame(Body::Lend(lend)).encode()).is_err()
        };
        assert!(!refused(|_| {}));
        assert!(refused(|lend| lend.offset += 4));
        assert!(refused(|lend| lend.bytes += 4));
        assert!(refused(|lend| lend.bytes = u64::MAX - 3));
        assert!(refused(|lend| lend.offset = u64::MAX - 3));
        assert!(refused(|lend| lend.bytes = 0));
        assert!(refused(|lend| lend.element = 0));
        assert!(refused(|lend| lend.element = 5));
        assert!(refused(|lend| lend.fresh = Some(Fresh { range: 4095, ..fresh(false) })));
        assert!(refused(|lend| {
            lend.fresh = None;
            lend.offset = i64::MAX as u64;
        }));
    }

    /// A thousand frames of noise, and a thousand with noise behind a right header: an error or a frame that says the
    /// same bytes, and nothing else.
    #[test]
    fn noise_is_no_frame_or_a_whole_one() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut accepted = 0;
        for round in 0..2000 {
            let mut bytes = [0; LENGTH];
            bytes.iter_mut().for_each(|byte| *byte = next() as u8);
            if round >= 1000 {
                bytes[..4].copy_from_slice(&MAGIC);
                bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
                bytes[6..8].copy_from_slice(&(next() as u16 % 11).to_le_bytes());
                bytes[HEADER + (next() as usize % 100)..].fill(0);
            }
            if let Ok(frame) = Frame::decode(&bytes) {
                assert_eq!(frame.encode(), bytes);
                accepted += 1;
            }
        }
        assert!((1..2000).contains(&accepted), "{accepted} accepted");
    }
}
