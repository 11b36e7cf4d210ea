//! The forms that take no stream.

use std::sync::mpsc::{channel, Receiver};
use std::time::Duration;

use cuda_mempool::resource::{CudaAsyncMemoryResource, DeviceMemoryResource};
use cuda_mempool::Stream;

use crate::sim::must;
use crate::suite::{self, Outcome};

/// Any stream may use what they hand out, and whoever gets the memory next what they take back.
pub fn forms_without_a_stream_wait_for_the_default_one() -> Outcome {
    let _watch = suite::watch(1)?;
    let device = suite::device()?;
    let resource =
        must(device.with_current(|| CudaAsyncMemoryResource::new(Some(1 << 20), None, None)).and_then(|it| it));
    let default = Stream::legacy(device);

    let busy = keep_busy(&default);
    let pointer = must(resource.allocate_aligned(1000, 256));
    assert!(busy.try_recv().is_ok(), "allocation waits");

    let busy = keep_busy(&default);
    // SAFETY: it was handed out above, and nothing uses it.
    must(unsafe { resource.deallocate_aligned(pointer, 1000, 256) });
    assert!(busy.try_recv().is_ok(), "deallocation waits");
    Ok(())
}

/// The receiver has something when the stream is idle again.
fn keep_busy(stream: &Stream) -> Receiver<()> {
    let (done, is_done) = channel();
    must(stream.launch_host_fn(move || {
        std::thread::sleep(Duration::from_millis(100));
        done.send(()).expect("somebody listens");
    }));
    is_done
}
