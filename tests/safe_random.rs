//! Random programs of safe calls never race, never leak and always compute what they should; and with one ordering rule
//! removed, they do race.
//!
//! `PROPTEST_CASES=1000000 cargo test --test safe_random` is the long run.

#[path = "safe/program.rs"]
mod program;
#[path = "safe/sim.rs"]
#[allow(dead_code)] // Each test uses its part.
mod sim;

use program::{programs, run, Broken, DEVICES};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};

#[test]
fn random_programs_do_not_race_nor_leak() {
    let Some(sim) = sim::alone(DEVICES) else { return };
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(10_000);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&programs(), |program| {
            sim.reset();
            run(&sim, &program, Broken::Nothing);
            assert_eq!(sim.races(), 0, "{}", sim.last_race());
            assert_eq!(sim.new_live(), sim::Live::default(), "something is left");
            assert_eq!(sim::heard(), []);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn streams_that_pause_at_random_change_nothing() {
    let Some(sim) = sim::alone(DEVICES) else { return };
    sim.set_delay(200, 7);
    let mut runner = TestRunner::deterministic();
    for _ in 0..100 {
        let program = programs().new_tree(&mut runner).expect("a program").current();
        sim.reset();
        run(&sim, &program, Broken::Nothing);
        assert_eq!(sim.races(), 0, "{}", sim.last_race());
    }
    sim.set_delay(0, 0);
}

/// The test of the test: each rule that keeps the order is needed, and the detector sees when it is missing.
#[test]
fn without_an_ordering_rule_they_race() {
    let Some(sim) = sim::alone(DEVICES) else { return };
    for broken in [Broken::SetStream, Broken::CopyBack, Broken::VisitBack] {
        let mut runner = TestRunner::deterministic();
        let raced = (0..2000).position(|_| {
            let program = programs().new_tree(&mut runner).expect("a program").current();
            sim.reset();
            run(&sim, &program, broken);
            sim.races() > 0
        });
        assert!(raced.is_some(), "no race was seen without the rule of {broken:?}");
    }
}
