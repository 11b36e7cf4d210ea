//! Handles that are never mistaken: a destroyed one, or one of another kind, is told apart from a live one.

use std::collections::VecDeque;
use std::marker::PhantomData;

/// A handle to a `T`. Its value is what the C caller holds; it points nowhere.
pub struct Id<T>(usize, PhantomData<fn() -> T>);

const KIND_BITS: u32 = 4;
const SLOT_BITS: u32 = 24;

impl<T> Id<T> {
    /// Takes what a C caller gave, whatever it is.
    pub fn from_raw(raw: *const impl Sized) -> Self {
        Self(raw as usize, PhantomData)
    }

    /// What a C caller gets.
    pub fn as_raw<R>(self) -> *mut R {
        self.0 as *mut R
    }

    /// Its place in its table; used again long after the handle was destroyed.
    pub fn slot(self) -> usize {
        (self.0 >> KIND_BITS) & ((1 << SLOT_BITS) - 1)
    }

    fn new(kind: usize, slot: usize, generation: usize) -> Self {
        Self((((generation << SLOT_BITS) | slot) << KIND_BITS) | kind, PhantomData)
    }
}

// Derived ones would ask the same of `T`.
impl<T> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Id<T> {}
impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<T> Eq for Id<T> {}
impl<T> PartialOrd for Id<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Id<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}
impl<T> std::hash::Hash for Id<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
impl<T> std::fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A slot is used again only when this many wait, so that a stale handle or an old order is not met soon.
const RESTING_SLOTS: usize = 256;

/// All live objects of one kind.
pub struct Table<T> {
    kind: usize,
    slots: Vec<(usize, Option<T>)>,
    resting: VecDeque<usize>,
}

impl<T> Table<T> {
    /// An empty table; `kind` is from 8 to 15 and differs for each type, so that no handle is ever a small number.
    pub const fn new(kind: usize) -> Self {
        assert!(kind >= 8 && kind < 1 << KIND_BITS);
        Self { kind, slots: Vec::new(), resting: VecDeque::new() }
    }

    /// Adds what `make` builds for its new handle.
    pub fn insert_with(&mut self, make: impl FnOnce(Id<T>) -> T) -> Id<T> {
        let slot = if self.resting.len() > RESTING_SLOTS { self.resting.pop_front() } else { None };
        let slot = slot.unwrap_or_else(|| {
            assert!(self.slots.len() < 1 << SLOT_BITS, "more live objects than handles");
            self.slots.push((0, None));
            self.slots.len() - 1
        });
        let id = Id::new(self.kind, slot, self.slots[slot].0);
        self.slots[slot].1 = Some(make(id));
        id
    }

    /// Adds a value.
    pub fn insert(&mut self, value: T) -> Id<T> {
        self.insert_with(|_| value)
    }

    /// Removes an object; its handle is dead from now on.
    pub fn remove(&mut self, id: Id<T>) -> Option<T> {
        self.get(id)?;
        let (generation, value) = &mut self.slots[id.slot()];
        *generation += 1;
        self.resting.push_back(id.slot());
        value.take()
    }

    /// The object of a handle, if it is live and of this kind.
    pub fn get(&self, id: Id<T>) -> Option<&T> {
        let (generation, value) = self.slots.get(id.slot())?;
        value.as_ref().filter(|_| Id::new(self.kind, id.slot(), *generation) == id)
    }

    /// As [`Self::get`].
    pub fn get_mut(&mut self, id: Id<T>) -> Option<&mut T> {
        let (generation, value) = self.slots.get_mut(id.slot())?;
        let live = Id::<T>::new(self.kind, id.slot(), *generation) == id;
        value.as_mut().filter(|_| live)
    }

    /// Whether nothing is live.
    pub fn is_empty(&self) -> bool {
        self.resting.len() == self.slots.len()
    }

    /// All live objects.
    pub fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        self.slots.iter().enumerate().filter_map(|(slot, (generation, value))| {
            value.as_ref().map(|value| (Id::new(self.kind, slot, *generation), value))
        })
    }
}
