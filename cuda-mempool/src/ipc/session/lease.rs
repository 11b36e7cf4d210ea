//! Buffers that are away.

use std::fmt;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use super::core::{deadline_in, Answer};
use super::frame::Turn;
use super::handle::Handle;
use super::lender::ExporterSide;
use super::signals::reachable;
use crate::ipc::{Error, ImportedBuffer, Result};
use crate::{teardown, Stream};

/// What can be lent: a [`SharedBuffer`](super::SharedBuffer), or an [`ImportedBuffer`] that is handed on.
pub trait Loan: sealed::Loan {}

impl<B: sealed::Loan> Loan for B {}

pub(super) mod sealed {
    use crate::Stream;

    /// A session, by the address of its core.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SessionId(pub(in crate::ipc::session) usize);

    pub trait Loan: Send + 'static {
        /// The stream that it belongs to.
        fn stream(&self) -> &Stream;

        /// From now on it does not keep this session open: nobody holds it.
        fn let_close(&mut self, _session: SessionId) {}
    }
}

impl<T: Send + 'static> sealed::Loan for ImportedBuffer<T> {
    fn stream(&self) -> &Stream {
        ImportedBuffer::stream(self)
    }
}

/// A buffer that is lent to another process: it cannot be touched until it is back.
///
/// Dropping the lease does not wait: the buffer is dropped when the importer has given it back.
#[must_use = "a buffer whose lease is dropped does not come back"]
pub struct Lease<B: Loan> {
    /// Taken when it is over.
    loan: Option<B>,
    session: Arc<Handle<ExporterSide>>,
    turn: Turn,
}

impl<B: Loan> Lease<B> {
    pub(super) fn new(loan: B, session: Arc<Handle<ExporterSide>>, turn: Turn) -> Self {
        Self { loan: Some(loan), session, turn }
    }

    /// Waits until the importer has given the buffer back. What is then enqueued on its stream comes after all that the
    /// importer has enqueued: the GPU's work itself is not waited for.
    ///
    /// # Errors
    /// [`Error::PeerGone`], [`Error::PeerLeft`], [`Error::Abandoned`], [`Error::Violation`] or [`Error::TimedOut`] (the
    /// stall timeout) when the session has ended while the buffer was away. Its memory goes back to the pool when the
    /// importer's process is known to have ended. [`Error::Cuda`] with
    /// [`ErrorKind::Capture`](crate::ErrorKind::Capture) while the buffer's stream is being captured, or with another
    /// failure to have the stream wait: the lease is then dropped. [`wait_timeout`](Self::wait_timeout) gives it back.
    pub fn wait(self) -> Result<B> {
        self.wait_until(None).map_err(|(_, error)| error)
    }

    /// As [`wait`](Self::wait), but not for ever.
    ///
    /// # Errors
    /// As there, with the lease, which can be waited for again, as long as the session has not ended.
    /// [`Error::TimedOut`] with a lease: the time was up.
    pub fn wait_timeout(self, timeout: Duration) -> Result<B, (Option<Self>, Error)> {
        self.wait_until(deadline_in(timeout))
    }

    /// Whether [`wait`](Self::wait) would return at once.
    ///
    /// On a machine without stream memory operations it would not before the importer's work is done, and the socket
    /// does not tell when that is: ask again after a while.
    ///
    /// # Errors
    /// As there, but the lease stays what it is.
    pub fn is_returned(&self) -> Result<bool> {
        reachable()?;
        let mut state = self.session.lock();
        if !state.reading {
            self.session.pump(&mut state, |_| true);
        }
        if state.side.book.is_lent(self.turn) {
            return self.session.alive(&state).map(|()| false);
        }
        Ok(self.session.may_go_on(self.turn) || state.ended.is_some())
    }

    fn wait_until(mut self, deadline: Option<Instant>) -> Result<B, (Option<Self>, Error)> {
        let (session, turn) = (&self.session, self.turn);
        let stream = self.loan.as_ref().expect("there until the lease is over").stream();
        let waited = session.wait_for(deadline, |state| {
            if state.side.book.is_lent(turn) {
                session.alive(state)?;
                return Ok(Answer::OnFrame);
            }
            if state.ended.is_none() && !session.may_go_on(turn) {
                session.note_wait(state, turn);
                return Ok(Answer::OnWord);
            }
            session.take_back(state, stream, turn)?;
            Ok(Answer::Ready(()))
        });
        match waited {
            Ok(Poll::Ready(())) => Ok(self.loan.take().expect("there until the lease is over")),
            Ok(Poll::Pending) => Err((Some(self), Error::TimedOut)),
            Err(error) if self.is_over() => Err((None, error)),
            Err(error) => Err((Some(self), error)),
        }
    }

    /// Whether the session has ended.
    fn is_over(&self) -> bool {
        self.session.lock().ended.is_some()
    }
}

impl<B: Loan> Drop for Lease<B> {
    fn drop(&mut self) {
        let Some(mut loan) = self.loan.take() else { return };
        if teardown::forked() {
            return;
        }
        let (session, turn) = (&self.session, self.turn);
        loan.let_close(session.core.id());
        let loan = Box::new(loan);
        let mut state = session.lock();
        if state.ended.is_some() {
            session.entomb(&mut state, loan);
        } else if state.side.book.is_lent(turn) {
            session.park(&mut state, turn.slot, loan);
        } else {
            session.let_go_in_order(&mut state, turn, loan);
        }
    }
}

impl<B: Loan> fmt::Debug for Lease<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("slot", &self.turn.slot).finish_non_exhaustive()
    }
}
