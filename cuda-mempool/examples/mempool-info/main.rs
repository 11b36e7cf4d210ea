//! Shows what a machine has for memory pools: devices and what they support, pools and how full they are, and which
//! CUDA runtime and driver answer. Attach its output to a bug report.
//!
//! ```text
//! cargo run --example mempool-info
//! cargo run --example mempool-info -- --json
//! cargo run --example mempool-info -- --watch --load
//! ```

mod arguments;
mod json;
mod report;
mod table;
#[cfg(test)]
mod tests;
mod watch;

use std::io::{self, Write};
use std::process::ExitCode;

use arguments::{Action, HELP};
use report::Report;

fn main() -> ExitCode {
    let action = match Action::from(std::env::args().skip(1)) {
        Ok(action) => action,
        Err(why) => {
            eprintln!("{why}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match run(&action, &mut io::stdout().lock()) {
        // Whoever reads has enough, as `head` does.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Does what is asked for. That there is no GPU is a finding, not a failure.
fn run(action: &Action, out: &mut impl Write) -> io::Result<()> {
    match action {
        Action::Help => writeln!(out, "{HELP}"),
        Action::Table => write!(out, "{}", table::text(&Report::new())),
        Action::Json => writeln!(out, "{:#}", json::value(&Report::new())),
        Action::Watch(watch) => watch::run(watch, out),
    }
}
