//! What may be asked of the resources that hand out memory of the runtime, and alignments beyond its own.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::ALIGNMENT;
use crate::{Error, ErrorKind, Result};

/// Asks `get` for memory aligned to [`ALIGNMENT`] in which there is a block of `bytes` aligned to `alignment`.
#[inline]
pub(crate) fn allocate(
    bytes: usize,
    alignment: usize,
    get: impl FnOnce(usize) -> Result<NonNull<c_void>>,
) -> Result<NonNull<c_void>> {
    let whole = whole(bytes, alignment)?;
    if bytes == 0 {
        return Ok(NonNull::new(alignment as *mut c_void).expect("a power of two is not 0"));
    }
    let base = get(whole)?;
    if alignment <= ALIGNMENT {
        return Ok(base);
    }
    Ok(aligned(base, alignment))
}

/// Gives `give` what [`allocate`] got for these numbers, with its bytes.
#[inline]
pub(crate) fn deallocate(
    pointer: NonNull<c_void>,
    bytes: usize,
    alignment: usize,
    give: impl FnOnce(NonNull<c_void>, usize) -> Result<()>,
) -> Result<()> {
    let whole = whole(bytes, alignment)?;
    if bytes == 0 {
        return Ok(());
    }
    if alignment <= ALIGNMENT {
        return give(pointer, whole);
    }
    let base = bases(|bases| bases.remove(&(pointer.as_ptr() as usize)));
    let base = base.and_then(|base| NonNull::new(base as *mut c_void)).unwrap_or(pointer);
    give(base, whole).inspect_err(|_| remember(pointer, base))
}

/// How many bytes to ask for.
#[inline]
fn whole(bytes: usize, alignment: usize) -> Result<usize> {
    if !alignment.is_power_of_two() {
        return Err(not_an_alignment(alignment));
    }
    bytes
        .checked_add(alignment.saturating_sub(ALIGNMENT))
        .filter(|&whole| isize::try_from(whole).is_ok())
        .ok_or_else(|| overflow(bytes, alignment))
}

#[cold]
fn aligned(base: NonNull<c_void>, alignment: usize) -> NonNull<c_void> {
    let address = base.as_ptr() as usize;
    let ahead = address.next_multiple_of(alignment) - address;
    let pointer = NonNull::new(base.as_ptr().cast::<u8>().wrapping_add(ahead).cast()).expect("within an allocation");
    remember(pointer, base);
    pointer
}

fn remember(pointer: NonNull<c_void>, base: NonNull<c_void>) {
    bases(|bases| bases.insert(pointer.as_ptr() as usize, base.as_ptr() as usize));
}

/// Where the allocations begin in which blocks were aligned, by address. One list for all resources, because those over
/// one pool take back each other's blocks.
fn bases<R>(with: impl FnOnce(&mut HashMap<usize, usize>) -> R) -> R {
    static BASES: OnceLock<Mutex<HashMap<usize, usize>>> = OnceLock::new();
    with(&mut BASES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner))
}

#[cold]
fn not_an_alignment(alignment: usize) -> Error {
    let why = format!("an alignment is a power of two, and {alignment} is none");
    Error::refused(ErrorKind::InvalidValue, "cudaMallocFromPoolAsync", why)
}

#[cold]
fn overflow(bytes: usize, alignment: usize) -> Error {
    let why = format!("{bytes} bytes aligned to {alignment} are more than memory can be addressed");
    Error::refused(ErrorKind::SizeOverflow, "cudaMallocFromPoolAsync", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: usize) -> NonNull<c_void> {
        NonNull::new(address as *mut c_void).unwrap()
    }

    #[test]
    fn zero_bytes_ask_for_nothing() {
        let pointer = allocate(0, 64, |_| panic!("asked")).unwrap();
        assert_eq!(pointer.as_ptr() as usize % 64, 0);
        deallocate(pointer, 0, 64, |_, _| panic!("given")).unwrap();
    }

    #[test]
    fn the_usual_alignments_ask_for_no_more_than_the_bytes() {
        for alignment in [1, 2, 128, 256] {
            let get = |whole| {
                assert_eq!(whole, 1000);
                Ok(at(0x1_0000))
            };
            assert_eq!(allocate(1000, alignment, get).unwrap(), at(0x1_0000));
        }
    }

    #[test]
    fn larger_alignments_are_met_and_the_allocation_is_found_again() {
        let base = at(0x1_0000_0300);
        let mut whole = 0;
        let get = |bytes| {
            whole = bytes;
            Ok(base)
        };
        let pointer = allocate(1000, 4096, get).unwrap();
        assert_eq!(pointer, at(0x1_0000_1000));
        assert!(0x1_0000_0300 + whole >= 0x1_0000_1000 + 1000);

        let refused = deallocate(pointer, 1000, 4096, |_, _| Err(overflow(0, 0)));
        assert!(refused.is_err());
        let mut given = None;
        let give = |base, bytes| {
            given = Some((base, bytes));
            Ok(())
        };
        deallocate(pointer, 1000, 4096, give).unwrap();
        assert_eq!(given, Some((base, whole)));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let kind = |bytes, alignment| allocate(bytes, alignment, |_| panic!("asked")).unwrap_err().kind();
        assert_eq!(kind(1, 0), ErrorKind::InvalidValue);
        assert_eq!(kind(1, 3), ErrorKind::InvalidValue);
        assert_eq!(kind(1024, 1 << 63), ErrorKind::SizeOverflow);
        assert_eq!(kind(isize::MAX as usize + 1, 1), ErrorKind::SizeOverflow);
    }
}
