//! What the figures were measured on.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cuda_mempool::{sys, Device, MemPool, Result, Stream, Version};
use libloading::Library;

/// The GPU, its driver, the runtime and the processor, as far as they can be told.
pub fn describe() -> BTreeMap<String, String> {
    let mut machine = BTreeMap::new();
    let mut add = |key: &str, value: String| machine.insert(key.to_owned(), value);
    if let Some(line) = output("nvidia-smi", &["--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"]) {
        let (gpu, driver) = line.split_once(", ").unwrap_or((&line, ""));
        add("gpu", gpu.to_owned());
        add("driver", driver.to_owned());
    }
    if let Ok(runtime) = sys::runtime() {
        add("link", runtime.link().to_string());
        add("library", runtime.path().map_or_else(String::new, |path| path.display().to_string()));
        add("simulated", runtime.path().is_some_and(is_simulated).to_string());
    }
    if let Ok(version) = Version::of_runtime() {
        add("runtime", version.to_string());
    }
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if let Some((_, name)) = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")) {
        add("cpu", name.to_owned());
    }
    add("cores", std::thread::available_parallelism().map_or(0, usize::from).to_string());
    for (key, program, args) in [("system", "uname", "-sr"), ("date", "date", "-u +%Y-%m-%d")] {
        add(key, output(program, &args.split(' ').collect::<Vec<_>>()).unwrap_or_default());
    }
    machine
}

/// Keeps the device busy until its clocks, and those of this processor, have gone up.
pub fn wake(device: Device) -> Result<()> {
    const LONG_ENOUGH: Duration = Duration::from_millis(500);
    let stream = Stream::new(device)?;
    let mut buffer = MemPool::default_for(device)?.alloc::<u8>(&stream, 64 << 20)?;
    let begun = Instant::now();
    while begun.elapsed() < LONG_ENOUGH {
        buffer.zero()?;
        stream.synchronize()?;
    }
    Ok(())
}

/// Whether a runtime is the test bed, which exports its controls: nothing measured on it is a result of CUDA.
fn is_simulated(library: &Path) -> bool {
    // SAFETY: the library is in use already, so nothing runs, and the symbol is only looked up.
    unsafe { Library::new(library).is_ok_and(|library| library.get::<*const c_void>(b"cudartSimVersion\0").is_ok()) }
}

/// The first line of what a command prints.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned())
}
