//! Everything that allocates, side by side: the C calls, this crate, and the peers that are present, in turns within one
//! run, so that what the machine does meanwhile meets all alike.
//!
//! Run by `cargo xtask bench`, which draws the result. Without `--bench` it goes through everything once, to show that
//! it works.

mod calls;
mod cells;
mod crew;
mod machine;
mod own;
mod peers;
mod pinned;
mod raw;
#[path = "../report/results.rs"]
mod results;
mod rounds;
#[path = "../report/statistics.rs"]
mod statistics;
mod subject;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use cuda_mempool::{Device, MemPool};

use crew::Opened;
use results::{Absent, Cell, Outcome, Report};
use rounds::Effort;
use subject::{table, Subject};

#[derive(Parser)]
struct Arguments {
    /// Measure, rather than show that it works.
    #[arg(long)]
    bench: bool,
    /// Where to write the results, as JSON.
    #[arg(long)]
    out: Option<PathBuf>,
    /// A folder with the libraries of peers.
    #[arg(long)]
    peers: Option<PathBuf>,
    /// Only what does not depend on peers: the smaller calls.
    #[arg(long)]
    calls: bool,
    /// After how many seconds to end, with what there is.
    #[arg(long, default_value_t = 220)]
    limit: u64,
}

/// The results so far. The one that ends the program in time reads them from another thread.
type Shared = Arc<Mutex<Report>>;

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Err(why) = Device::new(0) {
        eprintln!("skipped, as there is no device: {why}");
        return Ok(ExitCode::from(u8::from(std::env::var_os("CUDA_MEMPOOL_REQUIRE_DEVICE").is_some())));
    }
    let report = Shared::default();
    lock(&report).machine = machine::describe();
    end_in_time(arguments.limit, arguments.out.clone(), report.clone());

    let effort = if arguments.bench { Effort::FULL } else { Effort::QUICK };
    // Peers allocate from the default pool. It is to keep what it has, as the pools of the others do.
    MemPool::default_for(Device::new(0)?)?.set_release_threshold(u64::MAX)?;
    if arguments.bench {
        machine::wake(Device::new(0)?)?;
    }
    calls::ask_all(effort, |cell| tell(&report, cell))?;
    if !arguments.calls {
        // That it works is shown by less memory too.
        pinned::ask_all(effort, if arguments.bench { 1 } else { 256 }, |cell| tell(&report, cell))?;
        measure_all(arguments.peers.as_deref(), effort, &report);
    }

    let mut report = lock(&report);
    report.complete = true;
    write(&report, arguments.out.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

fn measure_all(peers: Option<&Path>, effort: Effort, report: &Shared) {
    let mut tables = own_tables();
    if let Some(folder) = peers {
        let (found, absent) = peers::load(folder);
        tables.extend(found);
        lock(report).absent.extend(absent);
    }
    let mut subjects = Vec::new();
    for table in tables {
        match Opened::open(table) {
            Ok(subject) => subjects.push(subject),
            Err(what) => lock(report).absent.push(Absent { what, why: "cannot be opened".into() }),
        }
    }
    lock(report).subjects = subjects.iter().map(|subject| (subject.name.clone(), subject.version.clone())).collect();
    cells::ask_all(&subjects, effort, |cell, absent| {
        tell(report, cell);
        lock(report).absent.extend(absent);
    });
}

/// The subjects of this program.
fn own_tables() -> Vec<Subject> {
    let mut tables = vec![table::<raw::RawRust>()];
    #[cfg(raw_c)]
    tables.extend_from_slice(peers::of_c());
    tables.extend_from_slice(own::SUBJECTS);
    tables
}

/// Ends the program when it takes too long, whatever hangs, and keeps what was measured.
fn end_in_time(seconds: u64, out: Option<PathBuf>, report: Shared) {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(seconds));
        eprintln!("the limit of {seconds} s is reached: what follows was not measured");
        if let Err(why) = write(&lock(&report), out.as_deref()) {
            eprintln!("{why:#}");
        }
        // SAFETY: ends the process. Exit hooks could wait for what hangs.
        unsafe { libc::_exit(3) };
    });
}

fn lock(report: &Shared) -> MutexGuard<'_, Report> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(report: &Report, out: Option<&Path>) -> Result<()> {
    let Some(path) = out else { return Ok(()) };
    let json = serde_json::to_string_pretty(report)?;
    std::fs::write(path, json + "\n").with_context(|| path.display().to_string())
}

fn tell(report: &Shared, cell: Cell) {
    print(&cell);
    lock(report).cells.push(cell);
}

fn print(Cell { question, baseline, results }: &Cell) {
    let bytes = question.bytes.map_or_else(String::new, |bytes| format!(", {bytes} bytes"));
    println!("{}, {}{bytes}, threads: {}", question.memory, question.workload, question.threads);
    for Outcome { subject, runs, nanoseconds: time, ratio, .. } in results {
        let ratio = ratio.map_or(1.0, |ratio| ratio.median);
        println!(
            "  {subject:<32} {:>13.1} ns ({:.1} to {:.1}), {:.3} of {baseline}, {runs} runs",
            time.median, time.lower, time.upper, ratio
        );
    }
}
