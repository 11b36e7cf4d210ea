//! What the runtime gives out to be sent to another process: bytes that only a runtime understands.

use std::fmt;

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, Hash)]
            pub struct $name([u8; 64]);

            impl $name {
                /// The bytes, to be sent.
                #[must_use]
                pub const fn as_bytes(&self) -> &[u8; 64] {
                    &self.0
                }

                /// Bytes that were received.
                #[must_use]
                pub const fn from_bytes(bytes: [u8; 64]) -> Self {
                    Self(bytes)
                }
            }

            impl fmt::Debug for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.debug_struct(stringify!($name)).finish_non_exhaustive()
                }
            }
        )*
    };
}

opaque! {
    /// An allocation of a pool that another process has imported or can import.
    PointerBlob;
    /// A pool, for processes that share an IMEX domain, on other machines too.
    FabricHandle;
    /// An event of another process.
    EventHandle;
    /// An allocation made by `cudaMalloc`.
    MemHandle;
}

/// A part of an allocation, as bytes to be sent: the handle of the allocation, then the offset and the length of the
/// part, little-endian.
macro_rules! part {
    ($name:ident, $handle:ident: $kind:ident) => {
        impl $name {
            /// The bytes, to be sent.
            #[must_use]
            pub fn to_bytes(&self) -> [u8; 80] {
                let mut bytes = [0; 80];
                bytes[..64].copy_from_slice(self.$handle.as_bytes());
                bytes[64..72].copy_from_slice(&(self.offset as u64).to_le_bytes());
                bytes[72..].copy_from_slice(&(self.bytes as u64).to_le_bytes());
                bytes
            }

            /// Bytes that were received. What they say is checked when it is used.
            #[must_use]
            pub fn from_bytes(bytes: &[u8; 80]) -> Self {
                let number = |from: usize| {
                    let bytes = std::array::from_fn(|index| bytes[from + index]);
                    // A number that is too large here does not lie in any memory.
                    usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(usize::MAX)
                };
                let handle = $kind::from_bytes(std::array::from_fn(|index| bytes[index]));
                Self { $handle: handle, offset: number(64), bytes: number(72) }
            }
        }
    };
}
pub(super) use part;

/// Turns the bytes of a handle into the C struct that they are, or back.
macro_rules! same_bytes {
    ($value:expr, $from:ty => $to:ty) => {{
        // SAFETY: both are plain bytes, any of which are valid for them, and `transmute` sees that they are as long.
        unsafe { std::mem::transmute::<$from, $to>($value) }
    }};
}
pub(super) use same_bytes;
