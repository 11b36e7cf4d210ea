//! Random programs of safe calls always compute what they should and leave nothing in use, on GPUs and on the simulated
//! runtime; and there they never race, nor leak anything, but do race with one ordering rule removed.
//!
//! `PROPTEST_CASES=1000000 cargo test --test safe_random` is the long run.

#[path = "support/driver.rs"]
#[allow(dead_code)] // What the kernels use of it.
mod driver;
#[path = "support/kernel.rs"]
#[allow(dead_code)] // Two of its kernels are used here.
mod kernel;
#[path = "safe/launcher.rs"]
mod launcher;
#[path = "safe/program.rs"]
mod program;
#[path = "safe/sim.rs"]
#[allow(dead_code)] // Each test uses its part.
mod sim;
#[path = "safe/suite.rs"]
#[allow(dead_code)] // As above.
#[macro_use]
mod suite;

use program::{programs, run, Broken, Machine, DEVICES};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};
use sim::Sim;
use suite::Outcome;

/// Fewer on a GPU, where it takes long to make streams and pools.
const CASES: u32 = 10_000;
const CASES_ON_A_GPU: u32 = 200;

fn random_programs_do_as_they_should() -> Outcome {
    let watch = suite::watch(1)?;
    let devices = suite::peers().map_or_else(|_| suite::device().map(|one| vec![one]), |two| Ok(two.to_vec()))?;
    let default = if watch.sim().is_some() { CASES } else { CASES_ON_A_GPU };
    let machine = Machine::new(watch.sim(), devices)?;
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(default);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&programs(), |program| {
            watch.sim().into_iter().for_each(Sim::reset);
            run(&machine, &program, Broken::Nothing);
            watch.assert_gone();
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    Ok(())
}

fn streams_that_pause_at_random_change_nothing() -> Outcome {
    let sim = suite::simulated(DEVICES)?;
    let machine = Machine::new(Some(&sim), suite::peers()?.to_vec())?;
    sim.set_delay(200, 7);
    let mut runner = TestRunner::deterministic();
    for _ in 0..100 {
        let program = programs().new_tree(&mut runner).expect("a program").current();
        sim.reset();
        run(&machine, &program, Broken::Nothing);
        assert_eq!(sim.races(), 0, "{}", sim.last_race());
    }
    sim.set_delay(0, 0);
    Ok(())
}

/// The test of the test: each rule that keeps the order is needed, and the detector sees when it is missing.
fn without_an_ordering_rule_they_race() -> Outcome {
    let sim = suite::simulated(DEVICES)?;
    let machine = Machine::new(Some(&sim), suite::peers()?.to_vec())?;
    for broken in [Broken::SetStream, Broken::CopyBack, Broken::VisitBack] {
        let mut runner = TestRunner::deterministic();
        let raced = (0..2000).position(|_| {
            let program = programs().new_tree(&mut runner).expect("a program").current();
            sim.reset();
            run(&machine, &program, broken);
            sim.races() > 0
        });
        assert!(raced.is_some(), "no race was seen without the rule of {broken:?}");
    }
    Ok(())
}

suite! {
    tests: [
        random_programs_do_as_they_should,
        streams_that_pause_at_random_change_nothing,
        without_an_ordering_rule_they_race,
    ],
    roles: [],
}
