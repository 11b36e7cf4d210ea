//! Constructors and accessors that mean the same under every version of the headers.
//!
//! All start from a zeroed struct: a reserved byte that is not zero makes the runtime refuse it.

use core::ffi::{c_int, c_ushort, c_void};
use core::mem::size_of;

use crate::{
    c_enum, cudaMemAccessDesc, cudaMemAccessFlags, cudaMemAllocationHandleType, cudaMemAllocationType, cudaMemLocation,
    cudaMemLocationType, cudaMemPoolProps,
};

// Values of the newest headers, for headers that do not name them yet. A runtime or driver that does not know one
// answers InvalidValue.
const LOCATION_NONE: c_enum = 0;
const LOCATION_DEVICE: c_enum = 1;
const LOCATION_HOST: c_enum = 2;
const LOCATION_HOST_NUMA: c_enum = 3;
const LOCATION_HOST_NUMA_CURRENT: c_enum = 4;

/// `id` is a plain field up to 13.2 and an arm of an anonymous union from 13.3 on, always in this place.
const LOCATION_ID: usize = size_of::<c_enum>();
/// `maxSize` and `usage` lie here in the headers that have them (12.2 and 12.6), and are reserved zeroes before.
const PROPS_MAX_SIZE: usize = 24;
const PROPS_USAGE: usize = PROPS_MAX_SIZE + size_of::<usize>();

impl cudaMemLocation {
    /// A location of any kind, named by its number.
    #[must_use]
    pub fn new(kind: cudaMemLocationType, id: c_int) -> Self {
        let mut location = Self { type_: kind, ..Self::default() };
        // SAFETY: the id's place holds a `c_int` in every layout.
        unsafe { write(&mut location, LOCATION_ID, id) };
        location
    }

    /// No location in particular: for managed memory without a preferred place. The headers name it from 13.0 on.
    #[must_use]
    pub fn none() -> Self {
        Self::new(cudaMemLocationType(LOCATION_NONE), 0)
    }

    /// The memory of the device with this ordinal.
    #[must_use]
    pub fn device(ordinal: c_int) -> Self {
        Self::new(cudaMemLocationType(LOCATION_DEVICE), ordinal)
    }

    /// Host memory. The headers name it from 12.2 on; pools there need 13.0.
    #[must_use]
    pub fn host() -> Self {
        Self::new(cudaMemLocationType(LOCATION_HOST), 0)
    }

    /// The memory of a host NUMA node. The headers name it from 12.2 on.
    #[must_use]
    pub fn host_numa(node: c_int) -> Self {
        Self::new(cudaMemLocationType(LOCATION_HOST_NUMA), node)
    }

    /// The NUMA node nearest to the calling thread. No pool can be made there.
    #[must_use]
    pub fn host_numa_current() -> Self {
        Self::new(cudaMemLocationType(LOCATION_HOST_NUMA_CURRENT), 0)
    }

    /// The device's ordinal or the node's number; without meaning for other kinds.
    #[must_use]
    pub fn id(&self) -> c_int {
        // SAFETY: the id's place holds a `c_int` in every layout.
        unsafe { read(self, LOCATION_ID) }
    }
}

impl cudaMemAccessDesc {
    /// What `location` may do with a pool's memory.
    #[must_use]
    pub fn new(location: cudaMemLocation, flags: cudaMemAccessFlags) -> Self {
        Self { location, flags }
    }
}

impl cudaMemPoolProps {
    /// A pool of this kind of memory at `location`, without a size limit.
    ///
    /// `handle_types` is a mask: several handle types can be asked for at once.
    #[must_use]
    pub fn new(
        kind: cudaMemAllocationType,
        location: cudaMemLocation,
        handle_types: cudaMemAllocationHandleType,
    ) -> Self {
        Self { allocType: kind, location, handleTypes: handle_types, ..Self::default() }
    }

    /// Security attributes for Win32 handles. Null elsewhere.
    #[must_use]
    pub fn with_win32_security_attributes(mut self, attributes: *mut c_void) -> Self {
        self.win32SecurityAttributes = attributes;
        self
    }

    /// The most bytes the pool may hold; 0 leaves it to the system. The runtime rounds up.
    ///
    /// The headers have it from 12.2 on; an older driver answers InvalidValue to anything but 0.
    #[must_use]
    pub fn with_max_size(mut self, bytes: usize) -> Self {
        // SAFETY: eight bytes at this place are `maxSize` or reserved in every layout.
        unsafe { write(&mut self, PROPS_MAX_SIZE, bytes) };
        self
    }

    /// The most bytes the pool may hold; 0 when it is left to the system.
    #[must_use]
    pub fn max_size(&self) -> usize {
        // SAFETY: eight bytes at this place are `maxSize` or reserved in every layout.
        unsafe { read(self, PROPS_MAX_SIZE) }
    }

