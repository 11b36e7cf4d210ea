//! Bars that show how full devices and pools are, again and again.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::thread::sleep;

use cuda_mempool::{Device, DeviceBuffer, MemPool, PoolUsage, Result, Stream};

use crate::arguments::Watch;
use crate::table::bytes;

/// Draws until there were enough frames, for ever if no number is given.
pub fn run(watch: &Watch, out: &mut impl Write) -> io::Result<()> {
    let redraws = io::stdout().is_terminal();
    let mut load = if watch.load { Some(Load::new()?) } else { None };
    for frame in 0.. {
        if watch.frames.is_some_and(|frames| frame >= frames) {
            break;
        }
        if frame > 0 {
            sleep(watch.every);
        }
        if let Some(load) = &mut load {
            load.step(frame)?;
        }
        let bars = bars()?;
        if redraws {
            // Home, the frame with each line's old rest cleared, and whatever was below it.
            write!(out, "\x1b[H{}\x1b[J", bars.replace('\n', "\x1b[K\n"))?;
        } else {
            writeln!(out, "{bars}")?;
        }
        out.flush()?;
    }
    Ok(())
}

fn bars() -> Result<String> {
    let mut text = String::from("█ used  ▒ reserved  | the most so far. The pools are those of this process.\n");
    for device in Device::all()? {
        let memory = device.memory()?;
        let (used, total) = ((memory.total - memory.free) as u64, memory.total as u64);
        let _ = writeln!(text, "{device}");
        let all = format!("{} of {}", bytes(used), bytes(total));
        let _ = writeln!(text, "  whole device  {} {all}", bar(used, used, used, total));
        for (name, usage) in [
            ("current pool", MemPool::current_for(device).and_then(|pool| pool.usage())),
            ("graphs", device.graph_memory()),
        ] {
            let _ = match usage {
                Ok(usage) => writeln!(text, "  {name:<12}  {}", usage_bar(&usage)),
                Err(error) => writeln!(text, "  {name:<12}  {error}"),
            };
        }
    }
    Ok(text)
}

fn usage_bar(usage: &PoolUsage) -> String {
    let bar = bar(usage.used, usage.reserved, usage.used_high, usage.reserved_high);
    let [used, reserved, most] = [usage.used, usage.reserved, usage.reserved_high].map(bytes);
    format!("{bar} {used} used, {reserved} reserved, {most} at most")
}

const WIDTH: u64 = 40;

/// A bar as long as `whole`.
fn bar(used: u64, reserved: u64, mark: u64, whole: u64) -> String {
    // Something is seen of everything that is not nothing.
    let place = |part: u64| (u128::from(part) * u128::from(WIDTH)).div_ceil(u128::from(whole.max(1))) as u64;
    let drawn = (1..=WIDTH).map(|at| match at {
        _ if at <= place(used) => '█',
        _ if at == place(mark) => '|',
        _ if at <= place(reserved) => '▒',
        _ => '·',
    });
    drawn.collect()
}

/// Work for the pools: buffers of many sizes, each alive for a few frames.
struct Load {
    stream: Stream,
    pool: MemPool,
    alive: Vec<DeviceBuffer<u8>>,
}

impl Load {
    fn new() -> Result<Self> {
        let device = Device::new(0)?;
        Ok(Self { stream: Stream::new(device)?, pool: MemPool::current_for(device)?, alive: Vec::new() })
    }

    fn step(&mut self, frame: u64) -> Result<()> {
        // Up for eight frames, then down to nothing, and what is free goes back to the system at the synchronisation.
        if frame % 12 < 8 {
            self.alive.push(self.pool.alloc_zeroed(&self.stream, 24 << 20)?);
        } else {
            self.alive.truncate(self.alive.len().saturating_sub(3));
        }
        self.stream.synchronize()
    }
}
