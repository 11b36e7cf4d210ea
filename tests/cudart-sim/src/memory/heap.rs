//! A heap cuts segments of an arena into blocks.
//!
//! It grows in whole steps, gives blocks 512 bytes apart, and gives whole unused steps back. A freed block belongs to the
//! stream that freed it until the free has run and the host has synchronised; until then others get it only if the
//! caller's policy allows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::arena::{Arena, Segment};
use crate::order::{Host, Stamp};
use crate::stream::{Marker, StreamId};

/// Blocks start at multiples of this many bytes. Measured on an H200 at every size; 256 is what CUDA promises.
pub const SPACING: usize = 512;

/// See the module.
#[derive(Debug)]
pub struct Heap {
    arena: Arc<Arena>,
    /// Whether the host may touch the memory.
    host: bool,
    step: usize,
    reserved: usize,
    /// How many steps of each segment are still there, by the segment's user address.
    segments: BTreeMap<usize, usize>,
    blocks: BTreeMap<usize, Block>,
    available: BTreeSet<(usize, usize)>,
    /// Blocks freed by each stream, not yet available to all; by length and address.
    freed: BTreeMap<StreamId, BTreeSet<(usize, usize)>>,
}

#[derive(Debug)]
struct Block {
    len: usize,
    segment: Arc<Segment>,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    Used,
    /// Anybody may have it.
    Available {
        after: Vec<Stamp>,
    },
    Freed(Free),
}

/// A free that may not have run yet.
#[derive(Debug, Clone)]
pub struct Free {
    pub stream: StreamId,
    /// Which of the stream's submitted operations it is.
    pub count: u64,
    pub done: Arc<Marker>,
}

/// A block that was found.
#[derive(Debug)]
pub struct Found {
    pub address: usize,
    pub segment: Arc<Segment>,
    /// What the new use must be ordered after.
    pub after: Vec<Stamp>,
    /// The free it must wait for, when that was another stream's.
    pub free: Option<Free>,
}

impl Heap {
    /// A heap without memory.
    pub fn new(arena: Arc<Arena>, host: bool, step: usize) -> Self {
        Self {
            arena,
            host,
            step,
            reserved: 0,
            segments: BTreeMap::new(),
            blocks: BTreeMap::new(),
            available: BTreeSet::new(),
            freed: BTreeMap::new(),
        }
    }

    /// Bytes taken from the device.
    pub fn reserved(&self) -> usize {
        self.reserved
    }

    /// Where its bytes lie.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// By how much it would grow for a block of `size`; none when that cannot be counted.
    pub fn growth_for(&self, size: usize) -> Option<usize> {
        size.checked_next_multiple_of(self.step)
    }

    /// A block that is available to all, or that `stream` itself freed.
    pub fn take_own(&mut self, size: usize, stream: Option<StreamId>) -> Option<Found> {
        let len = size.checked_next_multiple_of(SPACING)?;
        let own = stream.and_then(|stream| self.freed.get(&stream)).and_then(|freed| smallest(freed, len));
        let any = smallest(&self.available, len);
        let (_, address) = match (own, any) {
            (Some(own), Some(any)) => own.min(any),
            (own, any) => own.or(any)?,
        };
        Some(self.take(address, len))
    }

    /// A block that another stream freed and that `allowed` lets through.
    pub fn take_freed(&mut self, size: usize, mut allowed: impl FnMut(&Free) -> bool) -> Option<Found> {
        let len = size.checked_next_multiple_of(SPACING)?;
        let fitting = self.freed.values().flat_map(|freed| freed.range((len, 0)..));
        let (_, address) = fitting.filter(|(_, address)| self.free_of(*address).is_some_and(&mut allowed)).min()?;
        let address = *address;
        Some(self.take(address, len))
    }

    fn free_of(&self, address: usize) -> Option<&Free> {
        match &self.blocks.get(&address)?.state {
            State::Freed(free) => Some(free),
            _ => None,
        }
    }

    /// Adds memory for a block of `size` and takes that block.
    ///
    /// # Errors
    /// When the system has no address space or no file for it.
    pub fn grow(&mut self, size: usize) -> std::io::Result<Found> {
        let too_large = || std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        let growth = self.growth_for(size).ok_or_else(too_large)?;
        let segment = Arc::new(Segment::new(&self.arena, growth, self.host)?);
        let address = segment.user;
        self.segments.insert(address, growth / self.step);
        self.reserved += growth;
        self.insert(address, Block { len: growth, segment, state: State::Available { after: Vec::new() } });
        Ok(self.take(address, size.next_multiple_of(SPACING)))
    }

    /// Cuts `len` bytes off the front of a free block.
    fn take(&mut self, address: usize, len: usize) -> Found {
        let block = self.remove(address);
        if block.len > len {
            let rest = Block { len: block.len - len, segment: Arc::clone(&block.segment), state: block.state.clone() };
            self.insert(address + len, rest);
        }
        let segment = Arc::clone(&block.segment);
        self.blocks.insert(address, Block { len, segment: block.segment, state: State::Used });
        let (after, free) = match block.state {
            State::Freed(free) => (Vec::new(), Some(free)),
            State::Available { after } => (after, None),
            State::Used => unreachable!("a used block is in no list"),
        };
        Found { address, segment, after, free }
    }

