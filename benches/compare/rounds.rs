//! Turns: every contestant once a round, and what comes of many rounds.

use std::time::{Duration, Instant};

use cuda_mempool_sys::cudaDeviceSynchronize;

use crate::results::Outcome;
use crate::statistics::quartiles;

/// How thorough to be.
#[derive(Clone, Copy)]
pub struct Effort {
    /// How often each contestant has its turn.
    pub rounds: usize,
    /// How long a turn is to take, at least.
    pub turn: Duration,
    /// How long each contestant runs before its first turn, at least.
    pub warm_up: Duration,
    /// After how long a slow contestant has no more turns.
    pub patience: Duration,
}

impl Effort {
    pub const FULL: Self = Self {
        rounds: 41,
        turn: Duration::from_micros(1500),
        warm_up: Duration::from_millis(50),
        patience: Duration::from_millis(300),
    };
    /// To see that it works.
    pub const QUICK: Self = Self {
        rounds: 2,
        turn: Duration::from_micros(50),
        warm_up: Duration::ZERO,
        patience: Duration::from_millis(10),
    };

    /// For what takes long by itself: a few turns of one time each, of which none is to find anything warm.
    pub fn of_slow(self) -> Self {
        Self { rounds: self.rounds.min(3), turn: Duration::ZERO, warm_up: Duration::ZERO, patience: Duration::MAX }
    }
}

pub struct Contestant<'a> {
    pub name: String,
    /// Does it so many times and says how long that took. `None` when it failed.
    pub run: Box<dyn Fn(usize) -> Option<Duration> + 'a>,
    /// How much is done each time.
    pub per_time: usize,
}

/// What came of it, in the order of the contestants, of which the first is the baseline. Those that fail are missing.
pub fn compete(contestants: &[Contestant<'_>], effort: Effort) -> Vec<Outcome> {
    let counts: Vec<Option<usize>> = contestants.iter().map(|contestant| contestant.calibrate(effort)).collect();
    let mut values = vec![Vec::new(); contestants.len()];
    let mut spent = vec![Duration::ZERO; contestants.len()];
    for round in 0..effort.rounds {
        for place in 0..contestants.len() {
            // Who goes first changes, so that none always follows the same other.
            let index = (place + round) % contestants.len();
            let Some(count) = counts[index] else { continue };
            // One that misses a round misses all that follow: values are compared by their round.
            if spent[index] > effort.patience || values[index].len() < round {
                continue;
            }
            let begun = Instant::now();
            values[index].extend(contestants[index].nanoseconds(count));
            spent[index] += begun.elapsed();
            // What one has enqueued is not to slow the next one down.
            // SAFETY: the function has no requirement. What fails here fails in the next turn too.
            unsafe { cudaDeviceSynchronize() };
        }
    }
    outcomes(contestants, values)
}

impl Contestant<'_> {
    /// Warms it up, and says how many times make a turn. `None` when it fails.
    ///
    /// The first time gets memory from the system and has everything loaded and resolved that is not yet, so it can take
    /// longer than a whole turn. It counts for nothing, and neither does what disturbs one run of two.
    fn calibrate(&self, Effort { turn, warm_up, .. }: Effort) -> Option<usize> {
        let begun = Instant::now();
        (self.run)(1)?;
        if turn.is_zero() {
            return Some(1);
        }
        let mut count = 1;
        loop {
            let took = (self.run)(count)?.min((self.run)(count)?);
            if took >= turn && begun.elapsed() >= warm_up {
                return Some(count);
            }
            // A little more than a turn, so that the next run is none too short.
            let factor = 1.1 * turn.as_secs_f64() / took.as_secs_f64().max(1e-9);
            count = (count as f64 * factor.clamp(0.1, 10.0)).ceil() as usize;
        }
    }

    fn nanoseconds(&self, count: usize) -> Option<f64> {
        Some((self.run)(count)?.as_nanos() as f64 / (count * self.per_time) as f64)
    }
}

fn outcomes(contestants: &[Contestant<'_>], values: Vec<Vec<f64>>) -> Vec<Outcome> {
    let baseline = values.first().cloned().unwrap_or_default();
    let compared = contestants.iter().zip(values).filter(|(_, values)| !values.is_empty() && !baseline.is_empty());
    compared
        .map(|(contestant, values)| Outcome {
            subject: contestant.name.clone(),
            runs: values.len(),
            ratio: Some(quartiles(values.iter().zip(&baseline).map(|(value, base)| value / base).collect())),
            nanoseconds: quartiles(values),
            p99: None,
        })
        .collect()
}
