//! Stream capture: calls that become nodes of a graph instead of being run.

use std::collections::BTreeMap;
use std::thread::ThreadId;

use crate::cuda::{cudaError, cudaStreamCaptureMode};
use crate::graph::{Action, Graph};
use crate::handles::Id;
use crate::memory::allocation::Kind;
use crate::sim::Sim;
use crate::stream::StreamId;
use crate::Outcome;

/// A capture's own number.
pub type CaptureId = Id<Capture>;

/// A capture that has begun and not ended.
#[derive(Debug)]
pub struct Capture {
    pub graph: Graph,
    pub origin: StreamId,
    mode: cudaStreamCaptureMode,
    thread: ThreadId,
    pub invalidated: bool,
    /// For each stream that takes part, the nodes that its next one comes after.
    ends: BTreeMap<StreamId, Vec<usize>>,
}

impl Sim {
    /// The capture that a stream takes part in.
    pub fn capture_of(&self, stream: StreamId) -> Option<CaptureId> {
        self.streams.get(stream).and_then(|stream| stream.capture)
    }

    /// The capture that a stream takes part in, still valid.
    ///
    /// # Errors
    /// When it was invalidated.
    pub fn valid_capture_of(&self, stream: StreamId) -> Outcome<Option<CaptureId>> {
        let capture = self.capture_of(stream);
        match capture.and_then(|id| self.captures.get(id)) {
            Some(capture) if capture.invalidated => Err(cudaError::cudaErrorStreamCaptureInvalidated),
            _ => Ok(capture),
        }
    }

    /// Begins a capture.
    pub fn begin_capture(&mut self, origin: StreamId, mode: cudaStreamCaptureMode) {
        let capture = Capture {
            graph: Graph::default(),
            origin,
            mode,
            thread: std::thread::current().id(),
            invalidated: false,
            ends: BTreeMap::new(),
        };
        let id = self.captures.insert(capture);
        self.join_capture(id, origin, Vec::new());
    }

    /// A stream takes part from now on, or comes after more nodes.
    pub fn join_capture(&mut self, id: CaptureId, stream: StreamId, after: Vec<usize>) {
        self.streams.get_mut(stream).expect("the caller resolved it").capture = Some(id);
        let capture = self.captures.get_mut(id).expect("captures end with their streams");
        let ends = capture.ends.entry(stream).or_default();
        ends.extend(after);
        ends.sort_unstable();
        ends.dedup();
    }

    /// Ends the capture that began on this stream.
    ///
    /// # Errors
    /// When it was invalidated, began elsewhere or on another thread, or other streams were not joined again. All but the
    /// wrong stream or thread end it nevertheless.
    pub fn end_capture(&mut self, stream: StreamId) -> Outcome<Graph> {
        let id = self.capture_of(stream).ok_or(cudaError::cudaErrorIllegalState)?;
        let capture = self.captures.get(id).expect("captures end with their streams");
        if capture.origin != stream {
            return Err(cudaError::cudaErrorStreamCaptureUnmatched);
        }
        let relaxed = capture.mode == cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed;
        if !relaxed && capture.thread != std::thread::current().id() {
            return Err(cudaError::cudaErrorStreamCaptureWrongThread);
        }
        let capture = self.captures.remove(id).expect("found above");
        for stream in capture.ends.keys() {
            if let Some(stream) = self.streams.get_mut(*stream) {
                stream.capture = None;
            }
        }
        let all: Vec<_> = capture.ends.values().flatten().copied().collect();
        let verdict = if capture.invalidated {
            Err(cudaError::cudaErrorStreamCaptureInvalidated)
        } else if !capture.graph.leads_to(&all, &capture.ends[&stream]) {
            Err(cudaError::cudaErrorStreamCaptureUnjoined)
        } else {
            Ok(())
        };
        if verdict.is_err() {
            self.drop_graph(&capture.graph);
        }
        verdict.map(|()| capture.graph)
    }

