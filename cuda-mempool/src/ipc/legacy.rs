//! The older way to share memory, for memory of `cudaMalloc`: a handle of 64 bytes, and no descriptor.

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{align_of, size_of, size_of_val, ManuallyDrop};
use std::ops::RangeBounds;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use bytemuck::Pod;
use cuda_mempool_sys::{self as sys, cudaIpcMemHandle_t, cudaMemcpyKind};

use super::driver;
use super::handles::{part, same_bytes, MemHandle};
use crate::buffer::{malloc, within};
use crate::current::CurrentDevice;
use crate::error::call;
use crate::{teardown, Device, DeviceSlice, DeviceSliceMut, Error, ErrorKind, Result, Stream};

/// An array of `T` made by `cudaMalloc`: memory that no stream orders, which can be shared by a [`LegacyHandle`].
///
/// Dropping it calls `cudaFree`, which waits for the device. Memory of pools cannot be shared in this way, nor this
/// memory in theirs:
///
/// ```compile_fail,E0599
/// # fn f(buffer: cuda_mempool::DeviceBuffer<u8>) {
/// buffer.legacy_handle(..);
/// # }
/// ```
pub struct LegacyBuffer<T> {
    pointer: NonNull<T>,
    length: usize,
    device: Device,
    owns: PhantomData<T>,
}

/// What another process needs to reach a part of a [`LegacyBuffer`]: plain data to be sent.
///
/// The runtime's handle names the whole allocation, so where the part lies in it comes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegacyHandle {
    /// The allocation.
    pub handle: MemHandle,
    /// Where the first element lies in it, in bytes.
    pub offset: usize,
    /// How many bytes the elements take.
    pub bytes: usize,
}

part!(LegacyHandle, handle: MemHandle);

/// A part of a [`LegacyBuffer`] of another process.
///
/// Opening one allocation several times gives one mapping, which is closed with the last. Dropping it waits for the
/// device, as what is still running would lose the memory.
#[doc(alias = "cudaIpcCloseMemHandle")]
pub struct LegacyImport<T> {
    pointer: NonNull<T>,
    length: usize,
    device: Device,
    handle: MemHandle,
    elements: PhantomData<T>,
}

// SAFETY: it owns its elements, which are reached through the runtime alone; the runtime's functions may be called from
// any thread.
unsafe impl<T: Send> Send for LegacyBuffer<T> {}
// SAFETY: as above. By shared reference the memory is only read.
unsafe impl<T: Sync> Sync for LegacyBuffer<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for LegacyImport<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for LegacyImport<T> {}

