//! Between processes.
//!
//! Two processes can use the same memory of a device: one allocates, the other maps. Sessions do all of it, order the two
//! processes' streams, and go on when a peer dies; [`ipc`](crate::ipc) describes them:
//!
//! ```no_run
//! # pub fn exporter(socket: std::os::unix::net::UnixStream, device: cuda_mempool::Device)
//! #     -> cuda_mempool::ipc::Result<()> {
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
//! Unix socket. (`send_fd` and `receive_fd` stand for that; `channel` is the socket.)
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
//! ```no_run
//! # use std::os::{fd::{AsFd, BorrowedFd}, unix::net::UnixStream};
//! # fn send_fd(channel: &UnixStream, fd: BorrowedFd<'_>) -> std::io::Result<()> { unimplemented!() }
//! # fn f(device: cuda_mempool::Device, channel: UnixStream) -> Result<(), Box<dyn std::error::Error>> {
//! use cuda_mempool::{HandleTypes, MemPool};
//!
//! let pool = MemPool::builder(device).handle_types(HandleTypes::POSIX_FD).build()?;
//! let fd = pool.export_fd()?; // closed on exec, which the C function forgets
//! send_fd(&channel, fd.as_fd())?;
//! # Ok(()) }
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
//! ```no_run
//! # use std::os::{fd::{AsFd, OwnedFd}, unix::net::UnixStream};
//! # fn receive_fd(channel: &UnixStream) -> std::io::Result<OwnedFd> { unimplemented!() }
//! # fn f(channel: UnixStream) -> Result<(), Box<dyn std::error::Error>> {
//! use cuda_mempool::ipc::ImportedPool;
//!
//! let fd = receive_fd(&channel)?;
//! let pool = ImportedPool::import_fd(fd.as_fd())?;
//! drop(fd);
//! # Ok(()) }
//! ```
//!
//! # Memory and its events
//!
//! Each allocation is exported by a blob of bytes, and the order by an event that both processes know. Any message takes
//! them across: in C it is memory of the host that both have mapped (`shared`), in Rust the socket.
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
//! ```no_run
//! # use std::{io::Write, os::unix::net::UnixStream};
//! # use cuda_mempool::{Device, MemPool, Stream};
//! # fn f(device: Device, pool: MemPool, stream: &Stream, mut channel: UnixStream)
//! #     -> Result<(), Box<dyn std::error::Error>> {
//! use cuda_mempool::Event;
//!
//! let ready = Event::builder(device).interprocess(true).build()?;
//! let mut memory = pool.alloc::<u8>(stream, 512)?;
//! ready.record(stream)?;
//! channel.write_all(&memory.export_pointer()?.to_bytes())?;
//! channel.write_all(ready.ipc_handle()?.as_bytes())?;
//! # Ok(()) }
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
//! # use std::{io::Read, os::unix::net::UnixStream};
//! # use cuda_mempool::{example::kernel, ipc::ImportedPool, Device, Stream};
//! # fn f(device: Device, pool: ImportedPool, stream: &Stream, mut channel: UnixStream)
//! #     -> Result<(), Box<dyn std::error::Error>> {
//! use cuda_mempool::ipc::{EventHandle, PointerExport};
//! use cuda_mempool::Event;
//!
//! let (mut pointer, mut event) = ([0; 80], [0; 64]);
//! channel.read_exact(&mut pointer)?;
//! channel.read_exact(&mut event)?;
//! // SAFETY: the exporter keeps the event until this process is done with it.
//! let ready = unsafe { Event::open_ipc(&EventHandle::from_bytes(event), device)? };
//! // SAFETY: the stream waits for the exporter's work before it does its own, and the exporter frees after.
//! let mut memory = unsafe { pool.import::<u8>(&PointerExport::from_bytes(&pointer), stream)? };
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
//! # use std::{io::Write, os::unix::net::UnixStream};
//! # use cuda_mempool::{ipc::ImportedBuffer, Device, Event, Stream};
//! # fn f(device: Device, memory: ImportedBuffer<u8>, stream: &Stream, mut channel: UnixStream)
//! #     -> Result<(), Box<dyn std::error::Error>> {
//! drop(memory);
//! let finished = Event::builder(device).interprocess(true).build()?;
//! finished.record(stream)?;
//! channel.write_all(finished.ipc_handle()?.as_bytes())?;
//! # Ok(()) }
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
//! # use std::{io::Read, os::unix::net::UnixStream};
//! # use cuda_mempool::{example::kernel, Device, DeviceBuffer, Event, Stream};
//! # fn f(device: Device, mut memory: DeviceBuffer<u8>, stream: &Stream, mut channel: UnixStream)
//! #     -> Result<(), Box<dyn std::error::Error>> {
//! use cuda_mempool::ipc::EventHandle;
//!
//! let mut event = [0; 64];
//! channel.read_exact(&mut event)?;
//! // SAFETY: the importer keeps the event until this process is done with it.
//! let finished = unsafe { Event::open_ipc(&EventHandle::from_bytes(event), device)? };
//! stream.wait(&finished)?;
//! // SAFETY: the kernel writes 512 bytes, on the buffer's stream.
//! unsafe { kernel(memory.as_mut_ptr(), 512, stream) };
//! drop(memory);
//! # Ok(()) }
//! ```
//!
//! A process that dies before its event is reached leaves the other's stream waiting for ever: CUDA has no way out of
//! that. Sessions do not use events for this reason.
