//! From a few results by hand to the page and its pictures.

use std::fs;

use super::document::{duration, size, write};
use super::figures::{self, Figure};
use super::merge::merge;
use super::results::{Absent, Cell, Outcome, Quartiles, Question, Report};
use super::statistics::{quantile, quartiles};
use super::{plot, read};

const KIB: u64 = 1 << 10;

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-9
}

fn question(memory: &str, workload: &str, bytes: Option<u64>, threads: usize) -> Question {
    Question { memory: memory.into(), workload: workload.into(), bytes, threads }
}

/// Its time in nanoseconds, and its ratio to the baseline.
fn outcome(subject: &str, time: f64, ratio: Option<f64>) -> Outcome {
    let around = |median| Quartiles { lower: 0.9 * median, median, upper: 1.1 * median };
    Outcome { subject: subject.into(), runs: 41, nanoseconds: around(time), p99: None, ratio: ratio.map(around) }
}

/// Subjects with their times, of which the first is the baseline.
fn cell(question: Question, results: &[(&str, f64)]) -> Cell {
    let (baseline, base) = results[0];
    let results = results.iter().map(|&(subject, time)| outcome(subject, time, Some(time / base))).collect();
    Cell { question, baseline: baseline.into(), results }
}

fn pairs(bytes: u64, threads: usize, results: &[(&str, f64)]) -> Cell {
    cell(question("device", "pairs", Some(bytes), threads), results)
}

fn report(cells: Vec<Cell>) -> Report {
    Report { complete: true, cells, ..Report::default() }
}

fn linked(link: &str, cells: Vec<Cell>) -> Report {
    Report { machine: [("link".into(), link.into())].into(), ..report(cells) }
}

/// The lines of a text that contain this.
fn lines<'a>(text: &'a str, what: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.contains(what)).collect()
}

#[test]
fn quartiles_lie_between_the_values() {
    let of = |values: &[f64]| {
        let Quartiles { lower, median, upper } = quartiles(values.to_vec());
        [lower, median, upper]
    };
    assert_eq!(of(&[7.0]), [7.0; 3]);
    assert_eq!(of(&[4.0, 1.0, 3.0, 2.0, 5.0]), [2.0, 3.0, 4.0]);
    assert_eq!(of(&[1.0, 2.0]), [1.25, 1.5, 1.75]);
    assert_eq!(quantile(&[0.0, 10.0, 20.0], 0.99), 19.8);
}

#[test]
fn reports_stand_one_after_the_other() {
    let reports = [report(vec![pairs(512, 1, &[("raw C", 1.0)])]), report(Vec::new()), report(Vec::new())];
    let pretty = |report| serde_json::to_string_pretty(report).unwrap();
    let text =
        format!("{}\n{}{}\n", pretty(&reports[0]), pretty(&reports[1]), serde_json::to_string(&reports[2]).unwrap());
    let back = read(&text).unwrap();
    assert_eq!(back.iter().map(|report| report.cells.len()).collect::<Vec<_>>(), [1, 0, 0]);
    assert_eq!(back[0].cells[0].results[0].subject, "raw C");
    assert!(read(&text[..text.len() - 3]).is_err(), "what was cut off is no result");
    assert!(read("").unwrap().is_empty());
}

#[test]
fn several_programs_make_one_report() {
    let mine = pairs(512, 1, &[("raw C", 100.0), ("DeviceBuffer", 105.0)]);
    let python = pairs(512, 1, &[("raw C", 200.0), ("torch.empty", 700.0)]);
    let mut cut_short = report(vec![python]);
    cut_short.complete = false;
    cut_short.absent.push(Absent { what: "CuPy".into(), why: "not there".into() });
    let whole = merge(vec![cut_short, report(vec![mine, pairs(4 * KIB, 1, &[("raw C", 100.0)])])]).unwrap();
    assert!(!whole.complete);
    assert_eq!((whole.cells.len(), whole.absent.len()), (2, 1));
    let together = &whole.cells[0].results;
    assert_eq!(
        together.iter().map(|o| o.subject.as_str()).collect::<Vec<_>>(),
        ["raw C", "DeviceBuffer", "torch.empty"]
    );
    assert!(close(together[0].nanoseconds.median, 100.0), "the larger program has the baseline");
    assert!(close(together[2].ratio.unwrap().median, 3.5), "a ratio is to its own program's baseline");
    assert!(merge(Vec::new()).is_err());
}

