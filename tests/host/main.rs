//! Collections in pinned memory: `cuda_mempool::host` over a runtime, real or simulated.
#![cfg_attr(feature = "nightly", feature(allocator_api, btreemap_alloc))]

mod access;
mod bounds;
mod boxes;
mod collections;
mod faults;
mod lifetime;
mod placement;
mod threads;
mod trait_contract;
mod trait_model;

#[path = "../support"]
mod support {
    pub mod driver;
    #[allow(dead_code)] // Other tests use the other kernels.
    pub mod kernel;
}

/// The trait that is called by hand: of the standard library where it has one.
#[cfg(not(feature = "nightly"))]
use allocator_api2::alloc as allocator_api;
#[cfg(feature = "nightly")]
use std::alloc as allocator_api;
use std::sync::{Mutex, PoisonError};

use cuda_mempool::host::NumaAllocator;
use cuda_mempool::{Device, Location, Result};
use cudart_sim_control::Control;

/// Runs a test on the first device, alone: faults and counters are the process's.
fn alone(test: impl FnOnce(Device) -> Result<()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    cuda_mempool::example::run(test);
}

/// As [`alone`], with the controls of the simulated runtime; skips on a real one.
fn on_simulator(test: impl FnOnce(Control, Device) -> Result<()>) {
    alone(|device| match Control::loaded() {
        Some(sim) => {
            sim.reset();
            let outcome = test(sim, device);
            sim.reset();
            outcome
        }
        None => {
            eprintln!("skipped: this asks the simulated runtime");
            Ok(())
        }
    });
}

/// As [`alone`], with an allocator near the device, of each kind of memory.
fn with_each_kind(test: impl Fn(Device, NumaAllocator) -> Result<()>) {
    alone(|device| {
        test(device, pinned(device)?)?;
        test(device, registered(device)?)
    });
}

/// An allocator of registered memory near the device.
fn registered(device: Device) -> Result<NumaAllocator> {
    NumaAllocator::builder().near(device).registered().build()
}

/// An allocator near the device, which has access.
fn pinned(device: Device) -> Result<NumaAllocator> {
    NumaAllocator::builder().near(device).build()
}

/// The node that [`pinned`] is on.
fn node_of(pinned: &NumaAllocator) -> u32 {
    match pinned.location() {
        Location::HostNuma(node) => node,
        other => panic!("{other} is no NUMA node"),
    }
}
