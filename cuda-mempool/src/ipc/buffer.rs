//! Memory of another process, as a buffer of this one.

use std::fmt;
use std::mem::size_of;
use std::ops::RangeBounds;
use std::ptr::NonNull;

use bytemuck::Pod;

use super::registry::Mapping;
use super::session::{Borrowed, Passages};
use crate::stream::order;
use crate::{teardown, DeviceSlice, DeviceSliceMut, Error, Stream};

/// An array of `T` in memory of another process.
///
/// It belongs to a stream, as a [`DeviceBuffer`](crate::DeviceBuffer) does, and is read and written through the same
/// views. It keeps its pool.
///
/// One that [`Importer::recv`](super::Importer::recv) gave is handed back when it is dropped: what the exporter
/// enqueues from then on comes after what was enqueued here. (While its stream is being captured, and in a host
/// function, that is put off.) One that [`ImportedPool::import`](super::ImportedPool::import) gave is unmapped, in the
/// order of its stream, with the last buffer of the same memory.
pub struct ImportedBuffer<T> {
    pointer: NonNull<T>,
    length: usize,
    stream: Stream,
    /// Taken only when it is given back.
    from: Option<Origin>,
    /// The sessions that it was handed on in.
    passages: Passages,
}

/// Whom the memory goes back to.
enum Origin {
    Mapping(Mapping),
    Session(Borrowed),
}

// SAFETY: it is the one owner of its elements in this process, which are reached through the runtime alone; the
// runtime's functions may be called from any thread.
unsafe impl<T: Send> Send for ImportedBuffer<T> {}
// SAFETY: as above. By shared reference the memory is only read.
unsafe impl<T: Sync> Sync for ImportedBuffer<T> {}

impl<T> ImportedBuffer<T> {
    pub(super) fn of_mapping(pointer: NonNull<T>, length: usize, stream: Stream, mapping: Mapping) -> Self {
        Self::new(pointer, length, stream, Origin::Mapping(mapping))
    }

    pub(super) fn of_session(pointer: NonNull<T>, length: usize, stream: Stream, borrowed: Borrowed) -> Self {
        Self::new(pointer, length, stream, Origin::Session(borrowed))
    }

    fn new(pointer: NonNull<T>, length: usize, stream: Stream, from: Origin) -> Self {
        Self { pointer, length, stream, from: Some(from), passages: Passages::default() }
    }

    fn from(&self) -> &Origin {
        self.from.as_ref().expect("there until it is given back")
    }

    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// How many bytes the elements take.
    #[must_use]
    pub fn size_in_bytes(&self) -> usize {
        self.length * size_of::<T>()
    }

