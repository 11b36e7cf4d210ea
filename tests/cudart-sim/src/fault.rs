//! Injected faults: a chosen call answers a chosen error instead of being run.
//!
//! A rule reads `FUNCTION#N=ERROR` (the Nth call from now) or `FUNCTION%RATE=ERROR` (that fraction of calls, by a seeded
//! generator). `FUNCTION` is a name, of the driver's functions too, or `*` for any of the runtime; `ERROR` is a number, with `!` behind it when it shall be sticky. Several
//! rules are separated by commas.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::call;
use crate::cuda::{cudaError, Function};
use crate::exports::EntryPoint;
use crate::random::Random;

/// Lets calls pass without a lock while there is no rule.
static ARMED: AtomicBool = AtomicBool::new(false);
static RULES: Mutex<Vec<Rule>> = Mutex::new(Vec::new());

struct Rule {
    target: Target,
    when: When,
    error: cudaError,
    sticky: bool,
}

/// What a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Any function of the runtime.
    Any,
    /// The function of the runtime with this index.
    Runtime(usize),
    Driver(&'static str),
}

impl Target {
    fn named(name: &str) -> Option<Self> {
        if name == "*" {
            return Some(Self::Any);
        }
        let runtime = Function::named(name).map(Self::Runtime);
        runtime.or_else(|| EntryPoint::named(name).map(|entry| Self::Driver(entry.name())))
    }
}

enum When {
    /// This many calls from now, counted down.
    Nth(u64),
    /// Each call with this probability.
    Rate(f64, Random),
}

/// The error that this call shall answer, if it was chosen to fail.
pub fn injected(function: Function) -> Option<cudaError> {
    choose(|target| target == Target::Any || target == Target::Runtime(function as usize))
}

/// As above, for a function of the driver.
pub fn injected_into_driver(name: &'static str) -> Option<cudaError> {
    choose(|target| target == Target::Driver(name))
}

fn choose(is_for: impl Fn(Target) -> bool) -> Option<cudaError> {
    if !ARMED.load(Ordering::Relaxed) {
        return None;
    }
    let mut rules = RULES.lock();
    // Every rule sees every call, so that counts do not depend on other rules.
    let mut chosen = None;
    for rule in rules.iter_mut().filter(|rule| is_for(rule.target)) {
        let fires = match &mut rule.when {
            When::Nth(left) => {
                *left = left.saturating_sub(1);
                *left == 0
            }
            When::Rate(rate, random) => random.fraction() < *rate,
        };
        if fires && chosen.is_none() {
            chosen = Some((rule.error, rule.sticky));
        }
    }
    rules.retain(|rule| !matches!(rule.when, When::Nth(0)));
    ARMED.store(!rules.is_empty(), Ordering::Relaxed);
    let (error, sticky) = chosen?;
    if sticky {
        call::set_sticky(error);
    }
    Some(error)
}

/// Adds the rules of a specification.
///
/// # Errors
/// Says which part cannot be read; then no rule is added.
pub fn add(specification: &str, seed: u64) -> Result<(), String> {
    let parts = specification.split(',').map(str::trim).filter(|part| !part.is_empty());
    let new = parts.map(|part| parse(part, seed).ok_or_else(|| part.to_owned())).collect::<Result<Vec<_>, _>>();
    RULES.lock().extend(new?);
    ARMED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Forgets all rules.
pub fn clear() {
    RULES.lock().clear();
    ARMED.store(false, Ordering::Relaxed);
}

fn parse(rule: &str, seed: u64) -> Option<Rule> {
    let (call, error) = rule.split_once('=')?;
    let (error, sticky) = error.strip_suffix('!').map_or((error, false), |error| (error, true));
    let (name, when) = if let Some((name, nth)) = call.split_once('#') {
        (name, When::Nth(nth.parse().ok().filter(|nth| *nth > 0)?))
    } else {
        let (name, rate) = call.split_once('%')?;
        (name, When::Rate(rate.parse().ok().filter(|rate| (0.0..=1.0).contains(rate))?, Random::new(seed)))
    };
    Some(Rule { target: Target::named(name)?, when, error: cudaError(error.parse().ok()?), sticky })
}
