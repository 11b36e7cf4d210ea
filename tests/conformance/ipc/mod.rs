//! Between processes. Every fact has a process of its own too: what it does may be the end of it.

pub mod death;
pub mod events;
pub mod handles;
pub mod legacy;
pub mod pointers;
pub mod semaphores;
