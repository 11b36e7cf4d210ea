//! Buffers that other processes have mapped, or may have.

use std::fmt;
use std::mem::size_of;
use std::ops::RangeBounds;
use std::sync::Arc;

use bytemuck::Pod;

use super::core::Core;
use super::frame::{Fresh, Turn};
use super::handle::Handle;
use super::lease::sealed::{Loan, SessionId};
use super::lender::{ExporterSide, Extent};
use super::signals::{reachable, usable};
use crate::ipc::{driver, Error, PointerExport, Result};
use crate::{teardown, DeviceBuffer, DeviceSlice, DeviceSliceMut, MemPool, Stream};

/// A [`DeviceBuffer`] that was handed over, or is going to be.
///
/// It is read and written through the same views as a `DeviceBuffer`. When it is dropped, the importers that have it
/// mapped are told to unmap it, and then it is freed, in the order of the streams of all; nothing waits.
pub struct SharedBuffer<T: Pod + Send> {
    /// Taken only by Drop.
    buffer: Option<DeviceBuffer<T>>,
    homes: Vec<Home>,
    /// What an importer did with it in a session that is forgotten was cut short.
    abandoned: bool,
}

/// A session that knows the buffer.
struct Home {
    core: Arc<Core<ExporterSide>>,
    /// Keeps the session open, as long as somebody here holds the buffer.
    open: Option<Arc<Handle<ExporterSide>>>,
    slot: u32,
    export: PointerExport,
    /// The size of the allocation, in bytes.
    range: usize,
}

impl<T: Pod + Send> SharedBuffer<T> {
    fn buffer(&self) -> &DeviceBuffer<T> {
        self.buffer.as_ref().expect("there until it is dropped")
    }

