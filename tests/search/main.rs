//! The build script's decisions, on made-up trees and environments: no CUDA is needed.
//!
//! The modules of the build script are compiled in here as they are.
#![allow(dead_code)] // of those modules, what only their `main` uses

#[path = "../../cuda-mempool-sys/build/bindings.rs"]
mod bindings;
#[path = "../../cuda-mempool-sys/build/environment.rs"]
mod environment;
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
mod machine;
mod refused;
