//! What is asked for on the command line.

use std::time::Duration;

pub const HELP: &str = "\
Shows what this machine has for CUDA memory pools.

Usage: mempool-info [--json | --watch [SECONDS]] [--frames N] [--load]

  --json             the same as JSON
  --watch [SECONDS]  bars, drawn anew every so many seconds (1)
  --frames N         with --watch: stop after so many
  --load             with --watch: allocate and free meanwhile, so that the pools of this process have something to show
  --help             this text";

#[derive(Debug, PartialEq)]
pub enum Action {
    Help,
    Table,
    Json,
    Watch(Watch),
}

#[derive(Debug, PartialEq)]
pub struct Watch {
    pub every: Duration,
    /// For ever, if there is no number.
    pub frames: Option<u64>,
    pub load: bool,
}

impl Action {
    pub fn from(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut arguments = arguments.into_iter().peekable();
        let (mut json, mut every, mut frames, mut load) = (false, None, None, false);
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--help" | "-h" => return Ok(Self::Help),
                "--json" => json = true,
                "--load" => load = true,
                "--watch" => {
                    let seconds = arguments.next_if(|next| !next.starts_with("--"));
                    every = Some(seconds.map_or(Ok(Duration::from_secs(1)), |seconds| duration(&seconds))?);
                }
                "--frames" => {
                    let number = arguments.next().unwrap_or_default();
                    frames = Some(number.parse().map_err(|_| format!("--frames wants a number, not `{number}`"))?);
                }
                _ => return Err(format!("unknown argument `{argument}`")),
            }
        }
        match (json, every) {
            (true, Some(_)) => Err("--json and --watch do not go together".into()),
            (false, Some(every)) => Ok(Self::Watch(Watch { every, frames, load })),
            _ if load || frames.is_some() => Err("--load and --frames go with --watch".into()),
            (true, None) => Ok(Self::Json),
            (false, None) => Ok(Self::Table),
        }
    }
}

fn duration(seconds: &str) -> Result<Duration, String> {
    let number = seconds.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    number.ok_or_else(|| format!("--watch wants a number of seconds, not `{seconds}`"))
}
