//! Devices and what they say of themselves and each other.

use std::ffi::{c_char, c_int, c_uint};

use super::{capture, current, give, require};
use crate::cuda::{cudaDeviceAttr, cudaError};
use crate::device::{attribute, bus_id};
use crate::{call, sim, Outcome};

pub unsafe fn cudaGetDeviceCount(count: *mut c_int) -> Outcome {
    let devices = sim::lock().devices.len();
    // SAFETY: the caller's out pointer.
    unsafe { give(count, devices as c_int)? };
    if devices == 0 {
        return Err(cudaError::cudaErrorNoDevice);
    }
    Ok(())
}

pub unsafe fn cudaSetDevice(device: c_int) -> Outcome {
    sim::lock().device(device)?;
    current::set_device(device);
    Ok(())
}

pub unsafe fn cudaGetDevice(device: *mut c_int) -> Outcome {
    // Asked for often, so it takes no lock.
    // SAFETY: the caller's out pointer.
    unsafe { give(device, current::device_number()) }
}

pub unsafe fn cudaDeviceGetAttribute(value: *mut c_int, attr: cudaDeviceAttr, device: c_int) -> Outcome {
    let sim = sim::lock();
    let answer = attribute(attr, &sim.devices[sim.device(device)?]).ok_or(cudaError::cudaErrorInvalidValue)?;
    // SAFETY: the caller's out pointer.
    unsafe { give(value, answer) }
}

pub unsafe fn cudaDeviceGetPCIBusId(pciBusId: *mut c_char, len: c_int, device: c_int) -> Outcome {
    let sim = sim::lock();
    let text = format!("0000:{:02X}:00.0\0", bus_id(&sim.devices[sim.device(device)?]));
    require(!pciBusId.is_null() && usize::try_from(len).is_ok_and(|len| len >= text.len()))?;
    // SAFETY: the caller's buffer has room for the text.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), pciBusId.cast(), text.len()) };
    Ok(())
}

pub unsafe fn cudaDeviceSynchronize() -> Outcome {
    let mut sim = sim::lock();
    capture::police(&mut sim)?;
    let device = current::device(&sim)?;
    let mut sim = sim::wait_for_device(sim, device);
    sim.synchronised();
    call::healthy()
}

pub unsafe fn cudaDeviceCanAccessPeer(canAccessPeer: *mut c_int, device: c_int, peerDevice: c_int) -> Outcome {
    let sim = sim::lock();
    let (device, peer) = (sim.device(device)?, sim.device(peerDevice)?);
    // SAFETY: the caller's out pointer.
    unsafe { give(canAccessPeer, c_int::from(sim.devices[device].reaches.contains(&peer))) }
}

pub unsafe fn cudaDeviceEnablePeerAccess(peerDevice: c_int, flags: c_uint) -> Outcome {
    let mut sim = sim::lock();
    let (device, peer) = (current::device(&sim)?, sim.device(peerDevice)?);
    require(flags == 0)?;
    let device = &mut sim.devices[device];
    if !device.reaches.contains(&peer) {
        return Err(cudaError::cudaErrorPeerAccessUnsupported);
    }
    if !device.peers.insert(peer) {
        return Err(cudaError::cudaErrorPeerAccessAlreadyEnabled);
    }
    Ok(())
}

pub unsafe fn cudaDeviceDisablePeerAccess(peerDevice: c_int) -> Outcome {
    let mut sim = sim::lock();
    let (device, peer) = (current::device(&sim)?, sim.device(peerDevice)?);
    if sim.devices[device].peers.remove(&peer) {
        Ok(())
    } else {
        Err(cudaError::cudaErrorPeerAccessNotEnabled)
    }
}

pub unsafe fn cudaDeviceGetStreamPriorityRange(leastPriority: *mut c_int, greatestPriority: *mut c_int) -> Outcome {
    current::device(&sim::lock())?;
    // Either may be left out.
    for (out, value) in [(leastPriority, 0), (greatestPriority, super::stream::GREATEST_PRIORITY)] {
        if !out.is_null() {
            // SAFETY: the caller's out pointer.
            unsafe { out.write(value) };
        }
    }
    Ok(())
}
