//! What the tests and benchmarks of RMM check, on any device, real or simulated.

#[path = "rmm/fragmentation.rs"]
mod fragmentation;
#[path = "rmm/machine.rs"]
mod machine;
#[path = "rmm/resources.rs"]
mod resources;
