//! Events that several processes see: counts in shared memory.
//!
//! A record takes the next number of its event and posts it when its stream gets there. Whoever waits, waits for the number
//! that was the latest when it asked. A number that a killed process took is never posted, so that what waits for it waits
//! for ever, as on an H200.

use std::fs::File;
use std::mem::size_of;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use super::{blob, unique, ProcessFile};
use crate::memory::arena::{Arena, Segment};

const MARK: &[u8; 8] = b"simEVENT";
const PAGE: usize = 4096;

/// The counts of one event.
#[repr(C)]
struct Counts {
    /// Which event it is; never 0.
    identity: AtomicU64,
    taken: AtomicU64,
    posted: AtomicU64,
}

/// The shared part of an event.
#[derive(Debug, Clone)]
pub struct Shared {
    page: Arc<Segment>,
    index: usize,
    file: ProcessFile,
    offset: u64,
}

/// The file in which this process's events are.
#[derive(Debug)]
pub struct Board {
    arena: Arc<Arena>,
    page: Option<Arc<Segment>>,
    next: usize,
}

impl Board {
    /// An empty one.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { arena: Arc::new(Arena::new()?), page: None, next: 0 })
    }

    /// Room for one more event. It is never given to another, so a late look at it finds its last state.
    pub fn add(&mut self) -> std::io::Result<Shared> {
        let page = match &self.page {
            Some(page) if self.next < PAGE / size_of::<Counts>() => Arc::clone(page),
            _ => {
                self.next = 0;
                Arc::clone(self.page.insert(Arc::new(Segment::new(&self.arena, PAGE, true)?)))
            }
        };
        let offset = page.place(page.user).1;
        let shared = Shared { page, index: self.next, file: ProcessFile::of(self.arena.file()), offset };
        self.next += 1;
        shared.counts().identity.store(unique() | 1, Ordering::Release);
        Ok(shared)
    }
}

/// Why an event could not be opened.
pub enum Failure {
    /// It is this process's own.
    Own,
    /// The handle is none, or its event is no more.
    NotThere,
}

impl Shared {
    /// What another process opens.
    pub fn handle(&self) -> [u8; blob::LEN] {
        let mut blob = blob::Writer::new(MARK);
        self.file.put(&mut blob);
        blob.put(self.offset);
        blob.put(self.index as u64);
        blob.put(self.counts().identity.load(Ordering::Acquire));
        blob.finish()
    }

    /// Opens another process's event.
    pub fn open(handle: [u8; blob::LEN]) -> Result<Self, Failure> {
        let (file, offset, index, identity) = read(handle).ok_or(Failure::NotThere)?;
        if file.is_own() {
            return Err(Failure::Own);
        }
        let page = file.open().and_then(|file| map(file, offset)).ok_or(Failure::NotThere)?;
        let shared = Self { page, index, file, offset };
        if shared.counts().identity.load(Ordering::Acquire) != identity {
            return Err(Failure::NotThere);
        }
        Ok(shared)
    }

    /// Takes the number of a new record.
    pub fn take(&self) -> u64 {
        self.counts().taken.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The number of the latest record; 0 before any.
    pub fn latest(&self) -> u64 {
        self.counts().taken.load(Ordering::Acquire)
    }

    /// The record's stream has got there.
    pub fn post(&self, number: u64) {
        self.counts().posted.fetch_max(number, Ordering::AcqRel);
    }

    /// Whether a record's stream has got there.
    pub fn is_posted(&self, number: u64) -> bool {
        self.counts().posted.load(Ordering::Acquire) >= number
    }

    fn counts(&self) -> &Counts {
        let address = self.page.user + self.index * size_of::<Counts>();
        // SAFETY: the page is mapped as long as the segment lives, the index was checked to lie in it, and all processes
        // touch it by atomics only.
        unsafe { &*self.page.internal(address).cast::<Counts>() }
    }
}

fn read(handle: [u8; blob::LEN]) -> Option<(ProcessFile, u64, usize, u64)> {
    let mut blob = blob::Reader::new(handle, MARK)?;
    let file = ProcessFile::take(&mut blob)?;
    let (offset, index, identity) = (blob.take()?, blob.take()?.try_into().ok()?, blob.take()?);
    let in_page = index < PAGE / size_of::<Counts>() && offset % PAGE as u64 == 0 && identity != 0;
    in_page.then_some((file, offset, index, identity))
}

fn map(file: File, offset: u64) -> Option<Arc<Segment>> {
    let len = file.metadata().ok()?.len();
    if offset.checked_add(PAGE as u64)? > len {
        return None;
    }
    let arena = Arc::new(Arena::existing(file));
    Segment::foreign(&arena, offset, PAGE, true).ok().map(Arc::new)
}
