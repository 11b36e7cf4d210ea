//! The questions about allocation, put to every subject.

use crate::crew::{Batch, Crew, Opened};
use crate::results::{Absent, Cell, Question};
use crate::rounds::{compete, Contestant, Effort};
use crate::subject::{Step, BURST, SLOTS};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Allocate and free, again and again.
    Pairs,
    /// A hundred blocks, then all of them freed.
    Bursts,
    /// Sizes up to the given one, and lifetimes, by chance; the same for every subject.
    Random,
    /// Allocated on one stream, freed on another.
    Handovers,
}

impl Workload {
    fn name(self) -> &'static str {
        match self {
            Self::Pairs => "pairs",
            Self::Bursts => "bursts of 100",
            Self::Random => "random",
            Self::Handovers => "to another stream",
        }
    }
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Every combination of the sizes and the numbers of threads is a question.
const PLAN: &[(&str, Workload, &[usize], &[usize])] = &[
    ("device", Workload::Pairs, &[512, 4 * KIB, 64 * KIB, MIB, 8 * MIB, 64 * MIB], &[1]),
    ("device", Workload::Pairs, &[4 * KIB, 64 * KIB, MIB], &[2, 4, 8, 16]),
    ("device", Workload::Bursts, &[4 * KIB, 64 * KIB, MIB], &[1, 4, 16]),
    ("device", Workload::Random, &[16 * MIB], &[1, 4, 16]),
    ("device", Workload::Handovers, &[64 * KIB], &[1, 4]),
    ("host", Workload::Pairs, &[64, 512, 4 * KIB, 64 * KIB, MIB, 8 * MIB, 64 * MIB], &[1]),
    ("host", Workload::Pairs, &[64, 64 * KIB], &[2, 4, 8, 16]),
    ("host", Workload::Bursts, &[64, 4 * KIB, 64 * KIB], &[1]),
    ("host", Workload::Random, &[256 * KIB], &[1, 16]),
];

/// What the others are compared with: the first that is there. Without a C compiler or a toolkit the raw calls are
/// made from Rust.
fn baselines(memory: &str) -> &'static [&'static str] {
    match memory {
        "device" => &["raw C", "raw calls from Rust"],
        _ => &["malloc"],
    }
}

/// Asks everything; `tell` gets each answer as it comes, with the subjects that failed.
pub fn ask_all(subjects: &[Opened], effort: Effort, mut tell: impl FnMut(Cell, Vec<Absent>)) {
    for &(memory, workload, sizes, crews) in PLAN {
        for &bytes in sizes {
            for &threads in crews {
                let (cell, absent) = ask(memory, workload, bytes, threads, subjects, effort);
                tell(cell, absent);
            }
        }
    }
}

fn ask(
    memory: &str,
    workload: Workload,
    bytes: usize,
    threads: usize,
    subjects: &[Opened],
    effort: Effort,
) -> (Cell, Vec<Absent>) {
    let question = Question {
        memory: memory.to_owned(),
        workload: workload.name().to_owned(),
        bytes: (workload != Workload::Random).then_some(bytes as u64),
        threads,
    };
    let mut asked: Vec<&Opened> = subjects.iter().filter(|s| s.memory == memory && s.can(workload)).collect();
    let place = |subject: &Opened| baselines(memory).iter().position(|name| *name == subject.name);
    asked.sort_by_key(|subject| place(subject).unwrap_or(usize::MAX));

    let steps = if workload == Workload::Random { steps(bytes) } else { Vec::new() };
    let per_time = match workload {
        Workload::Pairs | Workload::Handovers => 1,
        Workload::Bursts => BURST,
        Workload::Random => steps.len() / 2,
    };
    let results = Crew::with(threads, &asked, &steps, |crew| {
        let contestants: Vec<Contestant<'_>> = asked
            .iter()
            .enumerate()
            .map(|(index, subject)| Contestant {
                name: subject.name.clone(),
                run: Box::new(move |count| crew.run(index, Batch { workload, bytes, count })),
                per_time,
            })
            .collect();
        compete(&contestants, effort)
    });

    let failed = asked.iter().filter(|subject| results.iter().all(|outcome| outcome.subject != subject.name));
    let why = format!("failed: {memory}, {}, {bytes} bytes, {threads} threads", workload.name());
    let absent = failed.map(|subject| Absent { what: subject.name.clone(), why: why.clone() }).collect();
    let baseline = asked.first().map_or_else(String::new, |subject| subject.name.clone());
    (Cell { question, baseline, results }, absent)
}

/// How many steps a random workload has, before it frees what is left.
const STEPS: usize = 128;
/// Where its sizes begin.
const SMALLEST: f64 = 64.0;

/// Steps by chance, with sizes spread evenly over the magnitudes. Frees all in the end.
fn steps(largest: usize) -> Vec<Step> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut live = [false; SLOTS];
    let mut steps: Vec<Step> = (0..STEPS)
        .map(|_| {
            let slot = random.next() as usize % SLOTS;
            live[slot] = !live[slot];
            let magnitude = random.next() as f64 / u64::MAX as f64 * (largest as f64 / SMALLEST).ln();
            Step { slot: slot as u32, bytes: (SMALLEST * magnitude.exp()) as u32 }
        })
        .collect();
    let left = (0..SLOTS).filter(|&slot| live[slot]);
    steps.extend(left.map(|slot| Step { slot: slot as u32, bytes: 0 }));
    steps
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
