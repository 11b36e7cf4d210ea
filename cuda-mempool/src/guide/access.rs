//! Other devices, and the host.
//!
//! The memory of a pool on a device can at first be used by kernels of that device alone, and the memory of a pool on the
//! host by the CPU alone. (Copies reach it all the same, but [slowly](#pools-on-the-host).) Access is granted pool by
//! pool: `cudaDeviceEnablePeerAccess` has no say here. In C the order of the two checks matters:
//!
//! ```c
//! cudaError_t grant(cudaMemPool_t pool, int owner, int peer) {
//!     int can = 0;
//!     cudaError_t error = cudaDeviceCanAccessPeer(&can, peer, owner);
//!     if (error != cudaSuccess) return error;
//!     if (!can) return cudaErrorPeerAccessUnsupported;
//!     struct cudaMemAccessDesc access;
//!     memset(&access, 0, sizeof access);
//!     access.location.type = cudaMemLocationTypeDevice;
//!     access.location.id = peer;
//!     access.flags = cudaMemAccessFlagsProtReadWrite;
//!     return cudaMemPoolSetAccess(pool, &access, 1);
//! }
//! ```
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! use cuda_mempool::{Access, Device, ErrorKind, MemPool};
//!
//! let pool = MemPool::builder(device).build()?;
//! for peer in Device::all()?.filter(|&peer| peer != device) {
//!     match pool.set_access(peer, Access::ReadWrite) {
//!         Ok(()) => assert_eq!(pool.access(peer)?, Access::ReadWrite),
//!         Err(error) if error.kind() == ErrorKind::PeerAccess => println!("{error}"),
//!         Err(error) => return Err(error),
//!     }
//! }
//! # Ok(()) });
//! ```
//!
//! Copies between buffers need no grant, on whatever device they are:
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::{Device, MemPool, Stream};
//! let last = Device::all()?.last().unwrap();
//! let here = MemPool::default_for(device)?.from_slice(&Stream::new(device)?, &[1_u16, 2, 3])?;
//! let mut there = MemPool::default_for(last)?.alloc::<u16>(&Stream::new(last)?, 3)?;
//! there.copy_from(&here)?;
//! assert_eq!(there.to_vec()?, [1, 2, 3]);
//! # Ok(()) });
//! ```
//!
//! One driver (590.48.01, with GPUs of the Turing generation) was reported to copy nothing between devices, and to say
//! nothing, once one of the pools was granted to the other device. If that is yours, compare the bytes once.
//!
//! # Pools on the host
//!
//! A pool on the host needs a grant before a fill or a kernel, which fail without. Copies go through without one, and that
//! is a trap: the driver takes the memory for ordinary memory and stages it. On an H200 (driver 580.159, CUDA 13.0) a copy
//! of 1 GiB to the device ran at 8.4 GB/s without a grant and at 55 GB/s with one. So grant each device that copies:
//!
//! ```
//! # cuda_mempool::example::run(|device| {
//! # use cuda_mempool::{Access, ErrorKind, Location, MemPool, Stream};
//! # let stream = Stream::new(device)?;
//! let builder = MemPool::builder(Location::HostNuma(device.host_numa_node()?.unwrap_or(0)));
//! let pool = match builder.grant(device, Access::ReadWrite).build() {
//!     Ok(pool) => pool,
//!     Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
//!     Err(error) => return Err(error),
//! };
//! let buffer = pool.alloc_zeroed::<u8>(&stream, 100)?;
//! assert_eq!(buffer.to_vec()?, [0; 100]);
//! # Ok(()) });
//! ```
