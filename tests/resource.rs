//! Memory resources: what the tests of RMM check, one by one, and what happens when calls fail.

#[path = "cache/apart.rs"]
mod apart;
#[path = "resource/buffers.rs"]
mod buffers;
#[path = "resource/construction.rs"]
mod construction;
#[path = "resource/machine.rs"]
mod machine;
#[path = "resource/rmm.rs"]
mod rmm;
#[path = "safe/sim.rs"]
#[allow(dead_code)] // Each test uses its part.
mod sim;
