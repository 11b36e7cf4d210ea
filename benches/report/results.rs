//! What was measured, as the JSON files have it. Shared by the programs that measure, and `cargo xtask bench`, which
//! reads it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Default)]
pub struct Report {
    /// Whether the plan was carried out to its end.
    pub complete: bool,
    pub machine: BTreeMap<String, String>,
    /// What was measured, by name, with its version.
    pub subjects: BTreeMap<String, String>,
    /// What could not be measured, and why.
    pub absent: Vec<Absent>,
    pub cells: Vec<Cell>,
}

#[derive(Serialize, Deserialize)]
pub struct Absent {
    pub what: String,
    pub why: String,
}

/// What is asked: the same of all subjects.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq)]
pub struct Question {
    /// Where the memory is: `device` or `host`; or `calls` and `ipc`, for what is not allocation.
    pub memory: String,
    pub workload: String,
    /// How long a block is, where they are all the same.
    pub bytes: Option<u64>,
    pub threads: usize,
}

/// One question, and the answers.
#[derive(Serialize, Deserialize)]
pub struct Cell {
    pub question: Question,
    /// The subject that the ratios are to.
    pub baseline: String,
    pub results: Vec<Outcome>,
}

#[derive(Serialize, Deserialize)]
pub struct Outcome {
    pub subject: String,
    pub runs: usize,
    /// Of one allocation with its free, as each thread sees it, or of one call.
    pub nanoseconds: Quartiles,
    /// Where each time was measured by itself: what 99 of 100 stay below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// To the baseline in the same round, which is why it is not the ratio of the medians. Absent where there are no
    /// rounds: then it is that to the baseline's median.
    pub ratio: Option<Quartiles>,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
pub struct Quartiles {
    pub lower: f64,
    pub median: f64,
    pub upper: f64,
}
