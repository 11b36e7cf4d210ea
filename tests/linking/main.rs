//! Programs on cuda-mempool-sys, built in every link kind and run.
//!
//! What needs a real CUDA runtime takes those of `CUDA_MEMPOOL_TEST_WHEELS`, a folder with unpacked toolkits that
//! `cargo xtask test` makes, and what needs answers takes the toolkit of `CUDA_MEMPOOL_TEST_SIM`, whose library is the
//! simulated runtime. No GPU is needed.

mod build_script;
mod c_allocator;
mod c_code;
mod loader;
mod probe;
mod real;
mod two_runtimes;
