//! A timeline.

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::mem::{self, ManuallyDrop};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::resource::{DeviceMemoryResource, ResourceId};
use crate::{teardown, Device, Error, Result, Stream};

/// Writes what goes through to another resource as a trace that timeline viewers open, such as Perfetto and
/// `chrome://tracing`.
///
/// The trace has a curve of the bytes in use, a bar for the life of each block, and a mark for each failed allocation.
/// Times are those of the calls on the host, in microseconds. The file is complete when this is dropped, and can be
/// opened also when the program ended before.
///
/// Writing that fails fails no allocation: [`flush`](Self::flush) tells of it. A forked child writes nothing. The writer
/// must not allocate from the same resource: the call would wait for itself. A stream's track is named by its raw handle,
/// so that streams with the same one (the legacy streams of two devices, or one made after another's end) share it.
pub struct LogAdaptor<R> {
    upstream: R,
    id: ResourceId,
    trace: Mutex<Trace>,
}

struct Trace {
    /// Not dropped in a forked child, where that would write what it holds, as its parent will.
    writer: ManuallyDrop<Box<dyn Write + Send>>,
    /// What the writer has not taken yet. It may fail half-way, and the trace goes on with the other half.
    unwritten: Vec<u8>,
    /// What comes before the next event.
    separator: &'static str,
    start: Instant,
    in_use: u64,
    /// Streams are what the viewer calls threads, by raw handle.
    streams: HashMap<usize, usize>,
    /// The first failure to write, after which nothing more is written until somebody was told.
    failure: Option<io::Error>,
}

/// What goes into the file, one object a line.
struct Event<'a> {
    name: &'a str,
    /// The format's letter for what kind of event it is.
    phase: char,
    track: usize,
    /// Further members of the object.
    members: fmt::Arguments<'a>,
}

impl<R> LogAdaptor<R> {
    /// Writes what goes to `upstream` to a new file, in place of one of that name.
    ///
    /// # Errors
    /// What making the file answers.
    pub fn to_file(upstream: R, path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self::to_writer(upstream, BufWriter::new(File::create(path)?)))
    }

    /// Writes what goes to `upstream` to a writer, which best has a buffer.
    #[must_use]
    pub fn to_writer(upstream: R, writer: impl Write + Send + 'static) -> Self {
        teardown::watch_forks();
        let trace = Trace {
            writer: ManuallyDrop::new(Box::new(writer)),
            unwritten: Vec::new(),
            separator: "[\n",
            start: Instant::now(),
            in_use: 0,
            streams: HashMap::new(),
            failure: None,
        };
        Self { upstream, id: ResourceId::unique(), trace: Mutex::new(trace) }
    }

    /// Passes on what the writer holds.
    ///
    /// # Errors
    /// What flushing answers, or the first failure to write since the last call: what came after that is lost, and the trace
    /// goes on with what comes next.
    pub fn flush(&self) -> io::Result<()> {
        if teardown::forked() {
            return Ok(());
        }
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        match trace.failure.take() {
            Some(failure) => Err(failure),
            None => trace.flush(),
        }
    }

    /// The resource behind this one.
    #[must_use]
    pub fn upstream(&self) -> &R {
        &self.upstream
    }

    fn log(&self, write: impl FnOnce(&mut Trace)) {
        if teardown::forked() {
            return;
        }
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        // The writer may be anybody's code.
        if teardown::contain(|| write(&mut trace)).is_err() {
            trace.failure = Some(io::Error::other("the writer panicked"));
        }
    }
}

impl Trace {
    fn allocated(&mut self, pointer: NonNull<c_void>, bytes: usize, alignment: usize, stream: &Stream) {
        let track = self.track(stream);
        self.in_use += bytes as u64;
        self.event(&Event {
            name: "block",
            phase: 'b',
            track,
            members: format_args!(
                r#""cat":"memory","id":"{pointer:p}","args":{{"bytes":{bytes},"alignment":{alignment}}}"#
            ),
        });
        self.bytes_in_use(track);
    }