    /// Adds a node behind all that the stream has captured.
    pub fn capture(&mut self, id: CaptureId, stream: StreamId, action: Action) {
        if let Action::Alloc(base) | Action::Free(base) = action {
            self.use_memory_at(base);
        }
        let capture = self.captures.get_mut(id).expect("captures end with their streams");
        let after = capture.ends.remove(&stream).unwrap_or_default();
        let node = capture.graph.add(after, action);
        capture.ends.insert(stream, vec![node]);
    }

    /// The nodes that a stream's next one would come after.
    pub fn captured_ends(&self, id: CaptureId, stream: StreamId) -> Vec<usize> {
        self.captures.get(id).and_then(|capture| capture.ends.get(&stream)).cloned().unwrap_or_default()
    }

    /// An allocation that is captured becomes memory of the graph.
    pub fn capture_alloc(&mut self, id: CaptureId, stream: StreamId, size: usize) -> Outcome<usize> {
        if size == 0 {
            return Ok(0);
        }
        let device = self.streams.get(stream).expect("the caller resolved it").device;
        let base = self.graph_allocation(device, size)?;
        self.capture(id, stream, Action::Alloc(base));
        Ok(base)
    }

    /// A captured free must be of memory that a graph has allocated.
    pub fn capture_free(&mut self, id: CaptureId, stream: StreamId, base: usize) -> Outcome {
        if self.space.at(base).map(|allocation| allocation.kind) != Some(Kind::Graph) {
            return Err(cudaError::cudaErrorInvalidValue);
        }
        self.capture(id, stream, Action::Free(base));
        Ok(())
    }

    /// A call that waits for, or asks, a stream that is captured.
    ///
    /// # Errors
    /// Unsupported, and the capture is invalid from then on.
    pub fn refuse_if_captured(&mut self, stream: StreamId) -> Outcome {
        let Some(id) = self.capture_of(stream) else { return Ok(()) };
        self.captures.get_mut(id).expect("captures end with their streams").invalidated = true;
        Err(cudaError::cudaErrorStreamCaptureUnsupported)
    }

    /// Invalidates a capture, if it has not ended.
    pub fn invalidate(&mut self, id: CaptureId) {
        if let Some(capture) = self.captures.get_mut(id) {
            capture.invalidated = true;
        }
    }

    /// A call outside of captures that may disturb them.
    ///
    /// # Errors
    /// Unsupported while a capture forbids it to this thread; then that capture is invalid.
    pub fn police(&mut self, mode: cudaStreamCaptureMode) -> Outcome {
        if self.captures.is_empty() {
            return Ok(());
        }
        let thread = std::thread::current().id();
        let forbids = |capture: &Capture| match mode {
            cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed => false,
            cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal => {
                capture.thread == thread && capture.mode != cudaStreamCaptureMode::cudaStreamCaptureModeRelaxed
            }
            _ => {
                capture.mode == cudaStreamCaptureMode::cudaStreamCaptureModeGlobal
                    || capture.thread == thread
                        && capture.mode == cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal
            }
        };
        let disturbed: Vec<_> =
            self.captures.iter().filter(|(_, capture)| forbids(capture)).map(|(id, _)| id).collect();
        if disturbed.is_empty() {
            return Ok(());
        }
        for id in disturbed {
            self.invalidate(id);
        }
        Err(cudaError::cudaErrorStreamCaptureUnsupported)
    }

    /// The legacy stream would wait for the blocking streams of its device, which a captured one cannot bear.
    ///
    /// # Errors
    /// Implicit dependency; then the capture is invalid.
    pub fn police_legacy(&mut self, device: usize) -> Outcome {
        if self.captures.is_empty() {
            return Ok(());
        }
        let captured = self.streams.iter().filter(|(_, stream)| stream.device == device && stream.is_blocking());
        let captures: Vec<_> = captured.filter_map(|(_, stream)| stream.capture).collect();
        if captures.is_empty() {
            return Ok(());
        }
        for id in captures {
            self.invalidate(id);
        }
        Err(cudaError::cudaErrorStreamCaptureImplicit)
    }
}
