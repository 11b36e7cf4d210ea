//! Pools.
//!
//! Each device has a default pool, which plain `cudaMallocAsync` uses. A pool of one's own has its own settings and
//! statistics, and shares no memory with others:
//!
//! ```c
//! struct cudaMemPoolProps properties;
//! memset(&properties, 0, sizeof properties);
//! properties.allocType = cudaMemAllocationTypePinned;
//! properties.location.type = cudaMemLocationTypeDevice;
//! properties.location.id = 0;
//! cudaMemPoolCreate(&pool, &properties);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! use cuda_mempool::{Location, MemPool};
//!
//! let pool = MemPool::builder(Location::Device(device)).build()?;
//! # Ok(()) });
//! ```
//!
//! Pools can lie on the host: on one of its NUMA nodes, and be shared with other processes through a file descriptor.
//! Devices have no access to them at first: kernels and fills fail, and copies are staged, at 8.4 instead of 55 GB/s on an
//! H200. [`grant`](super::access#pools-on-the-host) gives access.
//!
//! ```c
//! properties.allocType = cudaMemAllocationTypePinned;
//! properties.location.type = cudaMemLocationTypeHostNuma;
//! properties.location.id = node;
//! properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
//! cudaMemPoolCreate(&pool, &properties);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! use cuda_mempool::{ErrorKind, HandleTypes, Location, MemPool};
//!
//! let node = device.host_numa_node()?.unwrap_or(0);
//! let pool = MemPool::builder(Location::HostNuma(node)).handle_types(HandleTypes::POSIX_FD).build();
//! match pool {
//!     Ok(pool) => println!("a pool on {}", pool.location()),
//!     Err(error) if error.kind() == ErrorKind::Unsupported => println!("no: {}", error.missing().unwrap()),
//!     Err(error) => return Err(error),
//! }
//! # Ok(()) });
//! ```
//!
//! # What is supported
//!
//! A driver older than the attribute does not know the question, which is not a no. A device says yes, no or nothing,
//! and building a pool refuses only after a no, with an error that names what is missing.
//!
//! ```c
//! int driver = 0, pools = 0, types = 0;
//! cudaDriverGetVersion(&driver);
//! if (driver >= 11020) cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device);
//! if (driver >= 11030) cudaDeviceGetAttribute(&types, cudaDevAttrMemoryPoolSupportedHandleTypes, device);
//! if (types & cudaMemHandleTypePosixFileDescriptor) { /* pools can be shared */ }
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! use cuda_mempool::{Feature, Support};
//!
//! if device.supports(Feature::MemoryPools)? != Support::No {
//!     let shared = device.supports(Feature::PosixFdPools)?;
//!     println!("pools, and whether they can be shared: {shared}");
//! }
//! # Ok(()) });
//! ```
//!
//! # What a pool keeps
//!
//! When a stream or device is synchronised, a pool gives back to the system what it has beyond its release threshold,
//! which is 0 at first: a loop that waits in each round pays for fresh memory in each round. A high threshold keeps it:
//!
//! ```c
//! uint64_t everything = UINT64_MAX;
//! cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &everything);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::MemPool;
//! let pool = MemPool::builder(device).release_threshold(u64::MAX).build()?;
//! // or later
//! pool.set_release_threshold(u64::MAX)?;
//! assert_eq!(pool.release_threshold()?, u64::MAX);
//! # Ok(()) });
//! ```
//!
//! A phase that takes much memory, and then a trim for those who come after. The wait tells the pool that the frees are
//! done; without it nothing could be given back.
//!
//! ```c
//! for (int round = 0; round < 10; round++) {
//!     for (int k = 0; k < 10; k++) cudaMallocAsync(&parts[k], sizes[k], stream);
//!     for (int k = 0; k < 10; k++) kernel<<<blocks, threads, 0, stream>>>(parts[k]);
//!     for (int k = 0; k < 10; k++) cudaFreeAsync(parts[k], stream);
//! }
//! cudaStreamSynchronize(stream);
//! cudaMemPoolTrimTo(pool, 0);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::example::kernel;
//! # use cuda_mempool::{DeviceBuffer, MemPool, Stream};
//! # let stream = Stream::new(device)?;
//! # let pool = MemPool::builder(device).release_threshold(u64::MAX).build()?;
//! for _round in 0..10 {
//!     let mut memory = (1..=10).map(|k| pool.alloc(&stream, k << 10)).collect::<Result<Vec<DeviceBuffer<u8>>, _>>()?;
//!     for buffer in &mut memory {
//!         // SAFETY: the kernel writes the whole buffer, on its stream.
//!         unsafe { kernel(buffer.as_mut_ptr(), buffer.len(), &stream) };
//!     }
//! }
//! pool.sync_and_trim(&stream, 0)?;
//! assert_eq!(pool.usage()?.reserved, 0);
//! # Ok(()) });
//! ```
//!
//! # Statistics
//!
//! ```c
//! struct { uint64_t reserved, reserved_high, used, used_high; } usage;
//! cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &usage.reserved);
//! cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &usage.reserved_high);
//! cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &usage.used);
//! cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &usage.used_high);
//! uint64_t reset = 0;
//! cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &reset);
//! cudaMemPoolSetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &reset);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::{MemPool, Stream};
//! # let stream = Stream::new(device)?;
//! let pool = MemPool::builder(device).build()?;
//! drop(pool.alloc::<u8>(&stream, 1000)?);
//! let usage = pool.usage()?;
//! assert_eq!((usage.used, usage.used_high), (0, 1000));
//! pool.reset_high_marks()?;
//! assert_eq!(pool.usage()?.used_high, 0);
//! # Ok(()) });
//! ```
//!
//! # The current pool
//!
//! Code that calls plain `cudaMallocAsync` can be made to use a pool of ours:
//!
//! ```c
//! cudaDeviceSetMemPool(device, pool);
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::MemPool;
//! let pool = MemPool::builder(device).build()?;
//! MemPool::set_current_for(device, &pool)?;
//! assert_eq!(MemPool::current_for(device)?, pool);
//! drop(pool); // and the default pool takes its place
//! assert_eq!(MemPool::current_for(device)?, MemPool::default_for(device)?);
//! # Ok(()) });
//! ```
