//! Memory shared between real processes: this program starts itself again for every peer.
//!
//! Runs on the simulated runtime and on GPUs. Without a device every test is skipped, with its reason; with
//! `CUDA_MEMPOOL_REQUIRE_DEVICE` set that is a failure.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Trial};

#[path = "../safe/sim.rs"]
#[allow(dead_code)] // The suites each use their part.
mod sim;

#[path = "../support/driver.rs"]
mod driver;
#[path = "../support/kernel.rs"]
#[allow(dead_code)] // As above.
mod kernel;

mod captures;
mod crossings;
mod deaths;
mod devices;
mod endings;
mod faults;
mod forward;
mod hand_over;
mod hostile;
mod order;
mod parts;
mod peer;
mod processes;
mod raw;
mod world;

use peer::Role;

#[rustfmt::skip]
const ROLES: &[&[Role]] = &[
    hand_over::ROLES,
    order::ROLES,
    processes::ROLES,
    forward::ROLES,
    deaths::ROLES,
    endings::ROLES,
    crossings::ROLES,
    captures::ROLES,
    devices::ROLES,
    faults::ROLES,
    hostile::ROLES,
    parts::ROLES,
];

/// A test: its name, and what it does.
type Test = (&'static str, fn());

#[rustfmt::skip]
const TESTS: &[&[Test]] = &[
    hand_over::TESTS,
    order::TESTS,
    processes::TESTS,
    forward::TESTS,
    deaths::TESTS,
    endings::TESTS,
    crossings::TESTS,
    captures::TESTS,
    devices::TESTS,
    faults::TESTS,
    hostile::TESTS,
    parts::TESTS,
];

fn main() -> ExitCode {
    peer::play_role(ROLES);
    let mut arguments = Arguments::from_args();
    // Open descriptors and mappings are counted, and the machine's load matters to what takes less than a second.
    arguments.test_threads = Some(1);
    let skipped = world::why_not();
    if skipped.is_none() {
        world::warm_up();
    }
    let trials = TESTS.concat().into_iter().map(|(name, test)| {
        let trial = Trial::ignorable_test(name, move || {
            // What an earlier test said that then failed.
            drop(world::skipped());
            test();
            Ok(world::skipped().map_or(Completion::Completed, Completion::ignored_with))
        });
        trial.with_ignored_flag(skipped.is_some())
    });
    let trials = trials.collect();
    if let Some(why) = skipped {
        println!("skipped: {why}");
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
