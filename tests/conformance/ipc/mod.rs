//! Between processes.

pub mod death;
pub mod events;
pub mod handles;
pub mod legacy;
pub mod pointers;
pub mod semaphores;
