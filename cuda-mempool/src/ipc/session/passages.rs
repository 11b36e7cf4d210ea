//! Where an imported buffer has been handed on.

use std::sync::Arc;

use super::core::Core;
use super::lender::ExporterSide;
use crate::ipc::{Error, Result};
use crate::{teardown, Stream};

/// The sessions that a buffer was handed on in, with its slot in each.
#[derive(Default)]
pub(crate) struct Passages {
    slots: Vec<(Arc<Core<ExporterSide>>, u32)>,
    /// What was done with it in a session that is forgotten was cut short.
    abandoned: bool,
}

impl Passages {
    /// The slot of the buffer in this session, if it has one.
    pub(super) fn slot_in(&self, session: &Arc<Core<ExporterSide>>) -> Option<u32> {
        self.slots.iter().find(|(known, _)| Arc::ptr_eq(known, session)).map(|&(_, slot)| slot)
    }

    pub(super) fn add(&mut self, session: Arc<Core<ExporterSide>>, slot: u32) {
        self.slots.push((session, slot));
    }

    /// Lets go of sessions that have ended, so that a buffer may outlive any number of them.
    pub(super) fn forget_what_is_over(&mut self) {
        let abandoned = &mut self.abandoned;
        self.slots.retain(|(session, slot)| {
            let over = session.is_over();
            *abandoned |= over && session.is_abandoned(*slot);
            !over
        });
    }

    /// An error when what was done with it in any of them was cut short.
    pub(crate) fn confirm(&self) -> Result<()> {
        match self.abandoned || self.slots.iter().any(|(session, slot)| session.is_abandoned(*slot)) {
            true => Err(Error::Abandoned),
            false => Ok(()),
        }
    }

    /// The buffer, which belongs to `stream`, goes away: its slots are vacant.
    pub(crate) fn end(&mut self, stream: &Stream) {
        if teardown::forked() {
            return;
        }
        for (session, slot) in self.slots.drain(..) {
            let mut state = session.lock();
            if state.ended.is_none() {
                session.vacate(&mut state, slot, stream);
            }
        }
    }
}