    /// Frees a used block in the order of a stream.
    pub fn free(&mut self, address: usize, free: Free) {
        self.put_back(address, State::Freed(free));
    }

    /// Frees a used block for all at once.
    pub fn free_now(&mut self, address: usize) {
        self.put_back(address, State::Available { after: Vec::new() });
    }

    fn put_back(&mut self, address: usize, state: State) {
        let block = self.blocks.remove(&address).expect("an allocation has a block");
        self.merge_in(address, Block { state, ..block });
    }

    /// Makes every block available whose free has run.
    pub fn settle(&mut self, host: &Host) {
        let settled = self.freed.values().flatten().map(|(_, address)| *address);
        let settled: Vec<_> = settled.filter(|at| self.free_of(*at).is_some_and(|free| free.done.is_done())).collect();
        for address in settled {
            let block = self.remove(address);
            let State::Freed(Free { done, .. }) = &block.state else { unreachable!("it was in a freed list") };
            let after = done.stamp().filter(|stamp| !host.covers(stamp.epoch())).into_iter().collect();
            self.merge_in(address, Block { state: State::Available { after }, ..block });
        }
    }

    /// Adds a free block, made one with free neighbours of the same kind.
    fn merge_in(&mut self, mut address: usize, mut block: Block) {
        if let Some((&before, neighbour)) = self.blocks.range(..address).next_back() {
            if before + neighbour.len == address && mergeable(neighbour, &block) {
                let neighbour = self.remove(before);
                block = merged(neighbour, block);
                address = before;
            }
        }
        let end = address + block.len;
        if self.blocks.get(&end).is_some_and(|neighbour| mergeable(neighbour, &block)) {
            let neighbour = self.remove(end);
            block = merged(block, neighbour);
        }
        self.insert(address, block);
    }

    fn insert(&mut self, address: usize, block: Block) {
        match &block.state {
            State::Available { .. } => {
                self.available.insert((block.len, address));
            }
            State::Freed(free) => {
                self.freed.entry(free.stream).or_default().insert((block.len, address));
            }
            State::Used => {}
        }
        self.blocks.insert(address, block);
    }

    fn remove(&mut self, address: usize) -> Block {
        let block = self.blocks.remove(&address).expect("the lists name blocks that exist");
        match &block.state {
            State::Available { .. } => {
                self.available.remove(&(block.len, address));
            }
            State::Freed(free) => {
                let freed = self.freed.get_mut(&free.stream).expect("its stream has a list");
                freed.remove(&(block.len, address));
                if freed.is_empty() {
                    self.freed.remove(&free.stream);
                }
            }
            State::Used => {}
        }
        block
    }

    /// Gives whole unused steps back as long as at least `keep` bytes stay reserved. Returns how many bytes went.
    pub fn release(&mut self, keep: usize) -> usize {
        let before = self.reserved;
        while self.reserved >= keep.saturating_add(self.step) {
            let Some((address, chunk)) =
                self.available.iter().rev().find_map(|&(_, at)| Some((at, self.chunk_in(at)?)))
            else {
                break;
            };
            self.give_back(address, chunk);
        }
        before - self.reserved
    }

    /// The last whole step inside an available block.
    fn chunk_in(&self, address: usize) -> Option<usize> {
        let block = &self.blocks[&address];
        let start = block.segment.user;
        let last = start + (address + block.len - start) / self.step * self.step;
        last.checked_sub(self.step).filter(|chunk| *chunk >= address)
    }

    fn give_back(&mut self, address: usize, chunk: usize) {
        let Block { len, segment, state } = self.remove(address);
        let parts = [(address, chunk - address), (chunk + self.step, address + len - chunk - self.step)];
        for (start, len) in parts.into_iter().filter(|(_, len)| *len > 0) {
            self.insert(start, Block { len, segment: Arc::clone(&segment), state: state.clone() });
        }
        segment.discard(chunk, self.step);
        self.reserved -= self.step;
        let left = self.segments.get_mut(&segment.user).expect("every segment is counted");
        *left -= 1;
        if *left == 0 {
            self.segments.remove(&segment.user);
        }
    }
}

/// The smallest block of at least `len` bytes.
fn smallest(blocks: &BTreeSet<(usize, usize)>, len: usize) -> Option<(usize, usize)> {
    blocks.range((len, 0)..).next().copied()
}

fn mergeable(one: &Block, other: &Block) -> bool {
    let same_kind = match (&one.state, &other.state) {
        (State::Available { .. }, State::Available { .. }) => true,
        (State::Freed(one), State::Freed(other)) => one.stream == other.stream,
        _ => false,
    };
    same_kind && Arc::ptr_eq(&one.segment, &other.segment)
}

/// Two neighbours as one, free when both are.
fn merged(first: Block, second: Block) -> Block {
    let state = match (first.state, second.state) {
        (State::Available { after: mut one }, State::Available { after: other }) => {
            for stamp in other {
                if !one.iter().any(|known| known.covers(stamp.epoch())) {
                    one.retain(|known| !stamp.covers(known.epoch()));
                    one.push(stamp);
                }
            }
            State::Available { after: one }
        }
        // The later of one stream's frees implies the earlier.
        (State::Freed(one), State::Freed(other)) => State::Freed(if one.count > other.count { one } else { other }),
        _ => unreachable!("only free neighbours of one kind are merged"),
    };
    Block { len: first.len + second.len, segment: first.segment, state }
}
