//! C and Rust code in one program that hand each other pools, streams, events and memory.
//!
//! The C side is a static archive, compiled by the build script with nothing but the metadata of cuda-mempool-sys.
#![cfg(cuda_headers)]

mod constants;
mod errors;
mod handles;
mod in_two_processes;
mod owner;
mod rmm;
mod samples;