/// What both kinds can do with their elements.
macro_rules! elements {
    ($($kind:ident),*) => {
        $(
            impl<T: Pod> $kind<T> {
                /// How many elements there are.
                #[must_use]
                pub fn len(&self) -> usize {
                    self.length
                }

                /// Whether there are no elements.
                #[must_use]
                pub fn is_empty(&self) -> bool {
                    self.length == 0
                }

                /// The device that the memory was made or opened with.
                #[must_use]
                pub fn device(&self) -> Device {
                    self.device
                }

                /// The device pointer.
                #[must_use]
                pub fn as_ptr(&self) -> *const T {
                    self.pointer.as_ptr()
                }

                /// The device pointer.
                #[must_use]
                pub fn as_mut_ptr(&mut self) -> *mut T {
                    self.pointer.as_ptr()
                }

                /// The elements, to read in the order of a stream.
                ///
                /// # Safety
                /// What writes to them, in this process or another, must be ordered before or after what is enqueued on
                /// `stream` while the view lives.
                #[must_use]
                pub unsafe fn on_stream<'a>(&'a self, stream: &'a Stream) -> DeviceSlice<'a, T> {
                    // SAFETY: the memory stays while it is borrowed; the rest is the caller's promise.
                    unsafe { DeviceSlice::from_raw(self.pointer.as_ptr(), self.length, stream) }
                }

                /// The elements, to write in the order of a stream.
                ///
                /// # Safety
                /// All other use of them, in this process or another, must be ordered before or after what is enqueued
                /// on `stream` while the view lives.
                #[must_use]
                pub unsafe fn on_stream_mut<'a>(&'a mut self, stream: &'a Stream) -> DeviceSliceMut<'a, T> {
                    // SAFETY: the memory stays while it is borrowed; the rest is the caller's promise.
                    unsafe { DeviceSliceMut::from_raw(self.pointer.as_ptr(), self.length, stream) }
                }

                /// Copies from `source` on the host, and waits for it.
                ///
                /// # Errors
                /// [`ErrorKind::LengthMismatch`], or what the runtime answers.
                #[doc(alias = "cudaMemcpy")]
                pub fn copy_from_host(&mut self, source: &[T]) -> Result<()> {
                    same_length(source.len(), self.length)?;
                    let bytes = size_of_val(source);
                    // SAFETY: both sides have so many bytes, and the call waits for the copy.
                    unsafe { copy(self.pointer.as_ptr().cast(), source.as_ptr().cast(), bytes, self.device) }
                }

                /// Copies to a new vector, and waits for it.
                ///
                /// # Errors
                /// What the runtime answers.
                #[doc(alias = "cudaMemcpy")]
                pub fn to_vec(&self) -> Result<Vec<T>> {
                    let mut elements = vec![T::zeroed(); self.length];
                    let bytes = size_of_val(elements.as_slice());
                    // SAFETY: both sides have so many bytes, and the call waits for the copy.
                    unsafe { copy(elements.as_mut_ptr().cast(), self.pointer.as_ptr().cast(), bytes, self.device) }?;
                    Ok(elements)
                }
            }

            impl<T> fmt::Debug for $kind<T> {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.debug_struct(stringify!($kind))
                        .field("pointer", &self.pointer)
                        .field("length", &self.length)
                        .field("device", &self.device)
                        .finish_non_exhaustive()
                }
            }
        )*
    };
}

elements!(LegacyBuffer, LegacyImport);

impl<T: Pod> LegacyBuffer<T> {
    /// Allocates `length` elements on `device`. Their contents are unspecified.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] with what the device has free, [`ErrorKind::SizeOverflow`], or what the runtime answers.
    #[doc(alias = "cudaMalloc")]
    pub fn new(device: Device, length: usize) -> Result<Self> {
        const FUNCTION: &str = "cudaMalloc";
        teardown::watch_forks();
        let bytes = length.checked_mul(size_of::<T>()).filter(|&bytes| isize::try_from(bytes).is_ok());
        let Some(bytes) = bytes else {
            return Err(Error::refused(ErrorKind::SizeOverflow, FUNCTION, "more than memory can be addressed"));
        };
        if bytes == 0 || align_of::<T>() > 256 {
            return Err(Error::refused(ErrorKind::InvalidValue, FUNCTION, "nothing to share, or aligned above 256"));
        }
        Ok(Self { pointer: malloc(device, bytes)?.cast(), length, device, owns: PhantomData })
    }

    /// What another process needs to reach a part of this.
    ///
    /// # Errors
    /// What the runtime answers.
    ///
    /// # Panics
    /// When the range is not within the buffer, as for slices.
    #[doc(alias = "cudaIpcGetMemHandle")]
    pub fn legacy_handle(&self, range: impl RangeBounds<usize>) -> Result<LegacyHandle> {
        let range = within(range, self.length);
        let _current = CurrentDevice::set(self.device)?;
        let mut handle = cudaIpcMemHandle_t::default();
        // SAFETY: the out pointer is valid, and the memory alive.
        unsafe { call!(cudaIpcGetMemHandle(&mut handle, self.pointer.as_ptr().cast())) }?;
        Ok(LegacyHandle {
            handle: MemHandle::from_bytes(same_bytes!(handle, cudaIpcMemHandle_t => [u8; 64])),
            offset: range.start * size_of::<T>(),
            bytes: range.len() * size_of::<T>(),
        })
    }
}

