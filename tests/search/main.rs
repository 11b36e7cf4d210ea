//! What the build script decides and what the loader tries, on made-up trees and environments: no CUDA is needed.
//!
//! The modules of both are compiled in here as they are.
#![allow(dead_code)] // what only their own crates use

#[path = "../../cuda-mempool-sys/build/bindings.rs"]
mod bindings;
#[path = "../../cuda-mempool-sys/build/environment.rs"]
mod environment;
#[path = "../../cuda-mempool-sys/src/libraries.rs"]
mod libraries;
#[path = "../../cuda-mempool-sys/build/library.rs"]
mod library;
#[path = "../../cuda-mempool-sys/build/link.rs"]
mod link;
#[path = "../../cuda-mempool-sys/build/output.rs"]
mod output;
#[path = "../../cuda-mempool-sys/src/places.rs"]
mod places;
#[path = "../../cuda-mempool-sys/build/plan.rs"]
mod plan;
#[path = "../../cuda-mempool-sys/build/search.rs"]
mod search;
#[path = "../../cuda-mempool-sys/build/toolkit.rs"]
mod toolkit;
#[path = "../../cuda-mempool-sys/build/version.rs"]
mod version;

mod choices;
mod found;
mod loaded;
mod machine;
mod refused;
