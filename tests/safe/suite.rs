//! How the tests of the safe layer run: one after the other, and each one passes, fails, or is skipped for a reason that
//! everybody sees.
//!
//! The same tests run on GPUs and on the simulated runtime. What only the simulator can answer asks for
//! [`simulated`]; where `CUDA_MEMPOOL_REQUIRE_DEVICE` or `CUDA_MEMPOOL_REQUIRE_SIM` is set, not to have it is a failure.

use std::process::{Command, Output};

use cuda_mempool::{sys, Device, MemPool};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::sim::{self, must, Alone, Live, Sim};

/// Why a test cannot be asked on this machine.
#[derive(Debug)]
pub struct Skip(pub String);

pub type Outcome = Result<(), Skip>;

impl Skip {
    pub fn because<T>(reason: impl Into<String>) -> Result<T, Self> {
        Err(Self(reason.into()))
    }
}

/// A named test.
pub type Test = (&'static str, fn() -> Outcome);

/// What a process of its own does, on its main thread.
pub type Role = (&'static str, fn());

/// Declares the tests of a program, and what it does when a test starts it again.
macro_rules! suite {
    (tests: [$($test:path),* $(,)?], roles: [$($role:path),* $(,)?] $(,)?) => {
        fn main() {
            $crate::suite::run(&[$((stringify!($test), $test)),*], &[$((stringify!($role), $role)),*]);
        }
    };
}

const ROLE: &str = "CUDA_MEMPOOL_TEST_ROLE";

pub fn run(tests: &[Test], roles: &[Role]) {
    if let Ok(wanted) = std::env::var(ROLE) {
        let (_, role) = roles.iter().find(|(name, _)| *name == wanted).expect("a role of this program");
        return role();
    }
    let mut arguments = Arguments::from_args();
    // The tests share a device and its memory, or the counters of the simulator: in turn, unless asked otherwise.
    let threads = std::env::var("RUST_TEST_THREADS").ok().and_then(|number| number.parse().ok()).unwrap_or(1);
    arguments.test_threads.get_or_insert(threads);
    let trial = |&(name, test): &Test| {
        Trial::ignorable_test(name, move || match test() {
            Ok(()) => Ok::<_, Failed>(Completion::Completed),
            Err(Skip(reason)) => Ok(Completion::ignored_with(format!("skipped: {reason}"))),
        })
    };
    libtest_mimic::run(&arguments, tests.iter().map(trial).collect()).exit();
}

/// Runs a role of this program in a process of its own.
pub fn in_child(role: &str) -> Output {
    let output = child(role).output().expect("the child starts");
    println!("{role}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    output
}

/// A process of this program that plays a role when it is started.
pub fn child(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.env(ROLE, role);
    command
}

/// The first device.
pub fn device() -> Result<Device, Skip> {
    match Device::new(0) {
        Ok(device) => Ok(device),
        Err(why) => {
            assert!(std::env::var_os("CUDA_MEMPOOL_REQUIRE_DEVICE").is_none(), "{why}");
            // Only the first line: the others list where a runtime was looked for.
            Skip::because(format!("no device: {}", why.to_string().lines().next().unwrap_or_default()))
        }
    }
}

/// Whether compute-sanitizer looks on, which takes no notice of `cudaDeviceSynchronize` as an order.
pub fn sanitized() -> bool {
    std::env::var_os("CUDA_MEMPOOL_SANITIZED").is_some()
}

/// Two devices that reach each other.
pub fn peers() -> Result<[Device; 2], Skip> {
    let first = device()?;
    sim::with_devices(2);
    let reach = |peer: Device| must(peer.can_access(first)) && must(first.can_access(peer));
    match must(Device::all()).find(|&peer| peer != first && reach(peer)) {
        Some(peer) => Ok([first, peer]),
        None => Skip::because("needs two devices that reach each other"),
    }
}

/// The simulator, alone.
pub fn simulated(devices: usize) -> Result<Alone, Skip> {
    device()?;
    let required = std::env::var_os("CUDA_MEMPOOL_REQUIRE_SIM").is_some();
    match sim::with_devices(devices) {
        None if !required => Skip::because("needs the simulated runtime"),
        _ => Ok(sim::alone(devices).expect("the simulated runtime")),
    }
}

/// A machine of either kind, of which is asked in the end whether all is well.
pub struct Watch {
    sim: Option<Alone>,
}

/// Watches a machine with at least so many devices, from nothing told to the drop hook.
pub fn watch(devices: usize) -> Result<Watch, Skip> {
    device()?;
    let sim = if sim::with_devices(devices).is_some() { sim::alone(devices) } else { None };
    let count = must(Device::count());
    if count < devices {
        return Skip::because(format!("needs {devices} devices, has {count}"));
    }
    sim::tell_the_tests();
    sim::heard();
    Ok(Watch { sim })
}

impl Watch {
    pub fn sim(&self) -> Option<&Sim> {
        self.sim.as_deref()
    }

    /// Nothing was told to the drop hook, no error is left behind; and, as far as the simulator can tell, nothing raced.
    pub fn assert_well(&self) {
        assert_eq!(sim::heard(), [], "drops have failed");
        assert_eq!(sim::last_error(), sys::cudaError_t::cudaSuccess);
        if let Some(sim) = &self.sim {
            assert_eq!(sim.races(), 0, "{}", sim.last_race());
        }
    }

    /// And, as far as the simulator can tell, everything that was made since is gone.
    pub fn assert_gone(&self) {
        self.assert_well();
        if let Some(sim) = &self.sim {
            assert_eq!(sim.new_live(), Live::default(), "something is left");
        }
    }
}

/// Nothing of these pools is in use.
pub fn assert_unused<'p>(pools: impl IntoIterator<Item = &'p MemPool>) {
    for pool in pools {
        assert_eq!(must(pool.usage()).used, 0, "{pool:?}");
    }
}