impl<T: Pod> LegacyImport<T> {
    /// Opens memory of another process, with `device` current: that of the memory, as this process numbers it.
    ///
    /// # Safety
    /// - The other process must free the memory only after all imports of it are dropped.
    /// - All use of the memory in the other process, and by other imports of it, must be ordered with what is done here.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidValue`] when the part does not lie in the memory or does not suit `T`; or what the runtime
    /// answers: error 201 (`cudaErrorDeviceUninitialized`) to a handle of this very process.
    #[doc(alias = "cudaIpcOpenMemHandle")]
    pub unsafe fn open(handle: &LegacyHandle, device: Device) -> Result<Self> {
        let base = open(&handle.handle, device)?;
        // From here on, an early return closes it.
        let mut import = Self { pointer: base.cast(), length: 0, device, handle: handle.handle, elements: PhantomData };
        let (_, size) = driver::range_of(base.as_ptr().cast())?;
        let first = base.as_ptr().wrapping_add(handle.offset).cast::<T>();
        let whole = size_of::<T>() > 0 && handle.bytes % size_of::<T>() == 0;
        let within = handle.offset.checked_add(handle.bytes).is_some_and(|end| end <= size);
        match NonNull::new(first) {
            Some(first) if whole && within && first.as_ptr() as usize % align_of::<T>() == 0 => {
                import.pointer = first;
                import.length = handle.bytes / size_of::<T>();
                Ok(import)
            }
            _ => Err(Error::refused(
                ErrorKind::InvalidValue,
                "cudaIpcOpenMemHandle",
                "the elements do not lie in the memory, or are not aligned in it",
            )),
        }
    }
}

impl<T> LegacyBuffer<T> {
    /// Takes over memory of `cudaMalloc`: it is freed when the result is dropped.
    ///
    /// # Safety
    /// `pointer` must be what `cudaMalloc` answered with `device` current, with room for `length` initialised elements,
    /// aligned for them, and nobody else may free it.
    #[must_use]
    pub unsafe fn from_raw(pointer: NonNull<T>, length: usize, device: Device) -> Self {
        teardown::watch_forks();
        Self { pointer, length, device, owns: PhantomData }
    }

    /// Gives the memory away: the caller frees it, by `cudaFree`.
    #[must_use = "the memory leaks otherwise"]
    pub fn into_raw(self) -> NonNull<T> {
        ManuallyDrop::new(self).pointer
    }

    /// Frees the memory, as dropping does, and says whether that succeeded.
    ///
    /// # Errors
    /// What `cudaFree` answers, with the buffer.
    #[doc(alias = "cudaFree")]
    pub fn close(self) -> Result<(), (Self, Error)> {
        let this = ManuallyDrop::new(self);
        teardown::try_release("cudaFree", || this.free()).map_err(|error| (ManuallyDrop::into_inner(this), error))
    }

    fn free(&self) -> Result<()> {
        let _current = CurrentDevice::set(self.device)?;
        // SAFETY: the memory is owned, and this is its last use.
        unsafe { call!(cudaFree(self.pointer.as_ptr().cast())) }
    }
}

impl<T> LegacyImport<T> {
    /// Ends this use, as dropping does, and says whether that succeeded. The last one closes the mapping.
    ///
    /// # Errors
    /// What waiting for the device and `cudaIpcCloseMemHandle` answer, with the import.
    #[doc(alias = "cudaIpcCloseMemHandle")]
    pub fn close(self) -> Result<(), (Self, Error)> {
        let this = ManuallyDrop::new(self);
        let closed = teardown::try_release("cudaIpcCloseMemHandle", || close(&this.handle, this.device));
        closed.map_err(|error| (ManuallyDrop::into_inner(this), error))
    }
}

