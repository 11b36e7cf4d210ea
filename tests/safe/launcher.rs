//! Kernels to use buffers with: real ones on a GPU, and what stands for them on the simulated runtime.

use std::mem::size_of;

use cuda_mempool::{sys, Device, Stream};

use crate::kernel::Kernels;
use crate::sim::{must, Sim};
use crate::suite::Skip;

pub enum Launcher<'s> {
    Simulated(&'s Sim),
    /// For each device: its kernels, and where sums go that nobody reads.
    Real(Vec<OnDevice>),
}

type OnDevice = (Loaded, Unread);

/// A sum that kernels of any stream add to, in memory that belongs to no stream.
pub struct Unread {
    device: Device,
    sum: *mut u64,
}

// SAFETY: a pointer to memory of a device, which is used there alone.
unsafe impl Send for Unread {}
// SAFETY: as above.
unsafe impl Sync for Unread {}

impl Unread {
    fn new(device: Device) -> Self {
        let mut sum = std::ptr::null_mut();
        // SAFETY: the out pointer is valid.
        let answer = must(device.with_current(|| unsafe { sys::cudaMalloc(&mut sum, size_of::<u64>()) }));
        assert_eq!(answer, sys::cudaError_t::cudaSuccess);
        Self { device, sum: sum.cast() }
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        // SAFETY: the memory is its own. To free it waits for the kernels that add to it.
        unsafe { sys::cudaFree(self.sum.cast()) };
    }
}

pub struct Loaded(Kernels);

// SAFETY: the driver's functions may be called from any thread, also at once.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl<'s> Launcher<'s> {
    /// For streams of these devices.
    pub fn new(sim: Option<&'s Sim>, devices: &[Device]) -> Result<Self, Skip> {
        if let Some(sim) = sim {
            return Ok(Self::Simulated(sim));
        }
        let load = |&device: &Device| {
            let kernels = must(device.with_current(Kernels::load)).map_err(|why| Skip(format!("no kernels: {why}")))?;
            Ok((Loaded(kernels), Unread::new(device)))
        };
        devices.iter().map(load).collect::<Result<_, _>>().map(Self::Real)
    }

    /// Writes `value` to every element.
    ///
    /// # Safety
    /// `pointer` must be valid for writing `length` elements in the order of `stream`.
    pub unsafe fn fill(&self, stream: &Stream, pointer: *mut u32, length: usize, value: u32) {
        match self {
            // SAFETY: the caller's promise.
            Self::Simulated(sim) => unsafe { sim.launch_fill(stream, pointer, length, value) },
            Self::Real(devices) => {
                let (Loaded(kernels), _) = of(devices, stream);
                // SAFETY: as above.
                let launch = || unsafe { kernels.fill(stream.as_raw(), pointer, length as u64, value) };
                must(stream.device().with_current(launch)).expect("launched");
            }
        }
    }

    /// Reads every element.
    ///
    /// # Safety
    /// `pointer` must be valid for reading `length` elements in the order of `stream`.
    pub unsafe fn read(&self, stream: &Stream, pointer: *const u32, length: usize) {
        match self {
            // SAFETY: the caller's promise.
            Self::Simulated(sim) => unsafe { sim.launch_read(stream, pointer, length) },
            Self::Real(devices) => {
                let (Loaded(kernels), unread) = of(devices, stream);
                // SAFETY: as above; the sum is added atomically, and lives as long as this.
                let launch = || unsafe { kernels.sum(stream.as_raw(), pointer, length as u64, unread.sum) };
                must(stream.device().with_current(launch)).expect("launched");
            }
        }
    }
}

fn of<'d>(devices: &'d [OnDevice], stream: &Stream) -> &'d OnDevice {
    devices.iter().find(|(_, unread)| unread.device == stream.device()).expect("a device of this launcher")
}
