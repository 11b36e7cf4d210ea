//! Memory of this crate and a kernel of cudarc's, on one stream. Then the memory itself goes over, and back.
//!
//! Both crates work in the device's primary context, so streams and pointers of the one mean the same to the other.

use std::error::Error;
use std::sync::Arc;

use cuda_mempool::{Device, DeviceBuffer, Home, MemPool, RawDeviceBuffer, Stream};
use cudarc::driver::{CudaContext, CudaFunction, CudaStream, DriverError, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

fn main() -> Result<(), Box<dyn Error>> {
    // SAFETY: nothing is called but the driver library's initialisers, which have no requirement.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        println!("skipped: cudarc works through the CUDA driver (libcuda), and there is none here");
        return Ok(());
    }
    let context = CudaContext::new(0)?;
    let module = context.load_module(Ptx::from_src(include_str!("scale.ptx")))?;
    let scale = module.load_function("scale")?;
    let device = Device::new(context.ordinal())?;

    // One stream, owned by cudarc and lent to this crate.
    let theirs = context.new_stream()?;
    // SAFETY: `theirs` lives until the end of the function, after everything that belongs to the stream.
    let ours = unsafe { Stream::from_raw_borrowed(theirs.cu_stream().cast(), device) };
    let pool = MemPool::builder(device).release_threshold(u64::MAX).build()?;
    let mut values = pool.from_slice(&ours, &[1.0_f32, 2.0, 3.0])?;

    // On the buffer's own stream a kernel needs no event: it comes after the copy, and before what follows.
    // SAFETY: the buffer has that many values, and belongs to the stream.
    unsafe { launch(&theirs, &scale, values.as_mut_ptr(), values.len(), 2.0) }?;
    assert_eq!(values.to_vec()?, [2.0, 4.0, 6.0]);

    // On another stream the buffer is brought there and back.
    let elsewhere = context.new_stream()?;
    // SAFETY: as above.
    let visited = unsafe { Stream::from_raw_borrowed(elsewhere.cu_stream().cast(), device) };
    let count = values.len();
    // SAFETY: the kernel is launched on the stream that the buffer was brought to.
    values.with_stream(&visited, |pointer| unsafe { launch(&elsewhere, &scale, pointer, count, 10.0) })??;
    assert_eq!(values.to_vec()?, [20.0, 40.0, 60.0]);

    // The memory itself goes over: cudarc frees it now.
    let raw = values.into_raw();
    // SAFETY: there are that many values, all work on them is ordered on the stream, and nobody else frees them.
    let slice = unsafe { theirs.upgrade_device_ptr::<f32>(raw.base as u64, raw.length) };
    assert_eq!(theirs.clone_dtoh(&slice)?, [20.0, 40.0, 60.0]);

    // And back.
    let length = slice.len();
    let base = slice.leak() as *mut f32;
    let raw = RawDeviceBuffer { pointer: base, length, base: base.cast(), stream: ours.clone(), home: Home::RUNTIME };
    // SAFETY: as above, with the roles changed.
    let values = unsafe { DeviceBuffer::from_raw(raw) };
    assert_eq!(values.to_vec()?, [20.0, 40.0, 60.0]);

    drop(values);
    pool.sync_and_trim(&ours, 0)?;
    assert_eq!(pool.usage()?.reserved, 0);
    println!("{device}: a kernel of cudarc's worked on a buffer of this crate, on two streams");
    Ok(())
}

/// Multiplies `count` values by `factor`.
///
/// # Safety
/// The values must be writable in the order of the stream.
unsafe fn launch(
    stream: &Arc<CudaStream>,
    scale: &CudaFunction,
    values: *mut f32,
    count: usize,
    factor: f32,
) -> Result<(), DriverError> {
    let (address, number) = (values as u64, count as u64);
    let mut launch = stream.launch_builder(scale);
    launch.arg(&address).arg(&number).arg(&factor);
    let shape = LaunchConfig::for_num_elems(u32::try_from(count).expect("few values"));
    // SAFETY: these are the kernel's parameters, and the caller vouches for the memory.
    unsafe { launch.launch(shape) }.map(drop)
}
