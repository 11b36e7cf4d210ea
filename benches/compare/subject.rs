//! A subject: one way to allocate that is measured. `subject.h` is the same for C and C++.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::fmt::Display;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::null_mut;

/// The first step that names a slot allocates, the next one frees, and so on.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Step {
    pub slot: u32,
    pub bytes: u32,
}

pub const SLOTS: usize = 32;
/// How many blocks a burst holds at once.
pub const BURST: usize = 100;

/// The table of functions through which a subject is measured.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Subject {
    pub name: *const c_char,
    pub version: *const c_char,
    pub memory: *const c_char,
    pub open: unsafe extern "C" fn() -> *mut c_void,
    pub close: unsafe extern "C" fn(*mut c_void),
    pub start: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    pub finish: unsafe extern "C" fn(*mut c_void),
    pub pairs: unsafe extern "C" fn(*mut c_void, usize, usize) -> c_int,
    pub bursts: unsafe extern "C" fn(*mut c_void, usize, usize) -> c_int,
    pub steps: unsafe extern "C" fn(*mut c_void, *const Step, usize, usize) -> c_int,
    pub handovers: Option<unsafe extern "C" fn(*mut c_void, usize, usize) -> c_int>,
    pub settle: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

/// A way to allocate, in Rust.
pub trait Allocate: Sized {
    const NAME: &'static CStr;
    const VERSION: &'static CStr;
    const MEMORY: &'static CStr;

    /// What one thread has for itself.
    type Worker;
    type Block;
    type Error: Display;

    fn open() -> Result<Self, Self::Error>;
    fn start(&self) -> Result<Self::Worker, Self::Error>;
    fn alloc(worker: &Self::Worker, bytes: usize) -> Result<Self::Block, Self::Error>;
    fn free(worker: &Self::Worker, block: Self::Block) -> Result<(), Self::Error>;

    /// Whether [`hand_over`](Self::hand_over) is there.
    const HANDS_OVER: bool = false;
    /// Moves the block to the worker's other stream and frees it there.
    fn hand_over(_worker: &Self::Worker, _block: Self::Block) -> Result<(), Self::Error> {
        unreachable!("not listed")
    }

    /// Whether [`settle`](Self::settle) is there.
    const SETTLES: bool = false;
    /// Waits for what goes on elsewhere after a loop has returned.
    fn settle(_worker: &Self::Worker) -> Result<(), Self::Error> {
        unreachable!("not listed")
    }
}

/// The table of a way to allocate.
pub const fn table<A: Allocate>() -> Subject {
    Subject {
        name: A::NAME.as_ptr(),
        version: A::VERSION.as_ptr(),
        memory: A::MEMORY.as_ptr(),
        open: open::<A>,
        close: drop_box::<A>,
        start: start::<A>,
        finish: drop_box::<A::Worker>,
        pairs: pairs::<A>,
        bursts: bursts::<A>,
        steps: steps::<A>,
        handovers: if A::HANDS_OVER { Some(handovers::<A>) } else { None },
        settle: if A::SETTLES { Some(settle::<A>) } else { None },
    }
}

extern "C" fn open<A: Allocate>() -> *mut c_void {
    boxed::<A, A>(A::open)
}

extern "C" fn start<A: Allocate>(shared: *mut c_void) -> *mut c_void {
    // SAFETY: the harness gives what `open` gave.
    let shared = unsafe { &*shared.cast::<A>() };
    boxed::<A, A::Worker>(|| shared.start())
}

fn boxed<A: Allocate, T>(make: impl FnOnce() -> Result<T, A::Error>) -> *mut c_void {
    told::<A, T>(make).map_or(null_mut(), |made| Box::into_raw(Box::new(made)).cast())
}

unsafe extern "C" fn drop_box<T>(made: *mut c_void) {
    // SAFETY: the harness gives what `boxed` made, once.
    drop(unsafe { Box::from_raw(made.cast::<T>()) });
}

unsafe extern "C" fn pairs<A: Allocate>(worker: *mut c_void, bytes: usize, count: usize) -> c_int {
    answer::<A>(worker, |worker| {
        for _ in 0..count {
            A::free(worker, A::alloc(worker, bytes)?)?;
        }
        Ok(())
    })
}

unsafe extern "C" fn bursts<A: Allocate>(worker: *mut c_void, bytes: usize, count: usize) -> c_int {
    answer::<A>(worker, |worker| {
        let mut blocks = Vec::with_capacity(BURST);
        for _ in 0..count {
            for _ in 0..BURST {
                blocks.push(A::alloc(worker, bytes)?);
            }
            blocks.drain(..).try_for_each(|block| A::free(worker, block))?;
        }
        Ok(())
    })
}

unsafe extern "C" fn steps<A: Allocate>(worker: *mut c_void, steps: *const Step, length: usize, count: usize) -> c_int {
    // SAFETY: the harness gives a slice.
    let steps = unsafe { std::slice::from_raw_parts(steps, length) };
    answer::<A>(worker, |worker| {
        let mut slots: [Option<A::Block>; SLOTS] = std::array::from_fn(|_| None);
        for _ in 0..count {
            for step in steps {
                let slot = &mut slots[step.slot as usize];
                match slot.take() {
                    Some(block) => A::free(worker, block)?,
                    None => *slot = Some(A::alloc(worker, step.bytes as usize)?),
                }
            }
        }
        Ok(())
    })
}

unsafe extern "C" fn handovers<A: Allocate>(worker: *mut c_void, bytes: usize, count: usize) -> c_int {
    answer::<A>(worker, |worker| {
        for _ in 0..count {
            A::hand_over(worker, A::alloc(worker, bytes)?)?;
        }
        Ok(())
    })
}

unsafe extern "C" fn settle<A: Allocate>(worker: *mut c_void) -> c_int {
    answer::<A>(worker, A::settle)
}

fn answer<A: Allocate>(worker: *mut c_void, work: impl FnOnce(&A::Worker) -> Result<(), A::Error>) -> c_int {
    // SAFETY: the harness gives what `start` made.
    let worker = unsafe { &*worker.cast::<A::Worker>() };
    c_int::from(told::<A, ()>(|| work(worker)).is_none())
}

/// What `work` gives, or `None` after telling why not. A panic, such as of a peer that finds no driver, ends nothing else.
fn told<A: Allocate, T>(work: impl FnOnce() -> Result<T, A::Error>) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(work)).ok()? {
        Ok(made) => Some(made),
        Err(why) => {
            eprintln!("{}: {why}", A::NAME.to_string_lossy());
            None
        }
    }
}