    /// The stream that it belongs to.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The device pointer, for kernels that read, enqueued on [`stream`](Self::stream).
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.pointer.as_ptr()
    }

    /// The device pointer, for kernels enqueued on [`stream`](Self::stream).
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.pointer.as_ptr()
    }

    /// The number that was sent with it; 0 for one that did not come through a session.
    #[must_use]
    pub fn tag(&self) -> u64 {
        match self.from() {
            Origin::Session(borrowed) => borrowed.tag(),
            Origin::Mapping(_) => 0,
        }
    }

    /// Moves the buffer to another stream: what is enqueued there from now on comes after all work on it so far.
    ///
    /// # Errors
    /// As [`DeviceBuffer::set_stream`](crate::DeviceBuffer::set_stream). The buffer stays on its stream then. A buffer
    /// of a session cannot be moved to a [per-thread stream](Stream::per_thread).
    pub fn set_stream(&mut self, stream: &Stream) -> super::Result<()> {
        if let Origin::Session(borrowed) = self.from() {
            borrowed.may_use(stream)?;
        }
        order(&self.stream, stream)?;
        self.stream = stream.clone();
        Ok(())
    }

    /// Waits for the stream, and says whether the data was whole when the stream came to it.
    ///
    /// When the exporter ends, gives no sign for too long, or breaks the protocol before its work on the data is done,
    /// the stream is let go on, so that nothing is stuck. It has then worked on whatever was there. The same goes for a
    /// process that the buffer was [handed on](super::Forwarder) to, and that has returned it.
    ///
    /// # Errors
    /// [`Error::Abandoned`](super::Error::Abandoned) when that has happened, or what synchronising answers.
    pub fn confirm(&self) -> super::Result<()> {
        self.stream.synchronize()?;
        match self.from() {
            Origin::Session(borrowed) => borrowed.confirm()?,
            Origin::Mapping(_) => {}
        }
        self.passages.confirm()
    }

    /// Gives the buffer back, as dropping does, and says whether that succeeded.
    ///
    /// # Errors
    /// What the runtime answers, with the buffer, which is as it was; [`ErrorKind::Capture`](crate::ErrorKind::Capture)
    /// for a buffer of a session while its stream is being captured. An exporter that has gone is no failure.
    pub fn close(mut self) -> Result<(), (Self, Error)> {
        self.give_back().map_err(|error| (self, error))
    }

    /// Takes apart what is in the session, for handing it on.
    pub(super) fn session(&self) -> Option<&Borrowed> {
        match self.from() {
            Origin::Session(borrowed) => Some(borrowed),
            Origin::Mapping(_) => None,
        }
    }

    /// Sessions that it was handed on in, for another time.
    pub(super) fn passages(&mut self) -> &mut Passages {
        &mut self.passages
    }

    /// Once it has succeeded, nothing is left to be done.
    fn give_back(&mut self) -> Result<(), Error> {
        let Self { stream, from, .. } = self;
        teardown::try_release("cudaFreeAsync", || {
            let given_back = match from.take() {
                Some(Origin::Mapping(mapping)) => {
                    mapping.release(stream).map_err(|(mapping, error)| (Origin::Mapping(mapping), error))
                }
                Some(Origin::Session(borrowed)) => {
                    borrowed.give_back(stream).map_err(|(borrowed, error)| (Origin::Session(borrowed), error))
                }
                None => Ok(()),
            };
            given_back.map_err(|(kept, error)| {
                *from = Some(kept);
                error
            })
        })
    }
}

impl<T: Pod> ImportedBuffer<T> {
    /// All of it, to read.
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        // SAFETY: the memory stays mapped, and the buffer on its stream, while it is borrowed. That the other process's
        // work is ordered is what the session does, or was promised by whoever imported the memory.
        unsafe { DeviceSlice::from_raw(self.pointer.as_ptr(), self.length, &self.stream) }
    }

    /// All of it, to write.
    #[must_use]
    pub fn as_slice_mut(&mut self) -> DeviceSliceMut<'_, T> {
        // SAFETY: as above, and the buffer is borrowed exclusively.
        unsafe { DeviceSliceMut::from_raw(self.pointer.as_ptr(), self.length, &self.stream) }
    }

    /// A part of it, to read.
    ///
    /// # Panics
    /// When the range is not within the buffer, as for slices.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> DeviceSlice<'_, T> {
        self.as_slice().slice(range)
    }

    /// A part of it, to write.
    ///
    /// # Panics
    /// When the range is not within the buffer, as for slices.
    #[must_use]
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> DeviceSliceMut<'_, T> {
        self.as_slice_mut().slice_mut(range)
    }

    /// Copies to a new vector, waits for it, and [confirms](Self::confirm) that the data was whole.
    ///
    /// # Errors
    /// [`Error::Abandoned`](super::Error::Abandoned), or what copying answers.
    pub fn to_vec(&self) -> super::Result<Vec<T>> {
        let elements = self.as_slice().to_vec()?;
        self.confirm()?;
        Ok(elements)
    }
}

impl<'a, T: Pod> From<&'a ImportedBuffer<T>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a ImportedBuffer<T>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T: Pod> From<&'a mut ImportedBuffer<T>> for DeviceSliceMut<'a, T> {
    fn from(buffer: &'a mut ImportedBuffer<T>) -> Self {
        buffer.as_slice_mut()
    }
}

impl<T> Drop for ImportedBuffer<T> {
    fn drop(&mut self) {
        self.passages.end(&self.stream);
        match (self.give_back(), self.from.take()) {
            // A session gives it back as soon as that can be done.
            (Err(_), Some(Origin::Session(borrowed))) => borrowed.give_back_later(&self.stream),
            (Err(error), Some(Origin::Mapping(mapping))) => {
                teardown::report(&error);
                mapping.keep_mapped(&self.stream);
            }
            _ => {}
        }
    }
}

impl<T> fmt::Debug for ImportedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportedBuffer")
            .field("pointer", &self.pointer)
            .field("length", &self.length)
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}