    fn buffer_mut(&mut self) -> &mut DeviceBuffer<T> {
        self.buffer.as_mut().expect("there until it is dropped")
    }

    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer().len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer().is_empty()
    }

    /// The stream that it belongs to.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        self.buffer().stream()
    }

    /// Moves the buffer to another stream, as [`DeviceBuffer::set_stream`].
    ///
    /// # Errors
    /// As there. The buffer stays on its stream then. It cannot be moved to a [per-thread stream](Stream::per_thread),
    /// nor to one that is being captured.
    pub fn set_stream(&mut self, stream: &Stream) -> Result<()> {
        usable(stream)?;
        Ok(self.buffer_mut().set_stream(stream)?)
    }

    /// The device pointer, for kernels that read, enqueued on [`stream`](Self::stream).
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.buffer().as_ptr()
    }

    /// The device pointer, for kernels enqueued on [`stream`](Self::stream).
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.buffer_mut().as_mut_ptr()
    }

    /// All of it, to read.
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        self.buffer().as_slice()
    }

    /// All of it, to write.
    #[must_use]
    pub fn as_slice_mut(&mut self) -> DeviceSliceMut<'_, T> {
        self.buffer_mut().as_slice_mut()
    }

    /// A part of it, to read.
    ///
    /// # Panics
    /// When the range is not within the buffer, as for slices.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> DeviceSlice<'_, T> {
        self.buffer().slice(range)
    }

    /// A part of it, to write.
    ///
    /// # Panics
    /// When the range is not within the buffer, as for slices.
    #[must_use]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> DeviceSliceMut<'_, T> {
        self.buffer_mut().slice_mut(range)
    }

    /// Waits for the stream, and says whether what importers did with the buffer was done to its end.
    ///
    /// When an importer ends, or gives no sign for too long, after it has returned the buffer but before its work on it
    /// is done, the buffer's stream is let go on. The data is then somewhere in between.
    ///
    /// # Errors
    /// [`Error::Abandoned`] when that has happened, or what synchronising answers.
    pub fn confirm(&self) -> Result<()> {
        self.stream().synchronize()?;
        match self.abandoned || self.homes.iter().any(|home| home.core.is_abandoned(home.slot)) {
            true => Err(Error::Abandoned),
            false => Ok(()),
        }
    }

    /// Copies to a new vector, waits for it, and [confirms](Self::confirm) the data.
    ///
    /// # Errors
    /// [`Error::Abandoned`], or what copying answers.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let elements = self.as_slice().to_vec()?;
        self.confirm()?;
        Ok(elements)
    }

    /// Hands the buffer over in this session.
    pub(super) fn lend(&mut self, session: &Arc<Handle<ExporterSide>>, pool: &MemPool, tag: u64) -> Result<Turn> {
        reachable()?;
        let is_this = |home: &&Home| Arc::ptr_eq(&home.core, &session.core);
        if self.homes.iter().find(is_this).is_none() {
            let home = self.enter(session, pool)?;
            self.forget_what_is_over();
            self.homes.push(home);
        }
        let known = self.homes.iter().find(is_this);
        let Home { slot, export, range, .. } = known.expect("entered above");
        let extent = Extent { offset: export.offset, bytes: export.bytes, element: size_of::<T>(), tag };
        let fresh = || Fresh { passing: false, range: *range as u64, blob: export.blob };
        session.lend(&mut session.lock(), self.stream(), *slot, &extent, fresh)
    }

    /// Lets go of sessions that have ended, so that a buffer may outlive any number of them.
    fn forget_what_is_over(&mut self) {
        let abandoned = &mut self.abandoned;
        self.homes.retain(|home| {
            let over = home.core.is_over();
            *abandoned |= over && home.core.is_abandoned(home.slot);
            !over
        });
    }

    /// A slot for the buffer.
    fn enter(&self, session: &Arc<Handle<ExporterSide>>, pool: &MemPool) -> Result<Home> {
        if self.buffer().size_in_bytes() == 0 {
            return Err(Error::Empty);
        }
        let pointer = self.as_ptr().cast();
        if driver::pool_of(pointer).is_ok_and(|owner| owner != pool.as_raw()) {
            return Err(Error::ForeignMemory);
        }
        let export = self.buffer().export_pointer()?;
        let range = driver::size_of(pointer)?;
        let mut state = session.lock();
        session.alive(&state)?;
        let slot = state.side.book.enter().ok_or(Error::Full)?;
        let (core, open) = (Arc::clone(&session.core), Some(Arc::clone(session)));
        Ok(Home { core, open, slot, export, range })
    }
}

impl<T: Pod + Send> From<DeviceBuffer<T>> for SharedBuffer<T> {
    fn from(buffer: DeviceBuffer<T>) -> Self {
        Self { buffer: Some(buffer), homes: Vec::new(), abandoned: false }
    }
}

impl<'a, T: Pod + Send> From<&'a SharedBuffer<T>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a SharedBuffer<T>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T: Pod + Send> From<&'a mut SharedBuffer<T>> for DeviceSliceMut<'a, T> {
    fn from(buffer: &'a mut SharedBuffer<T>) -> Self {
        buffer.as_slice_mut()
    }
}

impl<T: Pod + Send> Loan for SharedBuffer<T> {
    fn stream(&self) -> &Stream {
        self.buffer().stream()
    }

    fn let_close(&mut self, session: SessionId) {
        self.homes.iter_mut().filter(|home| home.core.id() == session).for_each(|home| home.open = None);
    }
}

impl<T: Pod + Send> Drop for SharedBuffer<T> {
    /// One session after the other is told; what is left of the buffer is dropped when that has answered.
    fn drop(&mut self) {
        if teardown::forked() {
            return;
        }
        if let Some(Home { core, slot, .. }) = self.homes.pop() {
            let (buffer, homes) = (self.buffer.take(), std::mem::take(&mut self.homes));
            let rest = Self { buffer, homes, abandoned: self.abandoned };
            core.retire(&mut core.lock(), slot, Box::new(rest));
        }
    }
}

impl<T: Pod + Send> fmt::Debug for SharedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBuffer").field("buffer", self.buffer()).field("sessions", &self.homes.len()).finish()
    }
}