    /// The intended use, as a mask: 2 asks for memory that the decompression engine can read.
    ///
    /// The headers have it from 12.6 on; an older driver answers InvalidValue to anything but 0.
    #[must_use]
    pub fn with_usage(mut self, usage: c_ushort) -> Self {
        // SAFETY: two bytes at this place are `usage` or reserved in every layout.
        unsafe { write(&mut self, PROPS_USAGE, usage) };
        self
    }

    /// The intended use, as a mask.
    #[must_use]
    pub fn usage(&self) -> c_ushort {
        // SAFETY: two bytes at this place are `usage` or reserved in every layout.
        unsafe { read(self, PROPS_USAGE) }
    }
}

/// Reads a field by its place.
///
/// # Safety
/// `offset` must be aligned for `F`, within `T`, and hold initialised bytes that are a valid `F`.
unsafe fn read<T, F: Copy>(whole: &T, offset: usize) -> F {
    debug_assert!(offset + size_of::<F>() <= size_of::<T>());
    // SAFETY: the caller's promise.
    unsafe { core::ptr::from_ref(whole).cast::<u8>().add(offset).cast::<F>().read() }
}

/// Writes a field by its place.
///
/// # Safety
/// `offset` must be aligned for `F` and within `T`, and any value of `F` must be valid there.
unsafe fn write<T, F: Copy>(whole: &mut T, offset: usize, value: F) {
    debug_assert!(offset + size_of::<F>() <= size_of::<T>());
    // SAFETY: the caller's promise.
    unsafe { core::ptr::from_mut(whole).cast::<u8>().add(offset).cast::<F>().write(value) }
}

/// Run against the bindings of every version: the bytes must be the same under all of them.
#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<T: Copy, const N: usize>(value: &T) -> [u8; N] {
        assert_eq!(size_of::<T>(), N);
        // SAFETY: as long as the array, and every value here began as zeroes, padding included.
        unsafe { core::ptr::from_ref(value).cast::<[u8; N]>().read() }
    }

    #[test]
    fn a_location_is_its_kind_and_its_id() {
        for (location, kind, id) in [
            (cudaMemLocation::none(), 0, 0),
            (cudaMemLocation::device(3), 1, 3),
            (cudaMemLocation::host(), 2, 0),
            (cudaMemLocation::host_numa(1), 3, 1),
            (cudaMemLocation::host_numa_current(), 4, 0),
            (cudaMemLocation::new(cudaMemLocationType(77), -1), 77, -1),
        ] {
            let mut expected = [0; 8];
            expected[..4].copy_from_slice(&c_enum::to_ne_bytes(kind));
            expected[4..].copy_from_slice(&i32::to_ne_bytes(id));
            assert_eq!(bytes::<_, 8>(&location), expected);
            assert_eq!(location.id(), id);
        }
    }

    #[test]
    fn an_access_description_is_a_location_and_flags() {
        let flags = cudaMemAccessFlags::cudaMemAccessFlagsProtReadWrite;
        let desc = cudaMemAccessDesc::new(cudaMemLocation::device(2), flags);
        let mut expected = [0; 12];
        for (place, word) in [(0, 1u32), (4, 2), (8, 3)] {
            expected[place..place + 4].copy_from_slice(&word.to_ne_bytes());
        }
        assert_eq!(bytes::<_, 12>(&desc), expected);
    }

    #[test]
    fn pool_properties_lie_where_the_newest_runtime_reads_them() {
        let props = cudaMemPoolProps::new(
            cudaMemAllocationType::cudaMemAllocationTypePinned,
            cudaMemLocation::host_numa(1),
            cudaMemAllocationHandleType(9),
        )
        .with_win32_security_attributes(0x1122 as *mut c_void)
        .with_max_size(0x3344)
        .with_usage(2);
        let mut expected = [0; 88];
        for (place, word) in [(0, 1u64), (4, 9), (8, 3), (12, 1), (16, 0x1122), (24, 0x3344), (32, 2)] {
            let bytes = word.to_ne_bytes();
            let used = if place == 16 || place == 24 { 8 } else { 4 };
            expected[place..place + used].copy_from_slice(&bytes[..used]);
        }
        assert_eq!(bytes::<_, 88>(&props), expected);
        assert_eq!((props.max_size(), props.usage()), (0x3344, 2));
    }

    #[test]
    fn properties_that_are_not_asked_for_stay_zero() {
        let props = cudaMemPoolProps::new(
            cudaMemAllocationType::cudaMemAllocationTypePinned,
            cudaMemLocation::device(0),
            cudaMemAllocationHandleType::cudaMemHandleTypeNone,
        );
        assert!(bytes::<_, 88>(&props)[16..].iter().all(|&byte| byte == 0));
        assert_eq!((props.max_size(), props.usage()), (0, 0));
    }
}
