//! A stream under capture.

use std::ptr::null_mut;

use cuda_mempool_sys::{cudaError_t, cudaGraphExec_t, cudaGraph_t, cudaStreamCaptureMode, cudaStreamCaptureStatus};

use super::guards::Stream;

/// While it lives the stream captures.
pub struct Capture<'s> {
    stream: &'s Stream,
}

impl<'s> Capture<'s> {
    /// Captures what the stream is given; calls of other threads are not concerned.
    #[track_caller]
    pub fn of(stream: &'s Stream) -> Self {
        Self::with_mode(stream, cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal)
    }

    #[track_caller]
    pub fn with_mode(stream: &'s Stream, mode: cudaStreamCaptureMode) -> Self {
        ok!(cudaStreamBeginCapture(stream.raw(), mode));
        Self { stream }
    }

    #[track_caller]
    pub fn status(&self) -> cudaStreamCaptureStatus {
        status_of(self.stream)
    }

    /// The graph, if the capture is still valid.
    #[track_caller]
    pub fn end(self) -> Result<Graph, cudaError_t> {
        let mut graph = null_mut();
        let answer = ask!(cudaStreamEndCapture(self.stream.raw(), &mut graph));
        std::mem::forget(self);
        if answer == cudaError_t::cudaSuccess {
            Ok(Graph(graph))
        } else {
            Err(answer)
        }
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        let mut graph = null_mut();
        if ask!(cudaStreamEndCapture(self.stream.raw(), &mut graph)) == cudaError_t::cudaSuccess {
            drop(Graph(graph));
        }
    }
}

#[track_caller]
pub fn status_of(stream: &Stream) -> cudaStreamCaptureStatus {
    let mut status = cudaStreamCaptureStatus(99);
    ok!(cudaStreamIsCapturing(stream.raw(), &mut status));
    status
}

pub struct Graph(cudaGraph_t);

impl Graph {
    #[track_caller]
    pub fn new() -> Self {
        let mut graph = null_mut();
        ok!(cudaGraphCreate(&mut graph, 0));
        Self(graph)
    }

    pub fn raw(&self) -> cudaGraph_t {
        self.0
    }

    #[track_caller]
    pub fn instantiate(&self) -> Executable {
        let mut executable = null_mut();
        ok!(cudaGraphInstantiateWithFlags(&mut executable, self.0, 0));
        Executable(executable)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        ask!(cudaGraphDestroy(self.0));
    }
}

pub struct Executable(cudaGraphExec_t);

impl Executable {
    pub fn raw(&self) -> cudaGraphExec_t {
        self.0
    }

    #[track_caller]
    pub fn launch(&self, stream: &Stream) {
        ok!(cudaGraphLaunch(self.0, stream.raw()));
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        ask!(cudaGraphExecDestroy(self.0));
    }
}
