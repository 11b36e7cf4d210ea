//! What the tests and benchmarks of RMM check, on any device, real or simulated.

#[path = "cache/apart.rs"]
#[allow(dead_code)] // What these tests use of it.
mod apart;
#[path = "support/driver.rs"]
#[allow(dead_code)] // What the kernels use of it.
mod driver;
#[path = "rmm/fragmentation.rs"]
mod fragmentation;
#[path = "support/kernel.rs"]
#[allow(dead_code)] // None is used here.
mod kernel;
#[path = "safe/launcher.rs"]
#[allow(dead_code)] // Nor is this.
mod launcher;
#[path = "rmm/resources.rs"]
mod resources;
#[path = "safe/sim.rs"]
#[allow(dead_code)] // Each test uses its part.
mod sim;
#[path = "safe/suite.rs"]
#[allow(dead_code)] // As above.
#[macro_use]
mod suite;

suite! {
    tests: [
        fragmentation::a_thousand_allocations_of_up_to_4_gib,
        fragmentation::ten_thousand_allocations_of_up_to_64_mib,
        fragmentation::a_hundred_thousand_allocations_of_up_to_1_mib,
        resources::explicit_initial_pool_size,
        resources::default_initial_pool_size_is_half_of_what_is_free,
        resources::explicit_release_threshold,
        resources::default_release_threshold_is_all_of_the_device,
        resources::different_pools_unequal,
        resources::export_handle_types,
        resources::view_of_a_foreign_pool_does_not_own_it,
        resources::view_of_null_is_refused,
        resources::self_equality,
        resources::allocate_each_size,
        resources::allocate_too_much,
        resources::alignment_that_is_no_power_of_two_or_too_large,
        resources::two_live_pointers_differ,
        resources::random_allocations,
        resources::mixed_random_allocation_free,
        resources::multi_threaded_mixed_random_allocation_free,
        resources::allocate_on_one_thread_free_on_another_same_stream,
        resources::allocate_on_one_thread_free_on_another_other_stream,
        resources::works_on_each_kind_of_default_stream,
        resources::trim_gives_back_what_nobody_uses,
    ],
    roles: [],
}
