//! Devices reach the memory when they were granted access, and are refused up front when not.

use allocator_api2::vec::Vec as PinnedVec;
use cuda_mempool::host::{NumaAllocator, PinnedBox};
use cuda_mempool::{sys, Access, Device, ErrorKind, MemPool, Result, Stream};
use cudart_sim_control::Control;

use crate::support::kernel::Kernels;
use crate::{alone, node_of, pinned, skip, with_each_kind};

fn without_access(device: Device) -> Result<NumaAllocator> {
    NumaAllocator::builder().near_without_access(device).build()
}

pub fn near_a_device_has_its_access_and_other_places_have_none() {
    alone(|device| {
        let near = pinned(device)?;
        let refused = without_access(device)?;
        let node = NumaAllocator::builder().node(node_of(&near)).build()?;
        let granted = NumaAllocator::builder().node(node_of(&near)).grant([device]).build()?;
        assert_eq!(near.location(), refused.location());
        for (pinned, access) in
            [(near, Access::ReadWrite), (refused, Access::None), (node, Access::None), (granted, Access::ReadWrite)]
        {
            assert_eq!(pinned.access(device)?, access);
        }
        Ok(())
    });
}

pub fn the_last_choice_of_a_place_decides_who_has_access() {
    alone(|device| {
        let node = node_of(&pinned(device)?);
        let choose = NumaAllocator::builder;
        for (builder, access) in [
            (choose().near(device).node(node), Access::None),
            (choose().near(device).near_without_access(device), Access::None),
            (choose().near_without_access(device).near(device), Access::ReadWrite),
            (choose().near_without_access(device).grant([device]), Access::ReadWrite),
        ] {
            assert_eq!(builder.build()?.access(device)?, access);
        }
        Ok(())
    });
}

pub fn grants_add_to_the_device_nearby() {
    alone(|device| {
        if let (Some(sim), 1) = (Control::loaded(), Device::count()?) {
            sim.add_device();
        }
        let Some(other) = Device::all()?.find(|&other| other != device) else {
            skip("it takes two devices");
            return Ok(());
        };
        let both = NumaAllocator::builder().near(device).grant([other]).build()?;
        let alone = pinned(device)?;
        assert_eq!(both.access(device)?, Access::ReadWrite);
        assert_eq!(both.access(other)?, Access::ReadWrite);
        assert_eq!(alone.access(other)?, Access::None);
        Ok(())
    });
}

pub fn without_a_grant_copies_work_and_kernels_are_refused() {
    alone(|device| {
        let pinned = without_access(device)?;
        let stream = Stream::new(device)?;
        let mut words = PinnedBox::from_fn(&pinned, 1000, |index| index as u32)?;
        let mut back = PinnedBox::<[u32]>::zeroed(&pinned, 1000)?;
        let mut buffer = MemPool::default_for(device)?.alloc(&stream, 1000)?;
        stream.scope(|s| {
            s.copy_from_host(&mut buffer, &words)?;
            s.copy_to_host(&buffer, &mut back)
        })?;
        assert_eq!(words, back);

        assert_eq!(pinned.device_ptr(device, &words).unwrap_err().kind(), ErrorKind::NotPermitted);
        assert_eq!(pinned.device_mut_ptr(device, &mut words).unwrap_err().kind(), ErrorKind::NotPermitted);
        assert_eq!(memset(&stream, &mut words), sys::cudaError_t::cudaErrorInvalidValue);
        Ok(())
    });
}

pub fn with_a_grant_both_work() {
    with_each_kind(|device, pinned| {
        let stream = Stream::new(device)?;
        let mut words = PinnedBox::from_slice(&pinned, &[1_u32; 1000])?;
        assert_eq!(pinned.device_ptr(device, &words)?, words.as_ptr());
        assert_eq!(pinned.device_mut_ptr(device, &mut words)?, words.as_mut_ptr());
        assert_eq!(memset(&stream, &mut words), sys::cudaError_t::cudaSuccess);
        stream.synchronize()?;
        assert_eq!(*words, [0x0101_0101 * 7; 1000]);
        Ok(())
    });
}

pub fn access_can_change_later() {
    alone(|device| {
        let pinned = without_access(device)?;
        let words = PinnedBox::from_slice(&pinned, &[1_u32; 10])?;
        pinned.pool().expect("a pool").set_access(device, Access::ReadWrite)?;
        assert!(pinned.device_ptr(device, &words).is_ok());
        pinned.pool().expect("a pool").revoke_access(device)?;
        assert!(pinned.device_ptr(device, &words).is_err());
        Ok(())
    });
}

pub fn only_its_own_memory_is_vouched_for() {
    alone(|device| {
        let pinned = pinned(device)?;
        let error = pinned.device_ptr(device, &[1_u32, 2, 3]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidValue);
        assert!(pinned.device_ptr::<u32>(device, &[]).is_ok());
        Ok(())
    });
}

pub fn registered_memory_is_for_every_device() {
    alone(|device| {
        let pinned = NumaAllocator::builder().node(node_of(&pinned(device)?)).registered().build()?;
        let words = PinnedBox::from_slice(&pinned, &[1_u32; 10])?;
        assert!(pinned.pool().is_none());
        for device in Device::all()? {
            assert_eq!(pinned.access(device)?, Access::ReadWrite);
            assert_eq!(pinned.device_ptr(device, &words)?, words.as_ptr());
        }
        let refused = NumaAllocator::builder().near_without_access(device).registered().build().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidValue);
        Ok(())
    });
}

pub fn kernels_read_and_write_a_vector() {
    with_each_kind(|device, pinned| {
        let kernels = match device.with_current(Kernels::load)? {
            Ok(kernels) => kernels,
            Err(why) => {
                skip(why);
                return Ok(());
            }
        };
        let stream = Stream::new(device)?;
        let mut words = PinnedVec::new_in(pinned.clone());
        words.extend(0..1_000_000_u32);
        let mut total = PinnedBox::new(&pinned, [0_u64])?;
        let pointer = pinned.device_mut_ptr(device, &mut words)?;
        let total_pointer = pinned.device_mut_ptr(device, &mut *total)?;
        // SAFETY: the device has access, and the memory stays until the stream is done.
        unsafe {
            kernels.increment(stream.as_raw(), pointer, words.len() as u64).expect("a launch");
            kernels.sum(stream.as_raw(), pointer, words.len() as u64, total_pointer).expect("a launch");
        }
        stream.synchronize()?;
        assert!(words.iter().copied().eq(1..=1_000_000));
        assert_eq!(total[0], (1..=1_000_000_u64).sum());
        Ok(())
    });
}

/// Sets every byte to 7 on the device, which a kernel does and no copy engine.
fn memset(stream: &Stream, words: &mut [u32]) -> sys::cudaError_t {
    let bytes = std::mem::size_of_val(words);
    // SAFETY: the memory is `bytes` long, and the callers wait for the stream before they look.
    let answer = unsafe { sys::cudaMemsetAsync(words.as_mut_ptr().cast(), 7, bytes, stream.as_raw()) };
    // SAFETY: takes nothing.
    unsafe { sys::cudaGetLastError() };
    answer
}
