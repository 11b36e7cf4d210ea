//! Other crates, and C.
//!
//! # Types of one's own
//!
//! Elements are plain data in the sense of [bytemuck]: any bytes are a value, and there is no padding
//! between the fields. Its derive macros (feature `derive` of bytemuck, as a dependency of yours) check that:
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::{MemPool, Stream};
//! # let (stream, pool) = (Stream::new(device)?, MemPool::default_for(device)?);
//! use bytemuck::{Pod, Zeroable};
//!
//! #[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
//! #[repr(C)]
//! struct Particle {
//!     position: [f32; 3],
//!     charge: i32,
//! }
//!
//! let particles = [Particle { position: [0.5, 1.0, 2.0], charge: -1 }; 100];
//! let buffer = pool.from_slice(&stream, &particles)?;
//! assert_eq!(buffer.to_vec()?, particles);
//! # Ok(()) });
//! ```
//!
//! # Kernels
//!
//! Any crate or library that launches kernels on the device's primary context takes the raw stream and the pointers of
//! this one. On the buffer's own stream nothing else is needed; [`with_stream`](crate::DeviceBuffer::with_stream) brings
//! a buffer to another and back. With [cudarc](https://docs.rs/cudarc):
//!
//! ```no_run
//! # fn f(device: cuda_mempool::Device) -> Result<(), Box<dyn std::error::Error>> {
//! use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
//! use cuda_mempool::{MemPool, Stream};
//!
//! let context = CudaContext::new(0)?;
//! let theirs = context.new_stream()?;
//! // SAFETY: `theirs` outlives everything that belongs to this stream.
//! let ours = unsafe { Stream::from_raw_borrowed(theirs.cu_stream().cast(), device) };
//!
//! let mut values = MemPool::default_for(device)?.from_slice(&ours, &[1.0_f32, 2.0, 3.0])?;
//! let scale = context.load_module(cudarc::nvrtc::Ptx::from_file("scale.ptx"))?.load_function("scale")?;
//! let (pointer, count, factor) = (values.as_mut_ptr() as u64, values.len() as u64, 2.0_f32);
//! let mut launch = theirs.launch_builder(&scale);
//! launch.arg(&pointer).arg(&count).arg(&factor);
//! // SAFETY: these are the kernel's parameters, and it writes so many values.
//! unsafe { launch.launch(LaunchConfig::for_num_elems(3)) }?;
//! println!("{:?}", values.to_vec()?);
//! # Ok(()) }
//! ```
//!
//! The example `with_cudarc` is this as a program, with the memory itself going over to cudarc and back. cuBLAS, NCCL and
//! the like take the stream in the same way. Which handle types of a pool keep NCCL, UCX and MPI fast is told in
//! `docs/multi-node.md`.
//!
//! # C
//!
//! Every handle goes both ways: `as_raw` lends, `from_raw_borrowed` borrows, `into_raw` and `from_raw` hand ownership
//! over, and whoever has it last frees. Memory that C allocated is a [`DeviceBuffer`](crate::DeviceBuffer) after
//! [`from_raw`](crate::DeviceBuffer::from_raw), and the other way round. C code does not meet errors of this crate: the
//! thread's last error is clear after each.
//!
//! Both sides best use one runtime. Of the link kinds `dylib` and `static` they do, when the C code is compiled as
//! [`sys`](crate::sys) says and leaves the linking to it; with `dlopen` the C code links the shared library itself, and
//! the first call of Rust finds that in the process. The repository's `tests/fixtures/c-dependant` is a crate with C and
//! CUDA code to start from, and `cuda-mempool-c` is this crate's allocator of pinned memory for C.
//!
//! A library that comes with a runtime inside, as RMM's does, makes two. They share what is the driver's, and little else:
//!
//! | | with two runtimes in the process |
//! |---|---|
//! | pools, streams, events and memory | handles of the driver: either side may use, free or destroy what the other made |
//! | the device's context | the primary one, for both |
//! | a thread's last error | each has its own, and neither meets that of the other |
//! | the runtime's version | each has its own; the driver must be new enough for both |
//! | kernels in C code | known to the runtime that the code was linked with, and launched by it |
//!
//! The fixture `two-runtimes` tests that, with C code on a static runtime of another version. C code that brings a
//! `libcudart_static.a` into the program itself shares it with Rust when the link kind here is `static`.
//!
//! # Collections
//!
//! The collections of the standard library and of hashbrown can lie in pinned memory, which devices copy at full speed
//! and kernels can read: [`host`](crate::host), and the examples `pinned_vec` and `pinned_map` (with the feature
//! `allocator-api2`).
//!
//! # The log
//!
//! The crate writes to the [log](https://docs.rs/log) facade what nobody can be handed as an error: above all what goes
//! wrong in a drop. A program that has set up any logger sees it; one that wants to count or to stop sets a hook of its
//! own instead:
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! use std::sync::atomic::{AtomicUsize, Ordering};
//! use cuda_mempool::{DeviceBuffer, Home, RawDeviceBuffer, Stream};
//!
//! static LEAKS: AtomicUsize = AtomicUsize::new(0);
//! cuda_mempool::on_drop_error(|error| {
//!     LEAKS.fetch_add(1, Ordering::Relaxed);
//!     eprintln!("leaked: {error}");
//! });
//!
//! let mut local = 0_u8;
//! let pointer = std::ptr::from_mut(&mut local);
//! let (base, stream, home) = (pointer.cast(), Stream::new(device)?, Home::RUNTIME);
//! let raw = RawDeviceBuffer { pointer, length: 1, base, stream, home };
//! // SAFETY: for the example's sake this is wrong: it is no memory that CUDA can free. CUDA refuses to.
//! drop(unsafe { DeviceBuffer::from_raw(raw) });
//! assert_eq!(LEAKS.load(Ordering::Relaxed), 1);
//! # Ok(()) });
//! ```
//!
//! # Threads
//!
//! | type | `Send` | `Sync` | |
//! |---|---|---|---|
//! | [`Device`](crate::Device), [`Error`](crate::Error), and what else is made of numbers | yes | yes | plain data |
//! | [`Stream`](crate::Stream), [`Event`](crate::Event), [`MemPool`](crate::MemPool) | yes | yes | shared handles; work of several threads on one stream comes in the order of their calls |
//! | [`DeviceBuffer<T>`](crate::DeviceBuffer), [`DeviceSliceMut<T>`](crate::DeviceSliceMut) | yes | yes | to write takes `&mut`, as for a `Vec` |
//! | [`DeviceSlice<T>`](crate::DeviceSlice) | yes | yes | |
//! | [`Scope`](crate::Scope) | yes | yes | threads may lend to it as long as it lasts |
//! | [`BlockCache`](crate::BlockCache) | yes | yes | a thread that shares it waits for the others; one for each thread does not |
//! | [`CudaAsyncMemoryResource`](crate::resource::CudaAsyncMemoryResource) and those like it | yes | yes | |
//! | [the adaptors](crate::resource) | if the resource is | if the resource is | |
//! | [`NumaAllocator`](crate::host::NumaAllocator) | yes | yes | a shared handle |
//! | [`PinnedBox<[T]>`](crate::host::PinnedBox) | if `T` is | if `T` is | as a `Box` |
//! | [`ipc::ImportedPool`](crate::ipc::ImportedPool) | yes | yes | a shared handle |
//! | [`ipc::Exporter`](crate::ipc::Exporter), [`Importer`](crate::ipc::Importer), [`Forwarder`](crate::ipc::Forwarder), [`Lease`](crate::ipc::Lease) | yes | yes | calls of several threads take turns |
//! | [`ipc::SharedBuffer<T>`](crate::ipc::SharedBuffer), [`ImportedBuffer<T>`](crate::ipc::ImportedBuffer), [`LegacyBuffer<T>`](crate::ipc::LegacyBuffer), [`LegacyImport<T>`](crate::ipc::LegacyImport) | yes | yes | as a `DeviceBuffer` |
//! | [`Home`](crate::Home), [`RawDeviceBuffer<T>`](crate::RawDeviceBuffer) | yes, no | yes, no | the second has raw pointers |
//!
//! A [per-thread stream](crate::Stream::per_thread) is of one type with the others, so it can be sent; used on another
//! thread it refuses, with an error.
//!
//! ```
//! use cuda_mempool::resource::{self, CudaAsyncMemoryResource};
//! use cuda_mempool::{host, BlockCache, CacheStats, Home, MemoryInfo, OutOfMemory, PoolUsage};
//! use cuda_mempool::{Device, DeviceBuffer, DeviceSlice, DeviceSliceMut, Error, Event, MemPool, Scope, Stream};
//!
//! fn both<T: Send + Sync>() {}
//! both::<(Device, Error, MemoryInfo, OutOfMemory, PoolUsage, CacheStats, host::Stats)>();
//! both::<(Stream, Event, MemPool)>();
//! both::<(DeviceBuffer<u8>, DeviceSlice<'_, u8>, DeviceSliceMut<'_, u8>)>();
//! both::<(Scope<'_, '_>, BlockCache, Home)>();
//! both::<(host::NumaAllocator, host::PinnedBox<[u8]>)>();
//! both::<(CudaAsyncMemoryResource, resource::CudaAsyncViewMemoryResource)>();
//! both::<(resource::CudaAsyncManagedMemoryResource, resource::CudaAsyncPinnedMemoryResource)>();
//! both::<resource::LimitAdaptor<resource::RetryAdaptor<CudaAsyncMemoryResource>>>();
//! both::<resource::LogAdaptor<resource::StatisticsAdaptor<CudaAsyncMemoryResource>>>();
//! # #[cfg(target_os = "linux")] {
//! use cuda_mempool::ipc::{self, ImportedBuffer, SharedBuffer};
//! both::<(ipc::Exporter, ipc::Importer, ipc::Forwarder)>();
//! both::<(ipc::Lease<SharedBuffer<u8>>, ipc::Lease<ImportedBuffer<u8>>)>();
//! both::<(ipc::ImportedPool, ipc::PointerExport, ipc::EventHandle, ipc::FabricHandle, ipc::LegacyHandle)>();
//! both::<(SharedBuffer<u8>, ImportedBuffer<u8>, ipc::LegacyBuffer<u8>, ipc::LegacyImport<u8>)>();
//! # }
//! ```
//!
//! ```compile_fail,E0277
//! # fn send<T: Send>() {}
//! send::<cuda_mempool::host::PinnedBox<[std::rc::Rc<u8>]>>();
//! ```
//!
//! ```compile_fail,E0277
//! # fn sync<T: Sync>() {}
//! sync::<cuda_mempool::host::PinnedBox<[std::cell::Cell<u8>]>>();
//! ```
//!
//! ```compile_fail,E0277
//! # fn send<T: Send>() {}
//! send::<cuda_mempool::resource::StatisticsAdaptor<std::rc::Rc<u8>>>();
//! ```
//!
//! ```compile_fail,E0277
//! # fn send<T: Send>() {}
//! send::<cuda_mempool::RawDeviceBuffer<u8>>();
//! ```
//!
//! ```compile_fail,E0277
//! # fn sync<T: Sync>() {}
//! sync::<cuda_mempool::RawDeviceBuffer<u8>>();
//! ```