#[test]
fn a_program_that_ran_again_is_believed() {
    let run = |time| report(vec![pairs(512, 1, &[("raw C", 100.0 * time), ("DeviceBuffer", 110.0 * time)])]);
    let python = report(vec![pairs(512, 1, &[("raw C", 9.0), ("torch.empty", 90.0)])]);
    let whole = merge(vec![run(9.0), run(1.0), python]).unwrap();
    let times: Vec<_> = whole.cells[0].results.iter().map(|outcome| outcome.nanoseconds.median).collect();
    assert!(close(times[0], 100.0) && close(times[1], 110.0) && close(times[2], 90.0), "{times:?}");
}

#[test]
fn link_kinds_are_told_apart_where_calls_are_concerned() {
    let cells = || vec![cell(question("calls", "read", None, 1), &[("raw", 10.0), ("Device", 11.0)])];
    let mut larger = cells();
    larger.push(pairs(512, 1, &[("raw C", 1.0)]));
    let whole = merge(vec![linked("dlopen", cells()), linked("dylib", larger), linked("static", cells())]).unwrap();
    let asked: Vec<_> = whole.cells.iter().map(|cell| cell.question.workload.as_str()).collect();
    assert_eq!(asked, ["read (dylib)", "pairs", "read (dlopen)", "read (static)"]);
}

#[test]
fn without_rounds_the_ratio_is_to_the_median() {
    let results = vec![outcome("plain copies", 50.0, None), outcome("session", 150.0, None)];
    let cell = Cell { question: question("ipc", "ring of two", None, 1), baseline: "plain copies".into(), results };
    let whole = merge(vec![report(vec![cell])]).unwrap();
    let ratio = whole.cells[0].results[1].ratio.unwrap();
    assert!(close(ratio.lower, 2.7) && close(ratio.median, 3.0) && close(ratio.upper, 3.3), "{}", ratio.median);
}

fn figure(what: &str) -> &'static Figure {
    figures::ALL.iter().find(|figure| figure.what.starts_with(what)).unwrap()
}

#[test]
fn goals_are_reached_missed_or_not_measured() {
    let at_most = figure("`DeviceBuffer` alloc and drop");
    let at_least = figure("… on 16 threads, faster than raw C");
    for (time, reached) in [(100.0, true), (105.0, true), (105.1, false)] {
        let of = at_most.of(&report(vec![pairs(64 * KIB, 1, &[("raw C", 100.0), ("DeviceBuffer", time)])]));
        let (value, answer) = of.unwrap();
        assert!(close(value, time / 100.0) && answer == reached, "{value}: {answer}");
    }
    for (time, reached) in [(100.0, true), (101.0, false)] {
        let of = at_least.of(&report(vec![pairs(64 * KIB, 16, &[("raw C", 20_000.0), ("BlockCache", time)])]));
        assert_eq!(of.unwrap().1, reached);
    }
    assert!(figures::ALL.iter().all(|figure| figure.of(&report(Vec::new())).is_none()));
    let other_size = report(vec![pairs(512, 1, &[("raw C", 100.0), ("DeviceBuffer", 1.0)])]);
    assert!(at_most.of(&other_size).is_none());
}

/// Not all: a question may be newer than the last run on a GPU, and peers may have been missing there.
#[test]
fn the_kept_results_answer_most_goals() {
    let kept = read(include_str!("../../../../docs/benchmarks.json")).unwrap().remove(0);
    let open = figures::ALL.iter().filter(|figure| figure.of(&kept).is_none());
    let open: Vec<_> = open.map(|figure| figure.what).collect();
    assert!(4 * open.len() < figures::ALL.len(), "{open:#?}");
}

