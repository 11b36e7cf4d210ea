//! What the facts are written with.

#[macro_use]
pub mod answer;
#[macro_use]
pub mod fact;
pub mod capture;
pub mod child;
pub mod gate;
pub mod guards;
pub mod ipc;
pub mod link;
pub mod machine;
pub mod pool;
pub mod watchdog;
pub mod words;

/// What nearly every fact needs.
pub mod prelude {
    pub use std::ffi::c_void;
    pub use std::ptr::{null, null_mut};
    pub use std::time::Duration;

    pub use cuda_mempool_sys::*;

    pub use super::fact::{Outcome, Skip};
    pub use super::gate::Gate;
    pub use super::guards::{Event, HostMemory, Malloced, Stream};
    pub use super::machine;
    pub use super::pool::{Memory, Pool};
    pub use super::words::*;
}
