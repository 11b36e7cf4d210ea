//! Memory resources: one interface over whatever hands out device memory.

mod traits;

pub use traits::{DeviceMemoryResource, ResourceId, ALIGNMENT};
