//! What was measured, as it is written to the JSON file.

use std::collections::BTreeMap;

use serde::Serialize;

#[derive(Serialize, Default)]
pub struct Report {
    /// Whether the plan was carried out to its end.
    pub complete: bool,
    pub machine: BTreeMap<&'static str, String>,
    /// What was measured, by name, with its version.
    pub subjects: BTreeMap<String, String>,
    /// What could not be measured, and why.
    pub absent: Vec<Absent>,
    pub cells: Vec<Cell>,
}

#[derive(Serialize)]
pub struct Absent {
    pub what: String,
    pub why: String,
}

/// One question, and the answers of all subjects.
#[derive(Serialize)]
pub struct Cell {
    /// Where the memory is, or `calls` for what is not about memory.
    pub memory: String,
    pub workload: String,
    /// How long a block is, where they are all the same.
    pub bytes: Option<u64>,
    pub threads: usize,
    pub unit: &'static str,
    /// The subject that the ratios are to.
    pub baseline: String,
    pub results: Vec<Outcome>,
}

#[derive(Serialize)]
pub struct Outcome {
    pub subject: String,
    pub runs: usize,
    pub value: Quartiles,
    /// Of what was measured in the same round, which is why it is not the ratio of the medians.
    pub ratio: Quartiles,
}

#[derive(Serialize, Clone, Copy)]
pub struct Quartiles {
    pub lower: f64,
    pub median: f64,
    pub upper: f64,
}

impl Quartiles {
    /// Of at least one value.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = share * (values.len() - 1) as f64;
            let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Self { lower: at(0.25), median: at(0.5), upper: at(0.75) }
    }
}

/// Outcomes of rounds in which each subject was measured once, or not any more. The first is the baseline.
pub fn outcomes(measured: Vec<(String, Vec<f64>)>) -> Vec<Outcome> {
    let Some((_, baseline)) = measured.first().cloned() else { return Vec::new() };
    let compared = measured.into_iter().filter(|(_, values)| !values.is_empty() && !baseline.is_empty());
    compared
        .map(|(subject, values)| Outcome {
            subject,
            runs: values.len(),
            ratio: Quartiles::of(values.iter().zip(&baseline).map(|(value, base)| value / base).collect()),
            value: Quartiles::of(values),
        })
        .collect()
}
