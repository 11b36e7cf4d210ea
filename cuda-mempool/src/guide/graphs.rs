//! Graphs and capture.
//!
//! While a stream is captured into a graph, nothing runs: what is enqueued becomes nodes of the graph, to run at each
//! launch. That does not go with buffers:
//!
//! - Memory allocated then belongs to the graph. So an allocation on a stream that is being captured is refused with
//!   [`ErrorKind::Capture`](crate::ErrorKind::Capture). Allocate before, and capture what uses it.
//! - A copy with host memory would use that memory at each launch, long after the borrow: refused too, and so are
//!   closures as host functions, and scopes, which could not wait.
//! - To drop a buffer then fails on the device's side: the memory is leaked and the
//!   [hook](crate::on_drop_error) told. Drop after the capture has ended.
//!
//! While one thread captures in global mode, allocating and freeing fail on every thread, and spoil the capture. The
//! thread-local mode leaves the others alone.
//!
//! Fills, and copies between buffers, are captured. The pointers in the graph are then yours to keep valid: capture is
//! begun with raw calls, and their `unsafe` covers it.
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! use cuda_mempool::{sys, ErrorKind, MemPool, Stream};
//!
//! let stream = Stream::new(device)?;
//! let pool = MemPool::default_for(device)?;
//! let mut buffer = pool.alloc_zeroed::<u8>(&stream, 16)?;
//! # let mut graph = std::ptr::null_mut();
//! // SAFETY: the stream is alive; the graph is not launched, so no pointer in it is used.
//! unsafe { sys::cudaStreamBeginCapture(stream.as_raw(), sys::cudaStreamCaptureMode::cudaStreamCaptureModeThreadLocal) };
//! assert!(stream.is_capturing()?);
//! buffer.fill_bytes(7)?; // a node of the graph
//! let error = pool.alloc::<u8>(&stream, 16).unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Capture);
//! // SAFETY: as above.
//! unsafe { sys::cudaStreamEndCapture(stream.as_raw(), &mut graph) };
//! assert_eq!(buffer.to_vec()?, [0; 16]);
//! # // SAFETY: the graph is ours.
//! # unsafe { sys::cudaGraphDestroy(graph) };
//! # Ok(()) });
//! ```
//!
//! # Memory that graphs allocate
//!
//! Graphs can have nodes of their own that allocate and free. That memory is in no pool; it is counted for the device,
//! and kept when the graphs are gone:
//!
//! ```c
//! uint64_t reserved = 0;
//! cudaDeviceGetGraphMemAttribute(device, cudaGraphMemAttrReservedMemCurrent, &reserved);
//! cudaDeviceGraphMemTrim(device);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! println!("graphs hold {} bytes", device.graph_memory()?.reserved);
//! device.trim_graph_memory()?;
//! # Ok(()) });
//! ```
