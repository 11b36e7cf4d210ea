//! The address space: which allocation an address belongs to, or last belonged to.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::allocation::Allocation;
use crate::race::Track;

/// See the module.
#[derive(Default)]
pub struct Space {
    live: BTreeMap<usize, Arc<Allocation>>,
    /// What was freed and whose addresses nobody got since.
    ghosts: BTreeMap<usize, Ghost>,
}

/// A freed allocation. While its free has not run (or another operation still works on it) the bytes are there.
#[derive(Debug, Clone)]
pub struct Ghost {
    pub allocation: Weak<Allocation>,
    pub track: Arc<Track>,
    end: usize,
    /// Any use ends the process: it was imported twice, and one free has unmapped it for both.
    pub doomed: bool,
}

/// What lies at an address.
pub enum Found {
    Live(Arc<Allocation>),
    Ghost(Ghost),
    /// Nothing of the simulator's: memory of the program's own.
    Nothing,
}

impl Space {
    /// Makes an allocation known.
    pub fn insert(&mut self, allocation: Arc<Allocation>) {
        while let Some((&base, _)) =
            self.ghosts.range(..allocation.end()).next_back().filter(|(_, g)| g.end > allocation.base)
        {
            self.ghosts.remove(&base);
        }
        self.live.insert(allocation.base, allocation);
    }

    /// Ends an allocation; its address is remembered as freed.
    pub fn remove(&mut self, base: usize) -> Option<Arc<Allocation>> {
        let allocation = self.live.remove(&base)?;
        let ghost = Ghost {
            allocation: Arc::downgrade(&allocation),
            track: Arc::clone(&allocation.track),
            end: allocation.end(),
            doomed: false,
        };
        self.ghosts.insert(base, ghost);
        Some(allocation)
    }

    /// Ends an allocation whose addresses are the program's own: nothing is remembered.
    pub fn forget(&mut self, base: usize) -> Option<Arc<Allocation>> {
        self.live.remove(&base)
    }

    /// Marks freed memory whose use would end the process.
    pub fn doom(&mut self, base: usize) {
        if let Some(ghost) = self.ghosts.get_mut(&base) {
            ghost.doomed = true;
        }
    }

    /// The live allocation that starts at this very address.
    pub fn at(&self, base: usize) -> Option<&Arc<Allocation>> {
        self.live.get(&base)
    }

    /// What lies at the address.
    pub fn find(&self, address: usize) -> Found {
        if let Some((_, allocation)) = self.live.range(..=address).next_back() {
            if address < allocation.end() {
                return Found::Live(Arc::clone(allocation));
            }
        }
        match self.ghosts.range(..=address).next_back() {
            Some((_, ghost)) if address < ghost.end => Found::Ghost(ghost.clone()),
            _ => Found::Nothing,
        }
    }

    /// The live allocation that overlaps a range.
    pub fn overlapping(&self, start: usize, end: usize) -> Option<&Arc<Allocation>> {
        self.live
            .range(..end)
            .next_back()
            .map(|(_, allocation)| allocation)
            .filter(|allocation| allocation.end() > start)
    }

    /// All live allocations.
    pub fn live(&self) -> impl Iterator<Item = &Arc<Allocation>> {
        self.live.values()
    }
}
