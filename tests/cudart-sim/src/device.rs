//! Devices: how many, how large, what they say of themselves.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cuda::{cudaDeviceAttr, cudaError};
use crate::memory::heap::Heap;
use crate::order::Host;
use crate::sim::{Sim, PLAIN_STEP};
use crate::stream::{self, StreamId};
use crate::Outcome;

/// See the module.
#[derive(Debug)]
pub struct Device {
    /// Which device of the machine it is, whatever its number in this process.
    pub place: usize,
    pub total: usize,
    pub used: usize,
    pub legacy: StreamId,
    /// What streams did that are gone.
    pub departed: Host,
    /// Memory of `cudaMalloc`.
    pub plain: Heap,
    /// Devices whose memory this one can be let reach.
    pub reaches: BTreeSet<usize>,
    /// Devices whose `cudaMalloc` memory this one was let reach.
    pub peers: BTreeSet<usize>,
}

impl Sim {
    /// One more device, which is at this place in the machine.
    pub fn add_device(&mut self, place: usize) {
        let number = self.devices.len();
        let legacy = self.add_stream(number, stream::Kind::Legacy, 0, 0);
        let reaches = if self.config.peers { (0..number).collect() } else { BTreeSet::new() };
        for &peer in &reaches {
            let peer: &mut Device = &mut self.devices[peer];
            peer.reaches.insert(number);
        }
        self.devices.push(Device {
            place,
            total: self.config.memory,
            used: 0,
            legacy,
            departed: Host::default(),
            plain: Heap::new(Arc::clone(&self.arena), false, PLAIN_STEP),
            reaches,
            peers: BTreeSet::new(),
        });
    }

    /// The number of the device at this place in the machine, if this process sees it.
    pub fn device_at(&self, place: u64) -> Option<usize> {
        self.devices.iter().position(|device| device.place as u64 == place)
    }

    /// The device of this number.
    ///
    /// # Errors
    /// No device when there is none at all, an invalid one otherwise.
    pub fn device(&self, number: i32) -> Outcome<usize> {
        if self.devices.is_empty() {
            return Err(cudaError::cudaErrorNoDevice);
        }
        usize::try_from(number).ok().filter(|n| *n < self.devices.len()).ok_or(cudaError::cudaErrorInvalidDevice)
    }
}

/// What a device says of an attribute: what an H200 answered, as far as a program of memory pools may ask; none for an
/// attribute that a 13.0 driver does not know.
pub fn attribute(attribute: cudaDeviceAttr, device: &Device) -> Option<i32> {
    /// The first number that a 13.0 driver does not know.
    const END: u32 = 148;
    Some(match attribute {
        cudaDeviceAttr(0) => return None,
        cudaDeviceAttr(END..) => return None,
        cudaDeviceAttr::cudaDevAttrMaxThreadsPerBlock | cudaDeviceAttr::cudaDevAttrMaxBlockDimX => 1024,
        cudaDeviceAttr::cudaDevAttrMaxBlockDimY => 1024,
        cudaDeviceAttr::cudaDevAttrMaxBlockDimZ => 64,
        cudaDeviceAttr::cudaDevAttrMaxGridDimX => i32::MAX,
        cudaDeviceAttr::cudaDevAttrMaxGridDimY | cudaDeviceAttr::cudaDevAttrMaxGridDimZ => 65535,
        cudaDeviceAttr::cudaDevAttrWarpSize => 32,
        cudaDeviceAttr::cudaDevAttrTextureAlignment => 512,
        cudaDeviceAttr::cudaDevAttrMultiProcessorCount => 132,
        cudaDeviceAttr::cudaDevAttrComputeCapabilityMajor => 9,
        cudaDeviceAttr::cudaDevAttrPciBusId => bus_id(device),
        cudaDeviceAttr::cudaDevAttrAsyncEngineCount => 3,
        cudaDeviceAttr::cudaDevAttrMemoryPoolSupportedHandleTypes => 9,
        cudaDeviceAttr::cudaDevAttrNumaId => -1,
        cudaDeviceAttr::cudaDevAttrCanMapHostMemory
        | cudaDeviceAttr::cudaDevAttrGpuOverlap
        | cudaDeviceAttr::cudaDevAttrConcurrentKernels
        | cudaDeviceAttr::cudaDevAttrUnifiedAddressing
        | cudaDeviceAttr::cudaDevAttrStreamPrioritiesSupported
        | cudaDeviceAttr::cudaDevAttrManagedMemory
        | cudaDeviceAttr::cudaDevAttrConcurrentManagedAccess
        | cudaDeviceAttr::cudaDevAttrCanUseHostPointerForRegisteredMem
        | cudaDeviceAttr::cudaDevAttrReserved92
        | cudaDeviceAttr::cudaDevAttrReserved93
        | cudaDeviceAttr::cudaDevAttrReserved94
        | cudaDeviceAttr::cudaDevAttrHostRegisterSupported
        | cudaDeviceAttr::cudaDevAttrMemoryPoolsSupported
        | cudaDeviceAttr::cudaDevAttrIpcEventSupport
        | cudaDeviceAttr::cudaDevAttrHostNumaMemoryPoolsSupported
        | cudaDeviceAttr::cudaDevAttrHostMemoryPoolsSupported => 1,
        _ => 0,
    })
}

/// Where on the bus a device is said to be.
pub fn bus_id(device: &Device) -> i32 {
    device.place as i32 + 1
}
