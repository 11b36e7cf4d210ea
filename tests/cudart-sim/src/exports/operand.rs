//! Bytes that an operation was asked to read or write: whose they are, and where.

use std::sync::Arc;

use super::require;
use crate::memory::allocation::{Allocation, Place};
use crate::memory::space::Found;
use crate::race::{Access, Mode, Track};
use crate::sim::Sim;
use crate::work::Bytes;
use crate::{process, Outcome};

/// See the module.
pub struct Operand {
    pub bytes: Bytes,
    start: usize,
    len: usize,
    /// None for memory that is not the simulator's.
    known: Option<(Arc<Track>, Option<Place>)>,
    /// The allocation was freed and its bytes are no more: only the detector has a use for it.
    pub gone: bool,
}

impl Operand {
    /// Whether it is memory that the runtime knows nothing of.
    pub fn is_pageable(&self) -> bool {
        self.known.is_none()
    }

    /// Whether it counts as device memory.
    pub fn is_device(&self) -> bool {
        matches!(self.known, Some((_, Some(Place::Device(_) | Place::Managed))))
    }

    /// What the race detector shall know of its use.
    pub fn access(&self, write: bool) -> Option<Access> {
        let (start, len) = (self.start, self.len);
        self.known.as_ref().map(|(track, _)| Access { track: Arc::clone(track), start, len, write })
    }
}

/// What lies at an address, of which `len` bytes are used.
///
/// # Errors
/// Invalid value for null, or when the bytes reach beyond the allocation.
pub fn operand(sim: &Sim, address: usize, len: usize) -> Outcome<Operand> {
    require(address != 0)?;
    let of = |allocation: Arc<Allocation>| {
        require(address.checked_add(len).is_some_and(|end| end <= allocation.end()))?;
        Ok(Operand {
            start: address,
            len,
            known: Some((Arc::clone(&allocation.track), Some(allocation.place))),
            bytes: Bytes { at: allocation.internal(address), owner: Some(allocation) },
            gone: false,
        })
    };
    match sim.space.find(address) {
        Found::Live(allocation) => of(allocation),
        Found::Ghost(ghost) if ghost.doomed => process::segmentation_fault(&format!(
            "use of {address:#x}, which was imported twice and freed once: both imports were one mapping"
        )),
        Found::Ghost(ghost) => match ghost.allocation.upgrade() {
            Some(allocation) => of(allocation),
            None => {
                require(sim.races.mode != Mode::Off)?;
                let bytes = Bytes { at: std::ptr::null_mut(), owner: None };
                Ok(Operand { bytes, start: address, len, known: Some((ghost.track, None)), gone: true })
            }
        },
        Found::Nothing => {
            let bytes = Bytes { at: address as *mut u8, owner: None };
            Ok(Operand { bytes, start: address, len, known: None, gone: false })
        }
    }
}
