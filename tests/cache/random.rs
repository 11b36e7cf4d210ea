//! Random programs always compute what they should and leave nothing in use, on GPUs and on the simulated runtime; and
//! there they never race, nor leak anything, but do race with one ordering rule removed.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};

use crate::apart::{simulated, with_kernels};
use crate::launcher::Launcher;
use crate::program::{programs, run, Broken};
use crate::sim::{self, Sim};
use crate::suite::Outcome;

/// Fewer on a GPU, where it takes long to make streams and pools.
const CASES: u32 = 5_000;
const CASES_ON_A_GPU: u32 = 300;

pub fn programs_do_as_they_should() -> Outcome {
    with_kernels(|machine, launcher| {
        let default = if machine.sim().is_some() { CASES } else { CASES_ON_A_GPU };
        let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default);
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let before = machine.sim().map(Sim::settled);
        TestRunner::new(config)
            .run(&programs(), |program| {
                machine.count_calls();
                run(launcher, &program, Broken::Nothing);
                assert_eq!(sim::heard(), []);
                if let Some(sim) = machine.sim() {
                    assert_eq!(sim.races(), 0, "{}", sim.last_race());
                    assert_eq!(Some(sim.settled()), before, "something is left");
                }
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{error}"));
    })
}

pub fn streams_that_pause_change_nothing() -> Outcome {
    simulated(1, |sim| {
        sim.set_delay(200, 11);
        let mut runner = TestRunner::deterministic();
        for _ in 0..100 {
            let program = programs().new_tree(&mut runner).expect("a program").current();
            sim.reset();
            run(&Launcher::Simulated(sim), &program, Broken::Nothing);
            assert_eq!(sim.races(), 0, "{}", sim.last_race());
        }
        sim.set_delay(0, 0);
    })
}

/// The test of the test: each rule that keeps the order is needed, and the detector sees when it is missing.
pub fn without_an_ordering_rule_they_race() -> Outcome {
    simulated(1, |sim| {
        for broken in [Broken::Return, Broken::SetStream] {
            let mut runner = TestRunner::deterministic();
            let raced = (0..2000).position(|_| {
                let program = programs().new_tree(&mut runner).expect("a program").current();
                sim.reset();
                run(&Launcher::Simulated(sim), &program, broken);
                sim.races() > 0
            });
            assert!(raced.is_some(), "no race was seen without the rule of {broken:?}");
        }
    })
}
