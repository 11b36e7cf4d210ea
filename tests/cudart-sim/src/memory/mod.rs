//! Memory: where its bytes lie, how heaps cut it up, and who may be asked about an address.

pub mod allocation;
pub mod arena;
pub mod heap;
pub mod plain;
pub mod space;
