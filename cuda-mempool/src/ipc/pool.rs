//! Pools that cross the border of a process.

use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytemuck::Pod;
use cuda_mempool_sys::{cudaError_t, cudaMemAllocationHandleType, cudaMemPoolPtrExportData, cudaMemPool_t};

use super::buffer::ImportedBuffer;
use super::driver;
use super::handles::{part, same_bytes, FabricHandle, PointerBlob};
use super::registry::Mapping;
use crate::error::call;
use crate::{teardown, Access, Device, DeviceBuffer, Error, ErrorKind, HandleTypes, Location, MemPool, Result, Stream};

impl MemPool {
    /// A descriptor with which another process can import this pool, which must have been made with
    /// [`HandleTypes::POSIX_FD`]. It is closed on exec; send it over a socket.
    ///
    /// From the first time on the runtime keeps a descriptor of its own, as long as the pool lives.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidValue`] when the pool was made without that handle type, or what the runtime answers.
    #[doc(alias = "cudaMemPoolExportToShareableHandle")]
    pub fn export_fd(&self) -> Result<OwnedFd> {
        let mut fd: i32 = -1;
        // SAFETY: the pool is alive, and for this type the handle is an int.
        unsafe { self.export(std::ptr::from_mut(&mut fd).cast(), HandleTypes::POSIX_FD) }?;
        // SAFETY: the runtime made the descriptor for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: works on an open descriptor. The runtime leaves the flag clear.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
            return Err(refused_by_system("fcntl", &std::io::Error::last_os_error()));
        }
        Ok(fd)
    }

    /// A handle with which processes of the same IMEX domain can import this pool, which must have been made with
    /// [`HandleTypes::FABRIC`].
    ///
    /// # Errors
    /// [`ErrorKind::NotPermitted`] when the system was not set up for it when this was first asked,
    /// [`ErrorKind::InvalidValue`] when the pool was made without that handle type, or what the runtime answers.
    #[doc(alias = "cudaMemPoolExportToShareableHandle")]
    pub fn export_fabric(&self) -> Result<FabricHandle> {
        teardown::reachable("cudaMemPoolExportToShareableHandle")?;
        fabric_is_permitted(self.location())?;
        let mut bytes = [0_u8; 64];
        // SAFETY: the pool is alive, and for this type the handle is 64 bytes.
        unsafe { self.export(bytes.as_mut_ptr().cast(), HandleTypes::FABRIC) }?;
        Ok(FabricHandle::from_bytes(bytes))
    }

    /// # Safety
    /// `handle` must be valid for writing a handle of this type.
    unsafe fn export(&self, handle: *mut c_void, types: HandleTypes) -> Result<()> {
        // SAFETY: the pool is alive; the rest is the caller's promise.
        unsafe { call!(cudaMemPoolExportToShareableHandle(handle, self.as_raw(), raw(types), 0)) }
    }
}

/// Whether fabric handles can be exported in this process, tried on a pool that nobody uses.
///
/// A driver that refuses (580.159 was seen to) crashes when the pool is destroyed after that, or its memory freed. So it is
/// asked once, and that pool is leaked.
fn fabric_is_permitted(location: Location) -> Result<()> {
    static REFUSAL: OnceLock<Option<cudaError_t>> = OnceLock::new();
    let try_out = || {
        let pool = MemPool::builder(location).handle_types(HandleTypes::FABRIC).build().ok()?;
        let mut bytes = [0_u8; 64];
        // SAFETY: for this type the handle is 64 bytes.
        let error = unsafe { pool.export(bytes.as_mut_ptr().cast(), HandleTypes::FABRIC) }.err()?;
        std::mem::forget(pool);
        (error.kind() == ErrorKind::NotPermitted).then(|| error.raw())
    };
    match *REFUSAL.get_or_init(try_out) {
        Some(code) => Err(Error::failed(code, "cudaMemPoolExportToShareableHandle")),
        None => Ok(()),
    }
}

fn refused_by_system(function: &'static str, error: &std::io::Error) -> Error {
    Error::refused(ErrorKind::Other, function, error.to_string())
}

fn raw(types: HandleTypes) -> cudaMemAllocationHandleType {
    cudaMemAllocationHandleType(types.bits() as _)
}

/// How another process can map the memory of a [`DeviceBuffer`]: plain data to be sent.
///
/// The runtime's blob names an allocation as a whole, so where the elements lie in it comes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerExport {
    /// The allocation.
    pub blob: PointerBlob,
    /// Where the first element lies in it, in bytes.
    pub offset: usize,
    /// How many bytes the elements take.
    pub bytes: usize,
}

part!(PointerExport, blob: PointerBlob);