impl<T> Drop for LegacyBuffer<T> {
    fn drop(&mut self) {
        teardown::release("cudaFree", || self.free());
    }
}

impl<T> Drop for LegacyImport<T> {
    fn drop(&mut self) {
        if let Err(error) = teardown::try_release("cudaIpcCloseMemHandle", || close(&self.handle, self.device)) {
            teardown::report(&error);
            keep_open(&self.handle, self.device);
        }
    }
}

fn same_length(source: usize, target: usize) -> Result<()> {
    if source == target {
        return Ok(());
    }
    let why = format!("{source} elements do not fit {target} elements");
    Err(Error::refused(ErrorKind::LengthMismatch, "cudaMemcpy", why))
}

/// # Safety
/// Both pointers must be valid for so many bytes.
unsafe fn copy(target: *mut c_void, source: *const c_void, bytes: usize, device: Device) -> Result<()> {
    let _current = CurrentDevice::set(device)?;
    // SAFETY: the caller's promise.
    unsafe { call!(cudaMemcpy(target, source, bytes, cudaMemcpyKind::cudaMemcpyDefault)) }?;
    // A copy from ordinary memory may return when that has been read, before the data has arrived.
    Stream::legacy(device).synchronize()
}

/// The allocations that are open, by what opened them. One lock is held over looking up, opening and closing.
type Opened = HashMap<(Device, MemHandle), (usize, NonNull<u8>)>;

struct Registry(Opened);

// SAFETY: the pointers are addresses of device memory.
unsafe impl Send for Registry {}

fn opened() -> MutexGuard<'static, Registry> {
    static OPENED: OnceLock<Mutex<Registry>> = OnceLock::new();
    OPENED.get_or_init(|| Mutex::new(Registry(HashMap::new()))).lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(handle: &MemHandle, device: Device) -> Result<NonNull<u8>> {
    const FUNCTION: &str = "cudaIpcOpenMemHandle";
    teardown::watch_forks();
    teardown::reachable(FUNCTION)?;
    let mut opened = opened();
    if let Some((users, base)) = opened.0.get_mut(&(device, *handle)) {
        *users += 1;
        return Ok(*base);
    }
    let _current = CurrentDevice::set(device)?;
    let raw = same_bytes!(*handle.as_bytes(), [u8; 64] => cudaIpcMemHandle_t);
    let mut base: *mut c_void = std::ptr::null_mut();
    // SAFETY: the out pointer is valid, and any bytes may be asked for.
    unsafe { call!(cudaIpcOpenMemHandle(&mut base, raw, sys::cudaIpcMemLazyEnablePeerAccess)) }?;
    let base = NonNull::new(base.cast::<u8>())
        .ok_or_else(|| Error::refused(ErrorKind::Other, FUNCTION, "success, but a null pointer"))?;
    opened.0.insert((device, *handle), (1, base));
    Ok(base)
}

/// Ends a use, unless that fails. The last one closes the mapping.
fn close(handle: &MemHandle, device: Device) -> Result<()> {
    let mut opened = opened();
    let Some((users, base)) = opened.0.get_mut(&(device, *handle)) else { return Ok(()) };
    if *users > 1 {
        *users -= 1;
        return Ok(());
    }
    let base = *base;
    device.synchronize()?;
    let _current = CurrentDevice::set(device)?;
    // SAFETY: it was opened, nobody uses it any more, and what the device did with it is done.
    unsafe { call!(cudaIpcCloseMemHandle(base.as_ptr().cast())) }?;
    opened.0.remove(&(device, *handle));
    Ok(())
}

/// Ends a use without closing the mapping: that is left to whoever opens the memory again.
fn keep_open(handle: &MemHandle, device: Device) {
    if let Some((users, _)) = opened().0.get_mut(&(device, *handle)) {
        *users -= 1;
    }
}
