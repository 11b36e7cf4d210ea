//! Collections in pinned memory: `cuda_mempool::host` over a runtime, real or simulated.
//!
//! A test that asks nothing on a machine, or not all, counts as ignored and says why. Without a device each one does;
//! where `CUDA_MEMPOOL_REQUIRE_DEVICE` or `CUDA_MEMPOOL_REQUIRE_SIM` is set, not to have it is a failure.
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
use std::fmt::Display;
use std::process::ExitCode;
use std::sync::Mutex;

use cuda_mempool::host::NumaAllocator;
use cuda_mempool::{Device, Location, Result};
use cudart_sim_control::Control;
use libtest_mimic::{Arguments, Completion, Trial};

/// Names the tests of this program.
macro_rules! tests {
    ($($(#[$when:meta])? $test:path),* $(,)?) => {
        &[$($(#[$when])? (stringify!($test), $test)),*]
    };
}

/// A test: its name, and what it does.
type Test = (&'static str, fn());

const TESTS: &[Test] = tests![
    access::near_a_device_has_its_access_and_other_places_have_none,
    access::the_last_choice_of_a_place_decides_who_has_access,
    access::grants_add_to_the_device_nearby,
    access::without_a_grant_copies_work_and_kernels_are_refused,
    access::with_a_grant_both_work,
    access::access_can_change_later,
    access::only_its_own_memory_is_vouched_for,
    access::registered_memory_is_for_every_device,
    access::kernels_read_and_write_a_vector,
    bounds::a_cap_is_kept_and_the_reason_is_told,
    bounds::trim_gives_everything_back,
    bounds::primed_memory_is_there,
    bounds::priming_stays_below_the_cap,
    bounds::more_than_any_machine_has_is_not_primed,
    bounds::free_registered_memory_joins_and_is_cut_again,
    bounds::statistics_follow_the_blocks,
    bounds::chunk_sizes_out_of_range_are_refused,
    bounds::new_memory_is_waited_for,
    bounds::warm_blocks_cost_no_call,
    boxes::every_constructor_holds_what_it_is_given,
    boxes::no_bytes_take_no_memory,
    boxes::elements_are_dropped_once,
    boxes::a_panic_half_way_leaks_nothing,
    boxes::a_panic_while_failing_leaks_nothing,
    boxes::parts_make_a_box_again,
    boxes::lengths_that_overflow_are_refused,
    collections::a_vector_grows_and_shrinks,
    collections::the_memory_outlives_the_handle_it_came_from,
    collections::vectors_made_on_one_thread_end_on_another,
    collections::a_hash_map_keeps_its_entries,
    collections::a_scope_copies_there_and_back,
    #[cfg(feature = "nightly")]
    collections::standard::vec_box_and_deque,
    #[cfg(feature = "nightly")]
    collections::standard::ordered_map,
    faults::each_call_may_fail,
    faults::many_calls_may_fail,
    faults::what_could_not_be_freed_counts_against_the_cap,
    lifetime::clones_are_equal_and_others_are_not,
    lifetime::the_last_handle_gives_everything_back,
    lifetime::registered_memory_is_given_back_too,
    lifetime::a_leaked_collection_keeps_its_memory,
    lifetime::blocks_lost_by_hand_go_with_the_allocator,
    lifetime::blocks_lost_by_hand_are_reported_in_debug_builds,
    lifetime::a_forked_child_touches_nothing,
    lifetime::a_child_forked_while_others_allocate_does_not_hang,
    lifetime::a_capture_elsewhere_goes_on_beside_small_allocations,
    lifetime::a_capture_elsewhere_goes_on_beside_large_allocations,
    lifetime::a_capture_elsewhere_goes_on_beside_priming,
    lifetime::a_capture_elsewhere_goes_on_beside_trimming,
    lifetime::a_capture_elsewhere_goes_on_beside_the_last_drop,
    lifetime::the_last_handle_may_go_on_any_thread,
    placement::near_a_device_is_its_node,
    placement::addresses_tell_their_node,
    placement::the_kernel_agrees,
    placement::a_node_that_does_not_exist_is_named,
    placement::a_place_must_be_chosen_and_on_the_host,
    placement::the_host_as_a_whole_is_a_choice,
    placement::registered_memory_needs_no_pools,
    placement::registered_memory_is_of_nodes_that_there_are,
    placement::an_old_driver_is_named,
    placement::a_node_whose_pools_the_driver_refuses_is_named,
    placement::all_nodes_of_the_machine_work,
    threads::vectors_pass_between_threads,
    trait_contract::alignments_up_to_a_mebibyte,
    trait_contract::nothing_is_allocated_for_zero_bytes,
    trait_contract::zeroed_memory_is_zero_to_its_end,
    trait_contract::growing_keeps_the_contents_and_zeroes_the_rest,
    trait_contract::alignment_may_change_on_the_way,
    trait_contract::the_reported_length_can_be_used_and_freed_with,
    trait_contract::failure_is_an_alloc_error_with_a_reason,
    trait_contract::a_clone_frees_what_its_original_allocated,
    trait_contract::blocks_without_the_trait_tell_the_reason,
    trait_model::the_trait_keeps_its_promises,
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Faults and counters are the process's.
    arguments.test_threads = Some(1);
    let trial = |&(name, test): &Test| {
        Trial::ignorable_test(name, move || {
            // What an earlier test said that then failed.
            drop(skipped());
            test();
            Ok(skipped().map_or(Completion::Completed, Completion::ignored_with))
        })
    };
    libtest_mimic::run(&arguments, TESTS.iter().map(trial).collect()).exit_code()
}

/// Why the test that runs asks nothing here, or not all.
static SKIPPED: Mutex<Option<String>> = Mutex::new(None);

/// Has the test that runs counted as ignored.
fn skip(why: impl Display) {
    *SKIPPED.lock().expect("no panic") = Some(format!("skipped: {why}"));
}

/// What was said of the last test, once.
fn skipped() -> Option<String> {
    SKIPPED.lock().expect("no panic").take()
}

/// Whether what a test needs must not be missing.
fn is_required(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}

/// Runs a test on the first device.
fn alone(test: impl FnOnce(Device) -> Result<()>) {
    match Device::new(0) {
        Ok(device) => test(device).expect("no failure"),
        Err(why) => {
            assert!(!is_required("CUDA_MEMPOOL_REQUIRE_DEVICE"), "{why}");
            // Only the first line: the others list where a runtime was looked for.
            skip(format_args!("no device: {}", why.to_string().lines().next().unwrap_or_default()));
        }
    }
}

/// As [`alone`], with the controls of the simulated runtime.
fn on_simulator(test: impl FnOnce(Control, Device) -> Result<()>) {
    alone(|device| match Control::loaded() {
        Some(sim) => {
            sim.reset();
            let outcome = test(sim, device);
            sim.reset();
            outcome
        }
        None => {
            assert!(!is_required("CUDA_MEMPOOL_REQUIRE_SIM"), "not on the simulated runtime");
            skip("needs the simulated runtime");
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
