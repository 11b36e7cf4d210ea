//! Memory resources on GPUs and on the simulated runtime: how they are made, or not, the buffers
//! that come from them, and the timeline of one.

#[path = "cache/apart.rs"]
#[allow(dead_code)] // What resources use of it.
mod apart;
#[path = "resource/buffers.rs"]
mod buffers;
#[path = "resource/construction.rs"]
mod construction;
#[path = "support/driver.rs"]
#[allow(dead_code)] // What the kernels use of it.
mod driver;
#[path = "resource/forms.rs"]
mod forms;
#[path = "support/kernel.rs"]
#[allow(dead_code)] // Two of its kernels are used here.
mod kernel;
#[path = "safe/launcher.rs"]
#[allow(dead_code)] // Nothing is only read here.
mod launcher;
#[path = "safe/sim.rs"]
#[allow(dead_code)] // Each test uses its part.
mod sim;
#[path = "safe/suite.rs"]
#[allow(dead_code)] // As above.
#[macro_use]
mod suite;
#[path = "resource/trace.rs"]
mod trace;

suite! {
    tests: [
        buffers::rmm_device_buffer_moved_and_resized,
        buffers::rmm_device_buffer_on_another_device,
        buffers::a_buffer_keeps_its_resource,
        buffers::no_bytes_are_never_asked_for,
        buffers::taken_apart_and_put_together_a_buffer_still_goes_home,
        buffers::a_resource_that_refuses_leaves_the_buffer_with_close,
        buffers::adaptors_nest_over_a_pool,
        construction::nothing_leaks_when_construction_fails_half_way,
        construction::unsupported_handle_types_are_refused_before_a_pool_is_made,
        construction::an_initial_size_that_cannot_be_had_is_out_of_memory,
        construction::all_defaults,
        construction::managed_memory_is_a_resource,
        construction::pinned_memory_of_the_host_is_a_resource,
        construction::pinned_memory_of_a_node_is_a_resource,
        forms::forms_without_a_stream_wait_for_the_default_one,
        trace::a_log_opens_in_viewers,
        trace::a_forked_child_writes_nothing,
    ],
    roles: [],
}
