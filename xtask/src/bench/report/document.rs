//! The results in words: docs/benchmarks.md.

use std::fmt::Write;

use super::figures::{self, Goal};
use super::plot::Plot;
use super::results::{Cell, Outcome, Quartiles, Question, Report};

/// What the crate itself offers, by the beginning of the name.
pub const OWN: &[&str] = &[
    "BlockCache",
    "CudaAsyncMemoryResource",
    "DeviceBuffer",
    "NumaAllocator",
    "MemPool",
    "Device",
    "through the crate",
];

pub fn is_own(subject: &str) -> bool {
    OWN.iter().any(|own| subject.starts_with(own))
}

/// What the plots and tables are of, in their order, with the words for it.
const SECTIONS: &[(&str, &str, &str)] = &[
    ("device", "pairs", "Device memory: allocate and free"),
    ("device", "bursts of 100", "Device memory: a hundred blocks, then all freed"),
    ("device", "random", "Device memory: sizes from 64 B to 16 MiB and lifetimes by chance"),
    ("device", "to another stream", "Device memory: allocated on one stream, freed on another"),
    ("host", "pairs", "Host memory: allocate and free"),
    ("host", "bursts of 100", "Host memory: a hundred blocks, then all freed"),
    ("host", "random", "Host memory: sizes from 64 B to 256 KiB and lifetimes by chance"),
    ("host", "copied to the device", "Copies to the device, by the kind of memory they come from"),
    ("host", "copied from the device", "Copies from the device, by the kind of memory they go to"),
    ("host", "first allocation", "The first allocation of pinned memory"),
    ("host", "ahead of time", "Pinned memory taken from the system ahead of time"),
];

pub fn write(report: &Report, plots: &[Plot]) -> String {
    let mut text = String::from(
        "# Benchmarks\n\n\
         Made by `cargo xtask bench`, which measures on the GPU of its machine, or draws what `bench.sh` of\n\
         `cargo xtask bundle` brought from one (`--from`). Not edited by hand; [benchmarks.json](benchmarks.json) has\n\
         all numbers.\n\n",
    );
    machine(report, &mut text);
    text += "\n## How it is measured\n\n\
         All subjects of a question take turns within one run, in an order that changes from round to round, and the\n\
         device is idle before each turn. A turn is a batch of about 1.5 ms, and before its first one each has run for\n\
         50 ms. A ratio is that of two values of one round; the tables show its median with the quartiles. Times are of\n\
         one allocation with its free, as one thread sees it; several threads begin together, each with a stream of its\n\
         own, and their mean counts. Every pool keeps what it has. Peers in Python ran in a program of their own, right\n\
         after, beside the same C calls. Absolute times move between machines; ratios travel better, and\n\
         still only so far.\n\n\
         cuda-core frees on a thread of its own, whose work is not in its figures.\n";
    goals(report, &mut text);
    for &(memory, workload, title) in SECTIONS {
        let cells: Vec<&Cell> =
            report.cells.iter().filter(|c| c.question.memory == memory && c.question.workload == workload).collect();
        if cells.is_empty() {
            continue;
        }
        let _ = write!(text, "\n## {title}\n");
        for plot in plots.iter().filter(|plot| plot.memory == memory && plot.workload == workload) {
            let _ = write!(text, "\n![{}](benchmarks/{})\n", plot.title, plot.file);
        }
        tables(&cells, &mut text);
    }
    lines("Between two processes", "ipc", report, &mut text);
    lines("Other calls", "calls", report, &mut text);
    absent(report, &mut text);
    text
}

fn machine(report: &Report, text: &mut String) {
    let get = |key: &str| report.machine.get(key).map_or("unknown", String::as_str);
    if get("simulated") == "true" {
        *text += "**On the simulated runtime: this shows the form of the page, and is no result of CUDA.**\n\n";
    }
    let _ = writeln!(
        text,
        "{}, driver {}, CUDA runtime {}; {}, {} cores; {}; {}.",
        get("gpu"),
        get("driver"),
        get("runtime"),
        get("cpu"),
        get("cores"),
        get("system"),
        get("date")
    );
    let versioned = report.subjects.iter().filter(|(name, version)| !version.is_empty() && !is_own(name));
    let versions: Vec<String> = versioned.map(|(name, version)| format!("{name} {version}")).collect();
    let _ = writeln!(text, "Peers: {}.", versions.join(", "));
    if !report.complete {
        *text += "\n**The run was cut short by its limit: some questions are missing.**\n";
    }
}

fn goals(report: &Report, text: &mut String) {
    *text += "\n## Goals\n\n| what | goal | measured | |\n|---|---|---|---|\n";
    for figure in figures::ALL {
        let unit = figure.unit;
        let goal = match figure.goal {
            Goal::AtMost(most) => format!("at most {most} {unit}"),
            Goal::AtLeast(least) => format!("at least {least} {unit}"),
        };
        let (value, word) = match figure.of(report) {
            Some((value, reached)) => {
                (format!("{} {unit}", rounded(value)), if reached { "reached" } else { "**missed**" })
            }
            None => ("-".into(), "not measured"),
        };
        let _ = writeln!(text, "| {} | {goal} | {value} | {word} |", figure.what);
    }
}

