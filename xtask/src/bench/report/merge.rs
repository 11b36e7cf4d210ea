//! The results of several programs as one.

use anyhow::{Context, Result};

use super::results::{Cell, Quartiles, Report};

const CALLS: &str = "calls";

/// One report of all. The largest one gives the machine; the others were run right after it there.
pub fn merge(mut reports: Vec<Report>) -> Result<Report> {
    reports.sort_by_key(|report| std::cmp::Reverse(report.cells.len()));
    let mut reports = reports.into_iter();
    let mut whole = reports.next().context("no results")?;
    tell_link_kinds_apart(&mut whole);
    for mut report in reports {
        tell_link_kinds_apart(&mut report);
        whole.complete &= report.complete;
        whole.absent.append(&mut report.absent);
        whole.subjects.append(&mut report.subjects);
        report.cells.into_iter().for_each(|cell| add(&mut whole.cells, cell));
    }
    whole.cells.iter_mut().for_each(fill_ratios);
    Ok(whole)
}

/// Where there were no rounds, the ratios are to the baseline's median.
fn fill_ratios(cell: &mut Cell) {
    let Some(base) = cell.results.iter().find(|outcome| outcome.subject == cell.baseline) else { return };
    let base = base.nanoseconds.median;
    for outcome in cell.results.iter_mut().filter(|outcome| outcome.ratio.is_none()) {
        let Quartiles { lower, median, upper } = outcome.nanoseconds;
        outcome.ratio = Some(Quartiles { lower: lower / base, median: median / base, upper: upper / base });
    }
}

/// The smaller calls are asked about in every link kind.
fn tell_link_kinds_apart(report: &mut Report) {
    let Some(link) = report.machine.get("link") else { return };
    for cell in report.cells.iter_mut().filter(|cell| cell.question.memory == CALLS) {
        cell.question.workload += &format!(" ({link})");
    }
}

/// To the answers of the same question, if there are any. Each ratio is to the baseline of its own program.
fn add(cells: &mut Vec<Cell>, cell: Cell) {
    let Some(known) = cells.iter_mut().find(|known| known.question == cell.question) else { return cells.push(cell) };
    let subjects = |cell: &Cell| cell.results.iter().map(|outcome| outcome.subject.clone()).collect::<Vec<_>>();
    if subjects(known) == subjects(&cell) {
        // The same program once more: what it says last counts.
        *known = cell;
        return;
    }
    for outcome in cell.results.into_iter().filter(|outcome| outcome.subject != cell.baseline) {
        known.results.retain(|before| before.subject != outcome.subject);
        known.results.push(outcome);
    }
}
