//! Memory resources on the simulated runtime: how they are made, or not, and the buffers that come from them.

#[path = "cache/apart.rs"]
mod apart;
#[path = "resource/buffers.rs"]
mod buffers;
#[path = "resource/construction.rs"]
mod construction;
#[path = "safe/sim.rs"]
#[allow(dead_code)] // Each test uses its part.
mod sim;
