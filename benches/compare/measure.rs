//! One question put to all subjects, in turns.

use std::time::{Duration, Instant};

use crate::cells::{self, Question, Workload};
use crate::crew::{Batch, Crew, Opened};
use crate::results::{outcomes, Absent, Cell};
use crate::subject::{Step, BURST};

/// How thorough to be.
#[derive(Clone, Copy)]
pub struct Effort {
    /// How often each subject has its turn.
    pub rounds: usize,
    /// How long a turn is to take.
    pub turn: Duration,
    /// After how long a slow subject has no more turns of a question.
    pub patience: Duration,
    /// The steps of a random workload.
    pub steps: usize,
}

impl Effort {
    pub const FULL: Self =
        Self { rounds: 41, turn: Duration::from_micros(1500), patience: Duration::from_millis(400), steps: 256 };
    /// To see that it works.
    pub const QUICK: Self =
        Self { rounds: 2, turn: Duration::from_micros(50), patience: Duration::from_millis(10), steps: 64 };
}

/// Asks, and says of which subjects there is no answer.
pub fn ask(question: &Question, subjects: &[Opened], effort: Effort) -> (Cell, Vec<Absent>) {
    let steps = match question.workload {
        Workload::Random => cells::steps(question.bytes, effort.steps),
        _ => Vec::new(),
    };
    let mut asked: Vec<&Opened> =
        subjects.iter().filter(|s| s.memory == question.memory && s.can(question.workload)).collect();
    // The first of the baselines that is there comes first, and its rounds are never fewer than those of others.
    let place = |subject: &Opened| question.baselines.iter().position(|name| *name == subject.name);
    asked.sort_by_key(|subject| place(subject).unwrap_or(usize::MAX));
    let baseline = asked.first().map_or_else(String::new, |subject| subject.name.clone());

    let values = Crew::with(question.threads, &asked, &steps, |crew| {
        let turns: Vec<Turn> =
            (0..asked.len()).map(|subject| Turn { crew, subject, question, steps: &steps }).collect();
        let counts: Vec<Option<usize>> = turns.iter().map(|turn| turn.calibrate(effort)).collect();
        in_turns(&turns, &counts, effort)
    });

    let mut absent = Vec::new();
    for (subject, values) in asked.iter().zip(&values) {
        if values.is_empty() {
            let Question { workload, bytes, threads, .. } = question;
            let why = format!("failed: {}, {bytes} bytes, {threads} threads", workload.name());
            absent.push(Absent { what: subject.name.clone(), why });
        }
    }
    let measured = asked.iter().map(|subject| subject.name.clone()).zip(values).collect();
    let cell = Cell {
        memory: question.memory.to_owned(),
        workload: question.workload.name().to_owned(),
        bytes: (question.workload != Workload::Random).then_some(question.bytes as u64),
        threads: question.threads,
        unit: "ns",
        baseline,
        results: outcomes(measured),
    };
    (cell, absent)
}

/// The rounds. Who goes first changes, so that no subject always follows the same other.
fn in_turns(turns: &[Turn<'_>], counts: &[Option<usize>], effort: Effort) -> Vec<Vec<f64>> {
    let mut values = vec![Vec::new(); turns.len()];
    let mut spent = vec![Duration::ZERO; turns.len()];
    for round in 0..effort.rounds {
        for place in 0..turns.len() {
            let subject = (place + round) % turns.len();
            let Some(count) = counts[subject] else { continue };
            // A subject that misses a round misses all that follow: values are compared by their round.
            if spent[subject] > effort.patience || values[subject].len() < round {
                continue;
            }
            let begun = Instant::now();
            values[subject].extend(turns[subject].take(count));
            spent[subject] += begun.elapsed();
        }
    }
    values
}

/// A subject with its question.
struct Turn<'a> {
    crew: &'a Crew<'a>,
    subject: usize,
    question: &'a Question,
    steps: &'a [Step],
}

impl Turn<'_> {
    /// How many times make a turn of the wanted length. `None` when the subject fails.
    fn calibrate(&self, effort: Effort) -> Option<usize> {
        let mut count = 1;
        loop {
            let took = self.run(count)?;
            if took >= effort.turn {
                return Some(count);
            }
            // At most tenfold: a first run is slow.
            let factor = effort.turn.as_secs_f64() / took.as_secs_f64().max(1e-9);
            count = (count as f64 * factor.clamp(1.2, 10.0)).ceil() as usize;
        }
    }

    /// Nanoseconds of an allocation with its free, as each thread sees it.
    fn take(&self, count: usize) -> Option<f64> {
        let each = match self.question.workload {
            Workload::Pairs | Workload::Handovers => count,
            Workload::Bursts => count * BURST,
            Workload::Random => count * self.steps.len() / 2,
        };
        Some(self.run(count)?.as_nanos() as f64 / each as f64)
    }

    fn run(&self, count: usize) -> Option<Duration> {
        let Question { workload, bytes, .. } = *self.question;
        self.crew.run(self.subject, Batch { workload, bytes, count })
    }
}