impl<T: Pod> DeviceBuffer<T> {
    /// How another process, which has imported the pool, can map this memory.
    ///
    /// The other process must have freed its mapping before this buffer is freed, in an order that the two have to
    /// bring about. An [`Exporter`](super::Exporter) does that.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidValue`] for an empty buffer, memory that is not of a pool, or of one that was not exported
    /// itself before; or what the runtime answers.
    #[doc(alias = "cudaMemPoolExportPointer")]
    pub fn export_pointer(&self) -> Result<PointerExport> {
        const FUNCTION: &str = "cudaMemPoolExportPointer";
        let bytes = self.size_in_bytes();
        if bytes == 0 {
            return Err(Error::refused(ErrorKind::InvalidValue, FUNCTION, "an empty buffer has no memory to share"));
        }
        let first = self.as_ptr().cast::<c_void>();
        let (base, _) = driver::range_of(first)?;
        let mut data = cudaMemPoolPtrExportData::default();
        // SAFETY: the pointer is to live memory, and the out pointer valid.
        unsafe { call!(cudaMemPoolExportPointer(&mut data, base.as_ptr().cast())) }?;
        Ok(PointerExport {
            blob: PointerBlob::from_bytes(same_bytes!(data, cudaMemPoolPtrExportData => [u8; 64])),
            offset: first as usize - base.as_ptr() as usize,
            bytes,
        })
    }
}

/// A pool of another process.
///
/// A handle: clones are the same pool. Buffers of it keep it. It cannot allocate, trim, or tell its attributes: the
/// runtime refuses.
#[derive(Clone)]
pub struct ImportedPool(Arc<Inner>);

struct Inner {
    raw: cudaMemPool_t,
    owned: bool,
    /// Never used again, as the handle of a destroyed pool may be.
    number: u64,
}

