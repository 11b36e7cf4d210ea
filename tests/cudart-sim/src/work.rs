//! What streams do: the operations' own data.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crate::control::Kernel;
use crate::ipc::board::Shared;
use crate::memory::allocation::Allocation;
use crate::stream::Marker;

/// Bytes that an operation reads or writes, kept mapped while it runs.
#[derive(Debug, Clone)]
pub struct Bytes {
    pub at: *mut u8,
    /// None for the program's own memory, which is the program's to keep.
    pub owner: Option<Arc<Allocation>>,
}

// SAFETY: the address is only used to read or write bytes; that they are there is seen to by the owner or, for the
// program's own memory, is the contract of the C function.
unsafe impl Send for Bytes {}

/// A pointer that a C caller wants to have back in its function.
#[derive(Debug, Clone, Copy)]
pub struct Argument(pub *mut c_void);

// SAFETY: it is never used here, only handed to the function it was given for, whose thread is the runtime's choice.
unsafe impl Send for Argument {}

/// Operations that take time and run outside the lock.
#[derive(Debug, Clone)]
pub enum Work {
    Copy {
        to: Bytes,
        from: Bytes,
        len: usize,
    },
    /// A copy from pageable memory, whose bytes were taken when it was submitted.
    Store {
        to: Bytes,
        bytes: Arc<[u8]>,
    },
    Set {
        to: Bytes,
        value: u8,
        len: usize,
    },
    /// A function of the program; `host`: as a host function, which may tell other threads where the stream is.
    Call {
        function: unsafe extern "C" fn(*mut c_void),
        argument: Argument,
        host: bool,
    },
    /// A simulated kernel.
    Kernel {
        function: Kernel,
        argument: Argument,
        memory: Vec<Bytes>,
    },
    /// Writes a 4 or 8 byte value for others to wait for.
    Write {
        to: Bytes,
        value: u64,
        wide: bool,
    },
    /// The random delay before an operation.
    Pause(Duration),
}

impl Work {
    /// Does it.
    pub fn run(self) {
        match self {
            // SAFETY: both ranges were checked when the copy was submitted and are kept by their owners. An overlap
            // is the caller's choice.
            Work::Copy { to, from, len } => unsafe { std::ptr::copy(from.at, to.at, len) },
            // SAFETY: as above; the taken bytes are the simulator's own.
            Work::Store { to, bytes } => unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.at, bytes.len()) },
            // SAFETY: as above.
            Work::Set { to, value, len } => unsafe { std::ptr::write_bytes(to.at, value, len) },
            // SAFETY: the function and its argument are the caller's, who promised that they may be called.
            Work::Call { function, argument, .. } => unsafe { function(argument.0) },
            Work::Kernel { function, argument, memory } => {
                let memory: Vec<_> = memory.iter().map(|bytes| bytes.at.cast::<c_void>()).collect();
                // SAFETY: the function is the caller's; the bytes were checked and are kept by their owners.
                unsafe { function(argument.0, memory.as_ptr()) }
            }
            // SAFETY: the place was checked for alignment and size when the write was submitted.
            Work::Write { to, value, wide: true } => unsafe {
                AtomicU64::from_ptr(to.at.cast()).store(value, Ordering::Release);
            },
            // SAFETY: as above.
            Work::Write { to, value, wide: false } => unsafe {
                AtomicU32::from_ptr(to.at.cast()).store(value as u32, Ordering::Release);
            },
            Work::Pause(duration) => std::thread::sleep(duration),
        }
    }
}

/// The free of an allocation.
#[derive(Debug)]
pub struct Free {
    pub allocation: Arc<Allocation>,
    pub done: Arc<Marker>,
}

/// Something a stream waits for that no stream of this process may ever bring about.
#[derive(Debug, Clone)]
pub enum Condition {
    /// A value in memory.
    Value { at: Bytes, value: u64, wide: bool, compare: Compare },
    /// A record of an event that other processes see.
    Posted { event: Shared, number: u64 },
}

/// How a value in memory is compared with the one waited for.
#[derive(Debug, Clone, Copy)]
pub enum Compare {
    /// At least, on a circle.
    GreaterOrEqual,
    Equal,
    /// Any of the bits.
    And,
    /// Not all of the bits in either.
    Nor,
}

impl Condition {
    /// Whether it has come about.
    pub fn holds(&self) -> bool {
        match self {
            Condition::Posted { event, number } => event.is_posted(*number),
            Condition::Value { at, value, wide: true, compare } => {
                // SAFETY: the place was checked for alignment and size when the wait was submitted.
                let there = unsafe { AtomicU64::from_ptr(at.at.cast()) }.load(Ordering::Acquire);
                match compare {
                    Compare::GreaterOrEqual => there.wrapping_sub(*value) as i64 >= 0,
                    Compare::Equal => there == *value,
                    Compare::And => there & value != 0,
                    Compare::Nor => !(there | value) != 0,
                }
            }
            Condition::Value { at, value, wide: false, compare } => {
                // SAFETY: as above.
                let there = unsafe { AtomicU32::from_ptr(at.at.cast()) }.load(Ordering::Acquire);
                let value = *value as u32;
                match compare {
                    Compare::GreaterOrEqual => there.wrapping_sub(value) as i32 >= 0,
                    Compare::Equal => there == value,
                    Compare::And => there & value != 0,
                    Compare::Nor => !(there | value) != 0,
                }
            }
        }
    }
}