/// Over the sizes on one thread, and over the threads at each size that has several.
fn tables(cells: &[&Cell], text: &mut String) {
    let on_one: Vec<&Cell> = cells.iter().copied().filter(|cell| cell.question.threads == 1).collect();
    let mut sizes: Vec<Option<u64>> = on_one.iter().map(|cell| cell.question.bytes).collect();
    sizes.dedup();
    if sizes.len() > 1 || cells.len() == 1 {
        let columns: Vec<(String, &Cell)> =
            on_one.iter().map(|cell| (cell.question.bytes.map_or("mixed".into(), size), *cell)).collect();
        *text += "\nOne thread.\n\n";
        table(&columns, text);
    }
    for bytes in sizes {
        let columns: Vec<(String, &Cell)> = cells
            .iter()
            .filter(|cell| cell.question.bytes == bytes)
            .map(|cell| (threads(cell.question.threads), *cell))
            .collect();
        if columns.len() > 1 {
            let _ = write!(
                text,
                "\n{}\n\n",
                bytes.map_or("Over the threads.".into(), |b| format!("{}, over the threads.", size(b)))
            );
            table(&columns, text);
        }
    }
}

fn table(columns: &[(String, &Cell)], text: &mut String) {
    let heads: Vec<&str> = columns.iter().map(|(head, _)| head.as_str()).collect();
    let _ = writeln!(text, "| | {} |\n|---|{}", heads.join(" | "), "---|".repeat(columns.len()));
    let mut subjects: Vec<&str> = Vec::new();
    for outcome in columns.iter().flat_map(|(_, cell)| &cell.results) {
        if !subjects.contains(&outcome.subject.as_str()) {
            subjects.push(&outcome.subject);
        }
    }
    for subject in subjects {
        let entries: Vec<String> = columns
            .iter()
            .map(|(_, cell)| {
                let outcome = cell.results.iter().find(|outcome| outcome.subject == subject);
                outcome.map_or("-".into(), |outcome| entry(cell, outcome))
            })
            .collect();
        let name = if is_own(subject) { format!("**{subject}**") } else { subject.into() };
        let _ = writeln!(text, "| {name} | {} |", entries.join(" | "));
    }
    let runs = columns.iter().flat_map(|(_, cell)| &cell.results).map(|outcome| outcome.runs);
    let (fewest, most) = (runs.clone().min().unwrap_or(0), runs.max().unwrap_or(0));
    let _ =
        writeln!(text, "\nRuns: {}.", if fewest == most { most.to_string() } else { format!("{fewest} to {most}") });
}

/// The baseline's time, and the others' ratio to it.
fn entry(cell: &Cell, outcome: &Outcome) -> String {
    if outcome.subject == cell.baseline {
        return format!("{} = 1", duration(outcome.nanoseconds.median));
    }
    ratio(outcome)
}

fn ratio(outcome: &Outcome) -> String {
    let Some(Quartiles { lower, median, upper }) = outcome.ratio else { return "-".into() };
    format!("{} ({} to {})", rounded(median), rounded(lower), rounded(upper))
}

/// What is not allocation: one line for each answer.
fn lines(title: &str, memory: &str, report: &Report, text: &mut String) {
    let mut cells = report.cells.iter().filter(|cell| cell.question.memory == memory).peekable();
    if cells.peek().is_none() {
        return;
    }
    let _ = write!(
        text,
        "\n## {title}\n\n| what | how | time | p99 | ratio (quartiles) | runs |\n|---|---|---|---|---|---|\n"
    );
    for cell in cells {
        let Question { workload, bytes, .. } = &cell.question;
        let what = bytes.map_or_else(|| workload.clone(), |bytes| format!("{workload}, {}", size(bytes)));
        for outcome in &cell.results {
            let _ = writeln!(
                text,
                "| {what} | {} | {} | {} | {} | {} |",
                outcome.subject,
                duration(outcome.nanoseconds.median),
                outcome.p99.map_or("-".into(), duration),
                ratio(outcome),
                outcome.runs
            );
        }
    }
}

fn absent(report: &Report, text: &mut String) {
    if report.absent.is_empty() {
        return;
    }
    *text += "\n## Not measured\n\n";
    for absent in &report.absent {
        let _ = writeln!(text, "- {}: {}", absent.what, absent.why);
    }
}

pub fn size(bytes: u64) -> String {
    match bytes {
        0..=1023 => format!("{bytes} B"),
        1024..=1_048_575 => format!("{} KiB", bytes >> 10),
        1_048_576..=1_073_741_823 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

fn threads(count: usize) -> String {
    if count == 1 {
        "1 thread".into()
    } else {
        format!("{count} threads")
    }
}

pub fn duration(nanoseconds: f64) -> String {
    match nanoseconds {
        n if n < 1e3 => format!("{} ns", rounded(n)),
        n if n < 1e6 => format!("{} µs", rounded(n / 1e3)),
        n if n < 1e9 => format!("{} ms", rounded(n / 1e6)),
        n => format!("{} s", rounded(n / 1e9)),
    }
}

/// Three digits that say something.
fn rounded(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
