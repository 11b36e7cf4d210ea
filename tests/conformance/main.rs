//! What a CUDA runtime answers to raw calls: one test per fact, written once and run on real devices and on the
//! simulated runtime alike.
//!
//! Without a device every test is skipped, with its reason; with `CUDA_MEMPOOL_REQUIRE_DEVICE=1` that is a failure.
//! `conformance --questions [FILTER]` prints what the runtime answers where nothing is asserted.
//!
//! The facts were measured on an H200, driver 580.159, CUDA 13.0.

use std::env;
use std::panic;
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

#[macro_use]
mod support;

mod access;
mod allocation;
mod capture;
mod default_pools;
mod default_streams;
mod device;
mod fork_and_exit;
mod free;
mod graph_memory;
mod host_pools;
mod ipc;
mod last_error;
mod peers;
mod pointer_attributes;
mod pool_creation;
mod pool_lifetime;
mod reuse;
mod streams;
mod thresholds;

#[path = "../support/driver.rs"]
mod driver;
#[path = "../support/kernel.rs"]
mod kernel;

use support::child::{self, Peer};
use support::fact::{Area, Named, Outcome, Skip};
use support::machine;
use support::watchdog::Watchdog;

const AREAS: &[Area] = &[
    device::AREA,
    pool_creation::AREA,
    default_pools::AREA,
    allocation::AREA,
    free::AREA,
    thresholds::AREA,
    pool_lifetime::AREA,
    reuse::AREA,
    access::AREA,
    peers::AREA,
    host_pools::AREA,
    pointer_attributes::AREA,
    capture::AREA,
    graph_memory::AREA,
    streams::AREA,
    default_streams::AREA,
    last_error::AREA,
    ipc::handles::AREA,
    ipc::pointers::AREA,
    ipc::events::AREA,
    ipc::legacy::AREA,
    ipc::semaphores::AREA,
    ipc::death::AREA,
    fork_and_exit::AREA,
];

/// How long one fact may take, its peers included.
const PATIENCE: Duration = Duration::from_secs(120);
const PATIENCE_FOR_AN_ANSWER: Duration = Duration::from_secs(8);

fn main() {
    child::play_role(AREAS);
    if env::args().nth(1).as_deref() == Some("--questions") {
        return answer_questions(&env::args().nth(2).unwrap_or_default());
    }
    let mut arguments = Arguments::from_args();
    // The facts share a device, and some of them its statistics: in turn, unless asked otherwise.
    let threads = env::var("RUST_TEST_THREADS").ok().and_then(|number| number.parse().ok()).unwrap_or(1);
    arguments.test_threads.get_or_insert(threads);
    let tests = AREAS.iter().flat_map(tests_of).collect();
    libtest_mimic::run(&arguments, tests).exit();
}

fn tests_of(area: &'static Area) -> impl Iterator<Item = Trial> {
    let elsewhere = move |name| Peer::start(area, name).finish();
    let facts = area.facts.iter().map(move |&(name, fact)| {
        // What one fact may have spoilt must not fail the others.
        test(area, name, move || if machine::is_usable() { fact() } else { elsewhere(name) })
    });
    let isolated = area.isolated.iter().map(move |&(name, _)| test(area, name, move || elsewhere(name)));
    facts.chain(isolated)
}

fn test(area: &Area, name: &str, fact: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    let name = area.full_name(name);
    Trial::ignorable_test(name.clone(), move || {
        let _watchdog = Watchdog::new(&name, PATIENCE);
        match machine::has_a_device() {
            Err(Skip(reason)) if env::var_os("CUDA_MEMPOOL_REQUIRE_DEVICE").is_some_and(|value| value == "1") => {
                Err(Failed::from(reason))
            }
            Err(Skip(reason)) => Ok(Completion::ignored_with(reason)),
            Ok(()) => match fact() {
                Ok(()) => Ok(Completion::Completed),
                Err(Skip(reason)) => Ok(Completion::ignored_with(reason)),
            },
        }
    })
}

/// Each question in a process of its own: an answer may be the end of it.
fn answer_questions(filter: &str) {
    if let Err(Skip(reason)) = machine::has_a_device() {
        return println!("nothing to ask: {reason}");
    }
    for area in AREAS {
        let wanted = |(name, _): &&Named<_>| area.full_name(name).contains(filter);
        for (name, _) in area.questions.iter().filter(wanted) {
            println!("{}", area.full_name(name));
            let asked = panic::catch_unwind(|| {
                let peer = Peer::start(area, name);
                peer.link.set_patience(PATIENCE_FOR_AN_ANSWER);
                peer.finish()
            });
            match asked {
                Ok(Ok(())) => {}
                Ok(Err(Skip(reason))) => println!("    not asked: {reason}"),
                Err(panic) => println!("    no further: {}", child::message(panic)),
            }
        }
    }
}
