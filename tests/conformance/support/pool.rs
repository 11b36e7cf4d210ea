//! Pools of a fact's own, and their memory.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use cuda_mempool_sys::{
    cudaError_t, cudaMemAccessDesc, cudaMemAccessFlags, cudaMemAllocationHandleType, cudaMemLocation, cudaMemPoolAttr,
    cudaMemPoolProps, cudaMemPool_t,
};

use super::fact::Skip;
use super::guards::Stream;
use super::machine;
use super::words::*;

/// A pool, destroyed with its guard.
pub struct Pool(cudaMemPool_t);

impl Pool {
    #[track_caller]
    pub fn create(props: &cudaMemPoolProps) -> Self {
        let mut pool = null_mut();
        ok!(cudaMemPoolCreate(&mut pool, props));
        Self(pool)
    }

    /// Pinned memory of device 0.
    #[track_caller]
    pub fn device() -> Self {
        Self::on_device(0, NO_HANDLE)
    }

    #[track_caller]
    pub fn on_device(ordinal: c_int, handles: cudaMemAllocationHandleType) -> Self {
        Self::create(&cudaMemPoolProps::new(PINNED, cudaMemLocation::device(ordinal), handles))
    }

    /// Pinned memory of device 0, whose pool can be exported as a file descriptor.
    pub fn device_for_ipc() -> Result<Self, Skip> {
        machine::shares_by_fd()?;
        Ok(Self::on_device(0, FD))
    }

    /// Pinned memory of device 0, at most that many bytes of it.
    #[track_caller]
    pub fn device_up_to(bytes: usize) -> Self {
        let props = cudaMemPoolProps::new(PINNED, cudaMemLocation::device(0), NO_HANDLE);
        Self::create(&props.with_max_size(bytes))
    }

    /// Pinned host memory.
    pub fn host() -> Result<Self, Skip> {
        machine::has_host_pools()?;
        Ok(Self::create(&cudaMemPoolProps::new(PINNED, cudaMemLocation::host(), NO_HANDLE)))
    }

    /// Pinned memory of the NUMA node nearest to device 0.
    pub fn host_numa(handles: cudaMemAllocationHandleType) -> Result<Self, Skip> {
        let node = machine::host_numa_node()?;
        Ok(Self::create(&cudaMemPoolProps::new(PINNED, cudaMemLocation::host_numa(node), handles)))
    }

    /// Takes over a pool that the runtime has handed out.
    pub fn from_raw(pool: cudaMemPool_t) -> Self {
        Self(pool)
    }

    pub fn raw(&self) -> cudaMemPool_t {
        self.0
    }

    #[track_caller]
    pub fn alloc<'s>(&self, size: usize, stream: &'s Stream) -> Memory<'s> {
        let mut pointer = null_mut();
        ok!(cudaMallocFromPoolAsync(&mut pointer, size, self.0, stream.raw()));
        Memory { pointer, stream }
    }

    #[track_caller]
    pub fn attribute(&self, attribute: cudaMemPoolAttr) -> u64 {
        attribute_of(self.0, attribute)
    }

    #[track_caller]
    pub fn reserved(&self) -> u64 {
        self.attribute(RESERVED)
    }

    #[track_caller]
    pub fn used(&self) -> u64 {
        self.attribute(USED)
    }

    #[track_caller]
    pub fn set_threshold(&self, mut bytes: u64) {
        ok!(cudaMemPoolSetAttribute(self.0, RELEASE_THRESHOLD, std::ptr::from_mut(&mut bytes).cast()));
    }

    /// Allows these reuse policies and forbids the others.
    #[track_caller]
    pub fn allow_reuse(&self, allowed: &[cudaMemPoolAttr]) {
        for policy in REUSE_POLICIES {
            let mut value = c_int::from(allowed.contains(&policy));
            ok!(cudaMemPoolSetAttribute(self.0, policy, std::ptr::from_mut(&mut value).cast()));
        }
    }

    pub fn set_access(&self, location: cudaMemLocation, flags: cudaMemAccessFlags) -> cudaError_t {
        let access = cudaMemAccessDesc::new(location, flags);
        cu!(cudaMemPoolSetAccess(self.0, &access, 1))
    }

    #[track_caller]
    pub fn grant(&self, device: c_int) {
        let access = cudaMemAccessDesc::new(cudaMemLocation::device(device), READ_WRITE);
        ok!(cudaMemPoolSetAccess(self.0, &access, 1));
    }

    #[track_caller]
    pub fn access(&self, mut location: cudaMemLocation) -> cudaMemAccessFlags {
        let mut flags = cudaMemAccessFlags(99);
        ok!(cudaMemPoolGetAccess(&mut flags, self.0, &mut location));
        flags
    }

    /// Destroys the pool, as dropping it does.
    #[track_caller]
    pub fn destroy(self) {
        ok!(cudaMemPoolDestroy(self.0));
        std::mem::forget(self);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        ask!(cudaMemPoolDestroy(self.0));
    }
}

/// An attribute of any pool. The reuse policies are `int`s, all others 64 bits: zeroes above an `int` read the same.
#[track_caller]
pub fn attribute_of(pool: cudaMemPool_t, attribute: cudaMemPoolAttr) -> u64 {
    let mut value = 0u64;
    ok!(cudaMemPoolGetAttribute(pool, attribute, std::ptr::from_mut(&mut value).cast()));
    value
}

/// Memory of a pool, freed with its guard on the stream it was made on.
pub struct Memory<'s> {
    pointer: *mut c_void,
    stream: &'s Stream,
}

impl Memory<'_> {
    /// Memory from the current device's pool.
    #[track_caller]
    pub fn new(size: usize, stream: &Stream) -> Memory<'_> {
        let mut pointer = null_mut();
        ok!(cudaMallocAsync(&mut pointer, size, stream.raw()));
        Memory { pointer, stream }
    }

    pub fn ptr(&self) -> *mut c_void {
        self.pointer
    }

    pub fn at(&self, offset: usize) -> *mut c_void {
        self.pointer.wrapping_byte_add(offset)
    }

    /// The memory, to be freed by the fact itself.
    pub fn release(self) -> *mut c_void {
        let pointer = self.pointer;
        std::mem::forget(self);
        pointer
    }

    #[track_caller]
    pub fn free(self) {
        let stream = self.stream;
        ok!(cudaFreeAsync(self.release(), stream.raw()));
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        ask!(cudaFreeAsync(self.pointer, self.stream.raw()));
    }
}
