//! A simulated CUDA runtime: `libcudart_sim.so` exports the functions that `cuda-mempool-sys` binds, with the C ABI of
//! `libcudart`, and answers them in plain host memory as a real runtime was seen to answer.
//!
//! It is a test bed. It lets memory-pool code run where there is no GPU, finds stream-order mistakes that a GPU hides,
//! injects failures and counts leaks. It proves nothing about CUDA, and no time measured on it means anything.
//!
//! How it is built: [`cuda`] holds the types and the exported functions, both made from the generated bindings. Every
//! exported function does the bookkeeping of a call (`call`: counters, injected faults, last error) and then runs its
//! namesake in `exports`, which checks the arguments and works on the one locked `Sim`.

#![allow(non_snake_case, non_upper_case_globals, non_camel_case_types)]

mod call;
mod capture;
mod config;
pub mod control;
pub mod cuda;
mod device;
mod error;
mod event;
mod exports;
mod fault;
mod graph;
mod handles;
mod ipc;
mod leak;
mod memory;
mod order;
mod per_thread;
mod pool;
mod process;
mod progress;
mod race;
mod random;
mod sim;
mod stream;
mod work;
mod workers;

use cuda::cudaError;

/// What the implementation of an exported function gives back; the error is what the caller gets.
type Outcome<T = ()> = Result<T, cudaError>;
