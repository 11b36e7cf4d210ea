//! The settings, read from the environment when the first call comes.

use std::time::Duration;

use crate::race;

/// Everything that `CUDART_SIM_…` variables choose. A value that cannot be read ends the process with a message: a
/// test that runs with other settings than were asked for would prove the wrong thing.
#[derive(Debug, Clone)]
pub struct Config {
    /// `VISIBLE_DEVICES`: the places in the machine of the devices that there are, else the first `DEVICES`.
    pub devices: Vec<usize>,
    /// `MEMORY`: bytes of each device (suffix K, M, G).
    pub memory: usize,
    /// `HOST_MEMORY`: bytes that can be pinned (suffix K, M, G).
    pub host_memory: usize,
    /// `PEERS`: whether devices reach each other's memory.
    pub peers: bool,
    /// `RUNTIME_VERSION` and `DRIVER_VERSION`, as CUDA counts: 13000 is 13.0.
    pub runtime_version: i32,
    pub driver_version: i32,
    /// `RACES`: what a stream-order race does: error, abort, count or off.
    pub races: race::Mode,
    /// `LEAKS`: whether the process reports at its end what was never given back.
    pub leak_report: bool,
    /// `FAULTS`: rules of faults to inject.
    pub faults: String,
    /// `SEED`: of random faults and delays.
    pub seed: u64,
    /// `DELAY_US`: the longest random delay before an operation of a stream; 0 for none.
    pub delay: Duration,
}

impl Config {
    /// Reads the environment.
    pub fn from_environment() -> Self {
        let first = variable("DEVICES", 1, |text| text.parse().ok().filter(|count| *count <= 64));
        Self {
            devices: variable("VISIBLE_DEVICES", (0..first).collect(), places),
            memory: variable("MEMORY", 16 << 30, bytes),
            host_memory: variable("HOST_MEMORY", 64 << 30, bytes),
            peers: variable("PEERS", true, switch),
            runtime_version: variable("RUNTIME_VERSION", 13000, |text| text.parse().ok()),
            driver_version: variable("DRIVER_VERSION", 13000, |text| text.parse().ok()),
            races: variable("RACES", race::Mode::Error, race::Mode::named),
            leak_report: variable("LEAKS", false, switch),
            faults: variable("FAULTS", String::new(), |text| Some(text.to_owned())),
            seed: variable("SEED", 1, |text| text.parse().ok()),
            delay: variable("DELAY_US", Duration::ZERO, |text| text.parse().ok().map(Duration::from_micros)),
        }
    }
}

fn places(text: &str) -> Option<Vec<usize>> {
    text.split(',').map(|place| place.parse().ok().filter(|place| *place < 64)).collect()
}

fn variable<T>(name: &str, default: T, read: impl FnOnce(&str) -> Option<T>) -> T {
    let name = format!("CUDART_SIM_{name}");
    match std::env::var(&name) {
        Ok(text) if !text.is_empty() => match read(&text) {
            Some(value) => value,
            None => fatal(&format!("{name} cannot be {text:?}")),
        },
        _ => default,
    }
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    }
}

fn bytes(text: &str) -> Option<usize> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

/// Ends the process because the simulator cannot do what it was asked to.
pub fn fatal(why: &str) -> ! {
    eprintln!("cudart-sim: {why}");
    std::process::abort()
}