#[test]
fn the_page_has_goals_and_tables() {
    let mut some = report(vec![
        pairs(512, 1, &[("raw C", 640.0), ("DeviceBuffer", 656.0), ("RMM pool", 6400.0)]),
        pairs(64 * KIB, 1, &[("raw C", 1000.0), ("DeviceBuffer", 1200.0)]),
        pairs(64 * KIB, 4, &[("raw C", 2e6), ("DeviceBuffer", 2.2e6)]),
        cell(question("calls", "read a device's attribute (dylib)", None, 1), &[("raw", 40.0), ("Device", 42.0)]),
    ]);
    some.cells[0].results[2].runs = 7;
    some.machine = [("gpu", "a GPU"), ("driver", "580")].map(|(key, value)| (key.into(), value.into())).into();
    some.subjects =
        [("RMM pool", "26"), ("DeviceBuffer", "0.1")].map(|(name, version)| (name.into(), version.into())).into();
    let page = write(&some, &[]);

    assert_eq!(lines(&page, "a GPU, driver 580").len(), 1);
    assert_eq!(lines(&page, "Peers: "), ["Peers: RMM pool 26."], "ours is no peer");
    let goal = |what: &str| lines(&page, what)[0].rsplit('|').nth(1).unwrap().trim().to_owned();
    assert_eq!(goal("| `DeviceBuffer` alloc"), "**missed**");
    assert_eq!(goal("| typed read of a device's attribute"), "reached");
    assert_eq!(goal("| `set_stream`"), "not measured");

    assert_eq!(
        lines(&page, "## Device memory"),
        ["## Device memory: allocate and free"],
        "what was not asked is no table"
    );
    assert_eq!(lines(&page, "| | 512 B | 64 KiB |").len(), 1);
    assert_eq!(lines(&page, "| | 1 thread | 4 threads |").len(), 1);
    assert!(page.contains("| raw C | 640 ns = 1 | 1.00 µs = 1 |"), "{page}");
    assert!(page.contains("| **DeviceBuffer** | 1.02 (0.92 to 1.13) | 1.20 (1.08 to 1.32) |"), "{page}");
    assert!(page.contains("| RMM pool | 10.0 (9.00 to 11.0) | - |"), "{page}");
    assert_eq!(lines(&page, "Runs: "), ["Runs: 7 to 41.", "Runs: 41."]);
    assert_eq!(lines(&page, "| read a device's attribute (dylib) | Device | 42.0 ns | - | 1.05").len(), 1);
    assert!(!page.contains("cut short") && !page.contains("simulated runtime:") && !page.contains("Not measured"));
}

#[test]
fn the_page_says_what_is_wrong_with_it() {
    let mut some = report(Vec::new());
    some.complete = false;
    some.machine.insert("simulated".into(), "true".into());
    some.absent.push(Absent { what: "CuPy".into(), why: "no module".into() });
    let page = write(&some, &[]);
    assert!(page.contains("cut short") && page.contains("On the simulated runtime"));
    assert_eq!(lines(&page, "- CuPy: no module").len(), 1);
}

#[test]
fn numbers_are_short() {
    assert_eq!([512, 4 * KIB, 8 << 20, 4 << 30].map(size), ["512 B", "4 KiB", "8 MiB", "4 GiB"]);
    let times = [0.0612, 0.5, 12.34, 999.0, 1e3, 2.5e6, 1.64e9].map(duration);
    assert_eq!(times, ["0.0612 ns", "0.50 ns", "12.3 ns", "999 ns", "1.00 µs", "2.50 ms", "1.64 s"]);
}

#[test]
fn pictures_have_a_point_for_each_answer_and_a_name_for_each_line() {
    let folder = std::env::temp_dir().join(format!("xtask-plots-{}", std::process::id()));
    let sizes = [512, 4 * KIB, 64 * KIB];
    let over_sizes =
        sizes.map(|bytes| pairs(bytes, 1, &[("raw C", 600.0), ("DeviceBuffer", 630.0), ("a peer", 900.0)]));
    let mut some = report(over_sizes.into());
    some.cells[2].results.pop();
    // Two are too few for a picture over the threads.
    some.cells.push(pairs(64 * KIB, 2, &[("raw C", 4000.0)]));

    let plots = plot::draw(&some, &folder).unwrap();
    let files: Vec<_> = plots.iter().map(|plot| plot.file.as_str()).collect();
    assert_eq!(files, ["device-pairs-size.svg"]);
    let svg = fs::read_to_string(folder.join(files[0])).unwrap();
    fs::remove_dir_all(&folder).unwrap();

    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert_eq!(svg.matches("<circle").count(), 8);
    for text in ["raw C", "DeviceBuffer", "a peer", "64 KiB", &plots[0].title] {
        assert!(svg.lines().any(|line| line.trim() == text), "{text} is written nowhere");
    }
    let page = write(&some, &plots);
    assert_eq!(lines(&page, "](benchmarks/device-pairs-size.svg)").len(), 1);
}
