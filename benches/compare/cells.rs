//! What is asked of every subject.

use crate::subject::{Step, SLOTS};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// Allocate and free, again and again.
    Pairs,
    /// A hundred blocks, then all of them freed.
    Bursts,
    /// Sizes and lifetimes by chance, the same for every subject.
    Random,
    /// Allocated on one stream, freed on another.
    Handovers,
}

impl Workload {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pairs => "pairs",
            Self::Bursts => "bursts of 100",
            Self::Random => "random sizes and lifetimes",
            Self::Handovers => "handed to another stream",
        }
    }
}

/// One question.
pub struct Question {
    pub memory: &'static str,
    /// The subject that the others are compared with.
    pub baselines: &'static [&'static str],
    pub workload: Workload,
    pub bytes: usize,
    pub threads: usize,
}

/// The C calls, or where there is no compiler or toolkit the same from Rust.
const RAW: &[&str] = &["raw C", "raw calls from Rust"];
const MALLOC: &[&str] = &["malloc"];

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The whole plan.
pub fn all() -> Vec<Question> {
    let mut questions = Vec::new();
    let mut ask = |memory, workload, bytes: &[usize], threads: &[usize]| {
        let baselines = if memory == "device" { RAW } else { MALLOC };
        for &bytes in bytes {
            questions.extend(threads.iter().map(|&threads| Question { memory, baselines, workload, bytes, threads }));
        }
    };
    ask("device", Workload::Pairs, &[512, 4 * KIB, 64 * KIB, MIB, 8 * MIB, 64 * MIB], &[1]);
    ask("device", Workload::Pairs, &[64 * KIB], &[2, 4, 8, 16]);
    ask("device", Workload::Bursts, &[64 * KIB], &[1, 4, 16]);
    ask("device", Workload::Bursts, &[MIB], &[1]);
    ask("device", Workload::Random, &[LARGEST_DEVICE], &[1, 4, 16]);
    ask("device", Workload::Handovers, &[64 * KIB], &[1, 4]);
    ask("host", Workload::Pairs, &[64, 512, 4 * KIB, 64 * KIB, MIB, 8 * MIB, 64 * MIB], &[1]);
    ask("host", Workload::Pairs, &[64, 4 * KIB, 64 * KIB], &[2, 4, 8, 16]);
    ask("host", Workload::Bursts, &[4 * KIB], &[1, 16]);
    ask("host", Workload::Random, &[LARGEST_HOST], &[1, 4, 16]);
    questions
}

const LARGEST_DEVICE: usize = 16 * MIB;
const LARGEST_HOST: usize = 256 * KIB;
/// Where the sizes of a random workload begin.
const SMALLEST: usize = 64;

/// Steps by chance, with sizes spread evenly over the magnitudes up to `largest`. Frees all in the end.
pub fn steps(largest: usize, length: usize) -> Vec<Step> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut live = [false; SLOTS];
    let mut steps: Vec<Step> = (0..length)
        .map(|_| {
            let slot = random.next() as usize % SLOTS;
            live[slot] = !live[slot];
            let magnitude = (random.next() as f64 / u64::MAX as f64) * (largest as f64 / SMALLEST as f64).ln();
            Step { slot: slot as u32, bytes: (SMALLEST as f64 * magnitude.exp()) as u32 }
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