    fn deallocated(&mut self, pointer: NonNull<c_void>, bytes: usize, stream: &Stream) {
        let track = self.track(stream);
        self.in_use = self.in_use.saturating_sub(bytes as u64);
        self.event(&Event {
            name: "block",
            phase: 'e',
            track,
            members: format_args!(r#""cat":"memory","id":"{pointer:p}""#),
        });
        self.bytes_in_use(track);
    }

    fn failed(&mut self, bytes: usize, error: &Error, stream: &Stream) {
        let track = self.track(stream);
        self.event(&Event {
            name: "failed allocation",
            phase: 'i',
            track,
            members: format_args!(r#""s":"t","args":{{"bytes":{bytes},"error":"{:?}"}}"#, error.kind()),
        });
    }

    fn bytes_in_use(&mut self, track: usize) {
        let in_use = self.in_use;
        self.event(&Event {
            name: "in use",
            phase: 'C',
            track,
            members: format_args!(r#""args":{{"bytes":{in_use}}}"#),
        });
    }

    /// The number of a stream, which gets its name when it is first seen.
    fn track(&mut self, stream: &Stream) -> usize {
        let raw = stream.raw() as usize;
        if let Some(&track) = self.streams.get(&raw) {
            return track;
        }
        let track = self.streams.len() + 1;
        if self.failure.is_some() {
            // The name would be lost.
            return track;
        }
        self.streams.insert(raw, track);
        self.event(&Event {
            name: "thread_name",
            phase: 'M',
            track,
            members: format_args!(r#""args":{{"name":"stream {raw:#x}"}}"#),
        });
        track
    }

    fn event(&mut self, event: &Event<'_>) {
        if self.failure.is_some() {
            return;
        }
        let Event { name, phase, track, members } = event;
        let microseconds = self.start.elapsed().as_nanos() as f64 / 1e3;
        let process = std::process::id();
        let separator = mem::replace(&mut self.separator, ",\n");
        let text = format_args!(
            r#"{separator}{{"name":"{name}","ph":"{phase}","ts":{microseconds:.3},"pid":{process},"tid":{track},{members}}}"#
        );
        self.failure = self.unwritten.write_fmt(text).and_then(|()| self.write_out()).err();
    }

    fn write_out(&mut self) -> io::Result<()> {
        while !self.unwritten.is_empty() {
            match self.writer.write(&self.unwritten) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => drop(self.unwritten.drain(..taken)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_out()?;
        self.writer.flush()
    }

    /// Ends the list, which the format does not insist on.
    fn end(&mut self) -> io::Result<()> {
        let before = if self.separator == ",\n" { "" } else { self.separator };
        write!(self.unwritten, "{before}\n]\n")?;
        self.flush()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if teardown::forked() {
            return;
        }
        // The writer may be anybody's code, and so may the logger.
        let _ = teardown::contain(|| {
            let failure = self.failure.take().or_else(|| self.end().err());
            if let Some(failure) = failure {
                ::log::warn!("the trace of a memory resource is not complete: {failure}");
            }
        });
        let _ = teardown::contain(|| {
            // SAFETY: it is not used again.
            unsafe { ManuallyDrop::drop(&mut self.writer) }
        });
    }
}

// SAFETY: blocks are those of the resource behind, which takes them back; the id is its own.
unsafe impl<R: DeviceMemoryResource> DeviceMemoryResource for LogAdaptor<R> {
    fn allocate_async_aligned(&self, bytes: usize, alignment: usize, stream: &Stream) -> Result<NonNull<c_void>> {
        let answer = self.upstream.allocate_async_aligned(bytes, alignment, stream);
        self.log(|trace| match &answer {
            Ok(pointer) => trace.allocated(*pointer, bytes, alignment, stream),
            Err(error) => trace.failed(bytes, error, stream),
        });
        answer
    }

    unsafe fn deallocate_async_aligned(
        &self,
        pointer: NonNull<c_void>,
        bytes: usize,
        alignment: usize,
        stream: &Stream,
    ) -> Result<()> {
        // Before the call: after it, another thread may be given the same address and log that first.
        self.log(|trace| trace.deallocated(pointer, bytes, stream));
        // SAFETY: the caller's promise.
        unsafe { self.upstream.deallocate_async_aligned(pointer, bytes, alignment, stream) }
            .inspect_err(|_| self.log(|trace| trace.allocated(pointer, bytes, alignment, stream)))
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn device(&self) -> Device {
        self.upstream.device()
    }

    fn trim(&self) -> Result<()> {
        self.upstream.trim()
    }
}

impl<R: fmt::Debug> fmt::Debug for LogAdaptor<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogAdaptor").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}
