//! The stream-order race detector.
//!
//! Every allocation keeps the operations on it that a later one may conflict with. When an operation starts, it must be
//! ordered (by its stream, by events, or by what the host knew when it was submitted) after the allocation and after
//! every conflicting operation before it; otherwise nothing but luck ordered them. The check does not depend on
//! which of the two happened to run first.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::order::{Epoch, Host, Timeline};
use crate::stream::StreamId;

/// What a detected race does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It is reported, and every later call answers the sticky error.
    Error,
    /// It is reported and ends the process.
    Abort,
    /// It is counted, and the operation runs.
    Count,
    /// Nothing is checked.
    Off,
}

impl Mode {
    /// The mode of this name, as settings write it.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "error" => Some(Self::Error),
            "abort" => Some(Self::Abort),
            "count" => Some(Self::Count),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}

/// A function's or kernel's name.
pub type Name = Cow<'static, str>;

/// One operation, as a report names it.
#[derive(Debug, Clone)]
pub struct Operation {
    pub name: Name,
    /// None: the host itself, not in any stream's order.
    pub stream: Option<StreamId>,
    pub epoch: Epoch,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stream {
            Some(stream) => write!(f, "{} (operation {} of stream {stream:?})", self.name, self.epoch.count),
            None => write!(f, "{} (by the host)", self.name),
        }
    }
}

/// A read or write of part of an allocation.
#[derive(Debug, Clone)]
pub struct Access {
    pub track: Arc<Track>,
    pub start: usize,
    pub len: usize,
    pub write: bool,
}

/// What the detector knows of one allocation.
#[derive(Debug)]
pub struct Track {
    base: usize,
    size: usize,
    history: Mutex<History>,
}

#[derive(Debug, Default)]
struct History {
    /// None while the allocation has not run.
    born: Option<Operation>,
    freed: Option<Operation>,
    uses: Vec<Use>,
}

#[derive(Debug)]
struct Use {
    operation: Operation,
    start: usize,
    end: usize,
    write: bool,
}

/// Two operations that nothing orders.
#[derive(Debug)]
pub struct Race {
    what: &'static str,
    now: Operation,
    before: Option<Operation>,
    start: usize,
    len: usize,
    base: usize,
    size: usize,
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} on {} bytes at {:#x}", self.what, self.now, self.len, self.start)?;
        match &self.before {
            Some(before) => write!(f, " is not ordered after {before}")?,
            None => f.write_str(" is not ordered after the allocation, which has not run yet")?,
        }
        write!(f, "; the allocation is {} bytes at {:#x}", self.size, self.base)
    }
}

/// How many uses an allocation remembers. Older ones are forgotten, so that a race may be missed but none invented.
const REMEMBERED: usize = 64;

impl Track {
    /// An allocation made in the order of a stream; it is not there until it has run.
    pub fn in_stream(base: usize, size: usize) -> Arc<Self> {
        Arc::new(Self { base, size, history: Mutex::default() })
    }

    /// An allocation made by the host: it is there for everything that comes later.
    pub fn by_host(base: usize, size: usize, name: &'static str) -> Arc<Self> {
        let born = Operation { name: name.into(), stream: None, epoch: Epoch { slot: 0, count: 0 } };
        Arc::new(Self { base, size, history: Mutex::new(History { born: Some(born), ..History::default() }) })
    }

    /// The allocation runs.
    pub fn born(&self, operation: Operation) {
        // Memory of a graph is born with each launch.
        *self.history.lock() = History { born: Some(operation), ..History::default() };
    }

    fn race(&self, what: &'static str, now: &Operation, before: Option<&Operation>, start: usize, len: usize) -> Race {
        Race { what, now: now.clone(), before: before.cloned(), start, len, base: self.base, size: self.size }
    }

    /// A stream's operation uses the memory from now on.
    pub fn used(&self, access: &Access, order: &Timeline, now: &Operation) -> Option<Race> {
        let history = &mut *self.history.lock();
        let race = |what, before| Some(self.race(what, now, before, access.start, access.len));
        if let Some(freed) = &history.freed {
            return race("use after free", Some(freed));
        }
        match &history.born {
            Some(born) if born.stream.is_none() || order.covers(born.epoch) => {}
            born => return race("use before the allocation is ordered", born.as_ref()),
        }
        let end = access.start + access.len;
        let conflict = history.uses.iter().find(|other| {
            (other.write || access.write)
                && other.start < end
                && access.start < other.end
                && !order.covers(other.operation.epoch)
        });
        if let Some(other) = conflict {
            return race("unordered overlapping accesses", Some(&other.operation));
        }
        // What this one covers and is ordered after need not be remembered: whatever conflicts with it and is ordered
        // after this one is ordered after it too.
        history.uses.retain(|other| {
            !(access.start <= other.start
                && other.end <= end
                && (access.write || !other.write)
                && order.covers(other.operation.epoch))
        });
        if history.uses.len() >= REMEMBERED {
            history.uses.remove(0);
        }
        history.uses.push(Use { operation: now.clone(), start: access.start, end, write: access.write });
        None
    }

    /// The host frees it, outside any stream's order. The runtime itself sees to it that the allocation comes first.
    pub fn freed_by_host(&self, host: &Host, name: &'static str) -> Option<Race> {
        let now = Operation { name: name.into(), stream: None, epoch: Epoch { slot: 0, count: 0 } };
        let history = &mut *self.history.lock();
        self.end(history, now, |epoch| host.covers(epoch))
    }

    /// A stream's free runs.
    pub fn freed(&self, order: &Timeline, now: Operation) -> Option<Race> {
        let history = &mut *self.history.lock();
        match &history.born {
            Some(born) if born.stream.is_none() || order.covers(born.epoch) => {
                self.end(history, now, |epoch| order.covers(epoch))
            }
            born => {
                let what = "free before the allocation is ordered";
                let race = self.race(what, &now, born.as_ref(), self.base, self.size);
                history.freed = Some(now);
                Some(race)
            }
        }
    }

    fn end(&self, history: &mut History, now: Operation, ordered: impl Fn(Epoch) -> bool) -> Option<Race> {
        let unordered = history.uses.iter().find(|other| !ordered(other.operation.epoch));
        let what = "free before a use is ordered";
        let race = unordered.map(|other| self.race(what, &now, Some(&other.operation), self.base, self.size));
        history.freed = Some(now);
        history.uses.clear();
        race
    }
}
