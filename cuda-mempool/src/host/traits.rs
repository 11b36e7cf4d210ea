//! The `Allocator` traits. They are the same but for their paths.

#[cfg(any(feature = "nightly", feature = "allocator-api2"))]
macro_rules! implement {
    ($($module:ident)::+) => {
        // SAFETY: blocks stay valid until they are freed or the last handle is dropped, and moving or cloning a handle
        // moves none of them. Any handle frees what any other allocated.
        unsafe impl $($module)::+::Allocator for $crate::host::NumaAllocator {
            #[inline]
            fn allocate(
                &self,
                layout: std::alloc::Layout,
            ) -> Result<std::ptr::NonNull<[u8]>, $($module)::+::AllocError> {
                self.try_allocate(layout).map_err(|error| {
                    self.note(error);
                    $($module)::+::AllocError
                })
            }

            #[inline]
            fn allocate_zeroed(
                &self,
                layout: std::alloc::Layout,
            ) -> Result<std::ptr::NonNull<[u8]>, $($module)::+::AllocError> {
                Self::allocate_zeroed(self, layout).map_err(|error| {
                    self.note(error);
                    $($module)::+::AllocError
                })
            }

            #[inline]
            unsafe fn deallocate(&self, block: std::ptr::NonNull<u8>, layout: std::alloc::Layout) {
                // SAFETY: the trait's contract.
                unsafe { self.free(block, layout) }
            }

            unsafe fn grow(
                &self,
                block: std::ptr::NonNull<u8>,
                old: std::alloc::Layout,
                new: std::alloc::Layout,
            ) -> Result<std::ptr::NonNull<[u8]>, $($module)::+::AllocError> {
                // SAFETY: the trait's contract.
                unsafe { self.try_resize(block, old, new) }.map_err(|error| {
                    self.note(error);
                    $($module)::+::AllocError
                })
            }

            unsafe fn grow_zeroed(
                &self,
                block: std::ptr::NonNull<u8>,
                old: std::alloc::Layout,
                new: std::alloc::Layout,
            ) -> Result<std::ptr::NonNull<[u8]>, $($module)::+::AllocError> {
                // SAFETY: the trait's contract.
                let grown = unsafe { <Self as $($module)::+::Allocator>::grow(self, block, old, new) }?;
                // SAFETY: the block is the caller's for its whole length, which is at least the old size.
                unsafe { grown.cast::<u8>().as_ptr().add(old.size()).write_bytes(0, grown.len() - old.size()) };
                Ok(grown)
            }

            unsafe fn shrink(
                &self,
                block: std::ptr::NonNull<u8>,
                old: std::alloc::Layout,
                new: std::alloc::Layout,
            ) -> Result<std::ptr::NonNull<[u8]>, $($module)::+::AllocError> {
                // SAFETY: the trait's contract.
                unsafe { <Self as $($module)::+::Allocator>::grow(self, block, old, new) }
            }
        }
    };
}

#[cfg(feature = "nightly")]
implement!(core::alloc);

#[cfg(feature = "allocator-api2")]
implement!(allocator_api2::alloc);