// SAFETY: the runtime's functions may be called with one pool from several threads at once.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl ImportedPool {
    /// Imports a pool by the descriptor that its process exported. The descriptor can be closed afterwards.
    ///
    /// A process can import its own pool, as another handle; its memory then has a second address.
    ///
    /// # Errors
    /// What the runtime answers: error 999 (`cudaErrorUnknown`) to a descriptor that is no pool.
    #[doc(alias = "cudaMemPoolImportFromShareableHandle")]
    pub fn import_fd(fd: BorrowedFd<'_>) -> Result<Self> {
        // The descriptor itself is what is given as the handle, and 0 would be no handle: any other of the same file does.
        let other = match fd.as_raw_fd() {
            0 => Some(fd.try_clone_to_owned().map_err(|error| refused_by_system("fcntl", &error))?),
            _ => None,
        };
        let fd = other.as_ref().map_or(fd, AsFd::as_fd);
        let handle = fd.as_raw_fd() as usize as *mut c_void;
        // SAFETY: for this type the handle is a descriptor, which is open.
        unsafe { Self::import_handle(handle, HandleTypes::POSIX_FD) }
    }

    /// Imports a pool by its fabric handle.
    ///
    /// # Errors
    /// [`ErrorKind::NotPermitted`] when the system is not set up for it, or what the runtime answers.
    #[doc(alias = "cudaMemPoolImportFromShareableHandle")]
    pub fn import_fabric(handle: &FabricHandle) -> Result<Self> {
        let mut bytes = *handle.as_bytes();
        // SAFETY: for this type the handle is 64 bytes.
        unsafe { Self::import_handle(bytes.as_mut_ptr().cast(), HandleTypes::FABRIC) }
    }

    /// # Safety
    /// `handle` must be what this type of handle is.
    unsafe fn import_handle(handle: *mut c_void, types: HandleTypes) -> Result<Self> {
        let mut pool: cudaMemPool_t = std::ptr::null_mut();
        // SAFETY: the out pointer is valid; the rest is the caller's promise.
        unsafe { call!(cudaMemPoolImportFromShareableHandle(&mut pool, handle, raw(types), 0)) }?;
        Ok(Self::from_parts(pool, true))
    }

    fn from_parts(raw: cudaMemPool_t, owned: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        teardown::watch_forks();
        Self(Arc::new(Inner { raw, owned, number: NEXT.fetch_add(1, Ordering::Relaxed) }))
    }

    /// Takes over a pool that other code has imported: it is destroyed with the last clone of the result.
    ///
    /// # Safety
    /// `raw` must be a live pool, made by `cudaMemPoolImportFromShareableHandle`, and nobody else may destroy it. What
    /// other code has imported from it must not be imported here while it is mapped there: one pointer has one mapping,
    /// which the first to free it ends.
    #[must_use]
    pub unsafe fn from_raw(raw: cudaMemPool_t) -> Self {
        Self::from_parts(raw, true)
    }

    /// Uses a pool that other code has imported, and destroys when it wants to.
    ///
    /// # Safety
    /// As for [`from_raw`](Self::from_raw), but that `raw` must stay alive as long as any clone of the result, those of
    /// its buffers included.
    #[must_use]
    pub unsafe fn from_raw_borrowed(raw: cudaMemPool_t) -> Self {
        Self::from_parts(raw, false)
    }

    /// Maps memory of this pool, for use in the order of `stream`. Nothing waits, unless the same memory was mapped
    /// before and is still to be unmapped: that is waited for, up to ten seconds.
    ///
    /// Importing the same memory again gives the same mapping, however often and from whichever thread; it is unmapped
    /// with the last of the buffers.
    ///
    /// # Safety
    /// - All use of the memory in the other process must be ordered before or after what is enqueued on the buffer's
    ///   stream, as for two streams of one process.
    /// - All buffers of the same memory must be ordered with each other in that way too.
    /// - The other process must free the memory only after this one has unmapped it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidValue`] when the extent does not lie in the memory or does not suit `T`;
    /// [`ErrorKind::NotPermitted`] when the ten seconds are over; or what the runtime answers, for instance to bytes
    /// that are no export.
    #[doc(alias = "cudaMemPoolImportPointer")]
    pub unsafe fn import<T: Pod>(&self, export: &PointerExport, stream: &Stream) -> Result<ImportedBuffer<T>> {
        let mapping = Mapping::import(self, &export.blob, stream)?;
        match mapping.elements(export.offset, export.bytes) {
            Some((pointer, length)) => Ok(ImportedBuffer::of_mapping(pointer, length, stream.clone(), mapping)),
            None => {
                mapping.let_go(stream)?;
                Err(Error::refused(
                    ErrorKind::InvalidValue,
                    "cudaMemPoolImportPointer",
                    "the elements do not lie in the memory, or are not aligned in it",
                ))
            }
        }
    }

    /// What `device` may do with the memory.
    ///
    /// # Errors
    /// What the runtime answers.
    #[doc(alias = "cudaMemPoolGetAccess")]
    pub fn access(&self, device: Device) -> Result<Access> {
        Access::of_pool(self.0.raw, device)
    }

    /// Sets what `device` may do with the memory, as seen from this process.
    ///
    /// The device that the memory lies on always reads and writes it, and other devices start with nothing. Before access
    /// is taken away, what the device is doing is waited for.
    ///
    /// # Errors
    /// What the runtime answers, for instance when the device cannot reach the memory.
    #[doc(alias = "cudaMemPoolSetAccess")]
    pub fn set_access(&self, device: Device, access: Access) -> Result<()> {
        access.set_for_pool(self.0.raw, device)
    }

    /// Drops this handle; when nothing else keeps the pool, destroys its handle here and says whether that succeeded.
    ///
    /// # Errors
    /// What `cudaMemPoolDestroy` answers, with the pool.
    #[doc(alias = "cudaMemPoolDestroy")]
    pub fn close(self) -> Result<(), (Self, Error)> {
        let Some(inner) = Arc::into_inner(self.0) else { return Ok(()) };
        let inner = ManuallyDrop::new(inner);
        teardown::try_release("cudaMemPoolDestroy", || inner.destroy())
            .map_err(|error| (Self(Arc::new(ManuallyDrop::into_inner(inner))), error))
    }

    /// The raw handle. It stays valid as long as any clone of this pool, or a buffer of it.
    #[must_use]
    pub fn as_raw(&self) -> cudaMemPool_t {
        self.0.raw
    }

    /// Gives the raw handle away: the caller destroys the pool, if this crate would have.
    ///
    /// # Errors
    /// Gives the pool back when other clones of it exist, or buffers of it.
    pub fn into_raw(self) -> Result<cudaMemPool_t, Self> {
        let inner = Arc::try_unwrap(self.0).map_err(Self)?;
        Ok(ManuallyDrop::new(inner).raw)
    }

    /// A number that no other imported pool of this process ever has.
    pub(super) fn number(&self) -> u64 {
        self.0.number
    }

    /// For a map that does not keep pools.
    pub(super) fn downgrade(&self) -> WeakPool {
        WeakPool(Arc::downgrade(&self.0))
    }
}

pub(super) struct WeakPool(std::sync::Weak<Inner>);

impl WeakPool {
    pub(super) fn upgrade(&self) -> Option<ImportedPool> {
        self.0.upgrade().map(ImportedPool)
    }
}

/// Handles of one import are equal.
impl PartialEq for ImportedPool {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ImportedPool {}

impl fmt::Debug for ImportedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportedPool").field("raw", &self.0.raw).finish_non_exhaustive()
    }
}

impl Inner {
    fn destroy(&self) -> Result<()> {
        if !self.owned {
            return Ok(());
        }
        // SAFETY: the pool is owned, and this is its last use: its buffers keep it.
        unsafe { call!(cudaMemPoolDestroy(self.raw)) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        teardown::release("cudaMemPoolDestroy", || self.destroy());
    }
}
