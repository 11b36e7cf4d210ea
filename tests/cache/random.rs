//! Random programs never race, never leak and always compute what they should; and with one ordering rule removed, they
//! do race.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};

use crate::apart::apart;
use crate::program::{programs, run, Broken};
use crate::sim;

#[test]
fn random_programs_do_not_race_nor_leak() {
    apart(1, |sim| {
        let before = sim.live();
        let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(5_000);
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        TestRunner::new(config)
            .run(&programs(), |program| {
                sim.reset();
                run(sim, &program, Broken::Nothing);
                assert_eq!(sim.races(), 0, "{}", sim.last_race());
                assert_eq!(sim.live(), before, "something is left");
                assert_eq!(sim::heard(), []);
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{error}"));
    });
}

#[test]
fn random_streams_that_pause_change_nothing() {
    apart(1, |sim| {
        sim.set_delay(200, 11);
        let mut runner = TestRunner::deterministic();
        for _ in 0..100 {
            let program = programs().new_tree(&mut runner).expect("a program").current();
            sim.reset();
            run(sim, &program, Broken::Nothing);
            assert_eq!(sim.races(), 0, "{}", sim.last_race());
        }
        sim.set_delay(0, 0);
    });
}

/// The test of the test: each rule that keeps the order is needed, and the detector sees when it is missing.
#[test]
fn random_programs_without_an_ordering_rule_race() {
    apart(1, |sim| {
        for broken in [Broken::Return, Broken::SetStream] {
            let mut runner = TestRunner::deterministic();
            let raced = (0..2000).position(|_| {
                let program = programs().new_tree(&mut runner).expect("a program").current();
                sim.reset();
                run(sim, &program, broken);
                sim.races() > 0
            });
            assert!(raced.is_some(), "no race was seen without the rule of {broken:?}");
        }
    });
}
