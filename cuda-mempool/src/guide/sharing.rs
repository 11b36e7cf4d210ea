//! Between processes.
//!
//! Two processes can use the same memory of a device: one allocates, the other maps. Sessions do all of it, order the two
//! processes' streams, and go on when a peer dies; [`ipc`](crate::ipc) describes them:
//!
//! ```no_run
//! # fn f(socket: std::os::unix::net::UnixStream, device: cuda_mempool::Device) -> cuda_mempool::ipc::Result<()> {
//! use cuda_mempool::{ipc::Exporter, HandleTypes, MemPool, Stream};
//!
//! let stream = Stream::new(device)?;
//! let pool = MemPool::builder(device).handle_types(HandleTypes::POSIX_FD).build()?;
//! let exporter = Exporter::new(socket, &pool)?;
//! let lease = exporter.send(pool.from_slice(&stream, &[1_u32, 2, 3])?).map_err(|(_buffer, error)| error)?;
//! let buffer = lease.wait()?; // back from the other process, behind what it did
//! # drop(buffer);
//! # Ok(()) }
//! ```
//!
//! What follows is what they are made of, for programs with a transport and an order of their own.
//!
//! # A pool
//!
//! The exporting process makes a pool that can be shared, and a descriptor of it, which goes to the other process over a
//! Unix socket. (`send_fd` and `receive_fd` stand for that.)
//!
//! ```c
//! /* the exporting process */
//! properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
//! cudaMemPoolCreate(&pool, &properties);
//! int fd;
//! cudaMemPoolExportToShareableHandle(&fd, pool, cudaMemHandleTypePosixFileDescriptor, 0);
//! send_fd(channel, fd);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! use cuda_mempool::{HandleTypes, MemPool};
//!
//! let pool = MemPool::builder(device).handle_types(HandleTypes::POSIX_FD).build()?;
//! let fd = pool.export_fd()?; // closed on exec, which the C function forgets
//! # drop(fd);
//! # Ok(()) });
//! ```
//!
//! The importing process gets a pool that cannot allocate. In C the descriptor itself is what is passed as a pointer:
//!
//! ```c
//! /* the importing process */
//! int fd = receive_fd(channel);
//! cudaMemPoolImportFromShareableHandle(&pool, (void *)(uintptr_t)fd, cudaMemHandleTypePosixFileDescriptor, 0);
//! close(fd);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::{HandleTypes, MemPool};
//! # let fd = MemPool::builder(device).handle_types(HandleTypes::POSIX_FD).build()?.export_fd()?;
//! use std::os::fd::AsFd;
//! use cuda_mempool::ipc::ImportedPool;
//!
//! let pool = ImportedPool::import_fd(fd.as_fd())?;
//! drop(fd);
//! # Ok(()) });
//! ```
//!
//! # Memory and its events
//!
//! Each allocation is exported by a blob of bytes, and the order by an event that both processes know. `shared` is memory
//! of the host that both have mapped; any message would do.
//!
//! ```c
//! /* the exporting process */
//! cudaEventCreateWithFlags(&ready, cudaEventDisableTiming | cudaEventInterprocess);
//! cudaMallocFromPoolAsync(&memory, size, pool, stream);
//! cudaEventRecord(ready, stream);
//! cudaMemPoolExportPointer(&shared->memory, memory);
//! cudaIpcGetEventHandle(&shared->ready, ready);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::{HandleTypes, MemPool, Stream};
//! # let stream = Stream::new(device)?;
//! # let pool = MemPool::builder(device).handle_types(HandleTypes::POSIX_FD).build()?;
//! use cuda_mempool::Event;
//!
//! let ready = Event::builder(device).interprocess(true).build()?;
//! let memory = pool.alloc::<u8>(&stream, 512)?;
//! ready.record(&stream)?;
//! let bytes: ([u8; 80], [u8; 64]) = (memory.export_pointer()?.to_bytes(), *ready.ipc_handle()?.as_bytes());
//! # assert_ne!(bytes, ([0; 80], [0; 64]));
//! # Ok(()) });
//! ```
//!
//! ```c
//! /* the importing process */
//! cudaIpcOpenEventHandle(&ready, shared->ready);
//! cudaMemPoolImportPointer(&memory, pool, &shared->memory);
//! cudaStreamWaitEvent(stream, ready, 0);
//! kernel<<<blocks, threads, 0, stream>>>(memory);
//! ```
//!
//! ```no_run
//! # use cuda_mempool::example::kernel;
//! # fn f(device: cuda_mempool::Device, pool: &cuda_mempool::ipc::ImportedPool, stream: &cuda_mempool::Stream,
//! #     bytes: ([u8; 80], [u8; 64])) -> cuda_mempool::Result<()> {
//! use cuda_mempool::ipc::{EventHandle, PointerExport};
//! use cuda_mempool::Event;
//!
//! // SAFETY: the exporter keeps the event until this process is done with it.
//! let ready = unsafe { Event::open_ipc(&EventHandle::from_bytes(bytes.1), device)? };
//! // SAFETY: the stream waits for the exporter's work before it does its own, and the exporter frees after.
//! let mut memory = unsafe { pool.import::<u8>(&PointerExport::from_bytes(&bytes.0), stream)? };
//! stream.wait(&ready)?;
//! // SAFETY: the kernel writes 512 bytes, on the buffer's stream.
//! unsafe { kernel(memory.as_mut_ptr(), 512, stream) };
//! # Ok(()) }
//! ```
//!
//! # The end
//!
//! The importing process unmaps first, in the order of its stream, and tells by another event when that is done:
//!
//! ```c
//! /* the importing process */
//! cudaFreeAsync(memory, stream);
//! cudaEventCreateWithFlags(&finished, cudaEventDisableTiming | cudaEventInterprocess);
//! cudaEventRecord(finished, stream);
//! cudaIpcGetEventHandle(&shared->finished, finished);
//! ```
//!
//! ```no_run
//! # fn f(device: cuda_mempool::Device, memory: cuda_mempool::ipc::ImportedBuffer<u8>, stream: &cuda_mempool::Stream)
//! #     -> cuda_mempool::Result<[u8; 64]> {
//! use cuda_mempool::Event;
//!
//! drop(memory);
//! let finished = Event::builder(device).interprocess(true).build()?;
//! finished.record(stream)?;
//! let bytes: [u8; 64] = *finished.ipc_handle()?.as_bytes();
//! # Ok(bytes) }
//! ```
//!
//! Then the exporting process may go on with the memory, and free it:
//!
//! ```c
//! /* the exporting process */
//! cudaIpcOpenEventHandle(&finished, shared->finished);
//! cudaStreamWaitEvent(stream, finished, 0);
//! kernel<<<blocks, threads, 0, stream>>>(memory);
//! cudaFreeAsync(memory, stream);
//! ```
//!
//! ```no_run
//! # use cuda_mempool::example::kernel;
//! # fn f(device: cuda_mempool::Device, mut memory: cuda_mempool::DeviceBuffer<u8>, stream: &cuda_mempool::Stream,
//! #     bytes: [u8; 64]) -> cuda_mempool::Result<()> {
//! use cuda_mempool::{ipc::EventHandle, Event};
//!
//! // SAFETY: the importer keeps the event until this process is done with it.
//! let finished = unsafe { Event::open_ipc(&EventHandle::from_bytes(bytes), device)? };
//! stream.wait(&finished)?;
//! // SAFETY: the kernel writes 512 bytes, on the buffer's stream.
//! unsafe { kernel(memory.as_mut_ptr(), 512, stream) };
//! drop(memory);
//! # Ok(()) }
//! ```
//!
//! A process that dies before its event is reached leaves the other's stream waiting for ever: CUDA has no way out of
//! that. Sessions do not use events for this reason.
