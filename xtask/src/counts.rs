//! The instructions of the hot paths, counted on the simulated runtime: what guards their speed where no GPU is.
//!
//! Counted is what the program itself runs, by valgrind's callgrind: not the simulated runtime, nor the C library. The
//! difference of two numbers of times leaves out what is done once. So the counts do not depend on the machine or its
//! load, but on the compiler, its target and the versions of the dependencies.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, ensure, Context, Result};

use crate::cargo::{self, Link};
use crate::sim;

/// By how much a path may grow.
const ROOM: f64 = 0.03;
/// How many times more the longer of the two runs does it.
const TIMES: u64 = 1000;

/// Counts, and what they depend on.
struct Counts {
    /// As `rustc --version` says, with the target.
    compiler: String,
    /// Of each path, done once.
    instructions: BTreeMap<String, f64>,
}

impl Counts {
    fn read() -> Result<Self> {
        let kept: serde_json::Value = serde_json::from_str(&fs::read_to_string(file())?)?;
        let compiler = kept["compiler"].as_str().context("the compiler is a text")?.to_owned();
        let instructions = kept["instructions"].as_object().context("the instructions are a map")?;
        let number = |count: &serde_json::Value| count.as_f64().context("a count is a number");
        let instructions = instructions.iter().map(|(path, count)| Ok((path.clone(), number(count)?)));
        Ok(Self { compiler, instructions: instructions.collect::<Result<_>>()? })
    }

    fn write(&self) -> Result<()> {
        let json = serde_json::json!({ "compiler": self.compiler, "instructions": self.instructions });
        Ok(fs::write(file(), serde_json::to_string_pretty(&json)? + "\n")?)
    }
}

/// The file that is checked in.
fn file() -> PathBuf {
    crate::root().join("benches/hot_paths.json")
}

/// Fails when a path has grown. Where that cannot be told, it says why.
pub fn check() -> Result<()> {
    if !has_valgrind() {
        println!("skipped: instruction counts (install valgrind)");
        return Ok(());
    }
    let kept = Counts::read().with_context(|| file().display().to_string())?;
    let now = count()?;
    let judged = now.compiler == kept.compiler;
    let mut grown = Vec::new();
    for (path, &instructions) in &now.instructions {
        let before = kept.instructions.get(path).with_context(|| format!("{path} is not in {}", file().display()))?;
        let growth = instructions / before - 1.0;
        println!("{path}: {instructions:.1} instructions, {:+.1} %", growth * 100.0);
        if growth > ROOM {
            grown.push(format!("{path}: from {before:.1} to {instructions:.1} instructions"));
        }
    }
    if !judged {
        println!("skipped: the comparison (the counts are those of {}, this is {})", kept.compiler, now.compiler);
        return Ok(());
    }
    let renew = "if that is wanted, `cargo xtask bench --counts` keeps the new counts";
    ensure!(grown.is_empty(), "more than 3 % slower:\n  {}\n({renew})", grown.join("\n  "));
    Ok(())
}

/// Keeps the counts of now.
pub fn renew() -> Result<()> {
    ensure!(has_valgrind(), "install valgrind");
    let counts = count()?;
    for (path, instructions) in &counts.instructions {
        println!("{path}: {instructions:.1} instructions");
    }
    counts.write()
}

pub fn has_valgrind() -> bool {
    Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success())
}

fn count() -> Result<Counts> {
    let mut build = cargo::cargo(&["bench", "--no-run", "--package", "cuda-mempool-tests", "--bench", "hot_paths"]);
    Link::Dlopen.apply(&mut build)?;
    // callgrind tells the parts of the program by their names.
    build.env("CARGO_PROFILE_BENCH_DEBUG", "0").env("CARGO_PROFILE_BENCH_STRIP", "none").env_remove("RUSTFLAGS");
    let built = cargo::executables(&mut build)?.into_iter().find(|program| program.name == "hot_paths");
    let program = built.context("cargo names what it built")?.path;

    let names = Command::new(&program).output()?.stdout;
    let mut instructions = BTreeMap::new();
    for path in String::from_utf8(names)?.lines() {
        let (once, twice) = (run(&program, path, TIMES)?, run(&program, path, 2 * TIMES)?);
        instructions.insert(path.to_owned(), (twice - once) as f64 / TIMES as f64);
    }
    Ok(Counts { compiler: compiler()?, instructions })
}

fn compiler() -> Result<String> {
    let verbose = String::from_utf8(Command::new("rustc").arg("-vV").output()?.stdout)?;
    let field = |name: &str| verbose.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
    Ok(format!("rustc {}, {}", field("release:"), field("host:")))
}

/// The instructions that the program itself runs.
fn run(program: &Path, path: &str, times: u64) -> Result<u64> {
    let out = crate::target().join("callgrind.out");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--quiet", "--compress-strings=no", "--compress-pos=no"]);
    valgrind.arg(format!("--callgrind-out-file={}", out.display())).arg(program).args([path, &times.to_string()]);
    sim::apply(&mut valgrind)?;
    cargo::run(&mut valgrind)?;
    let counted = self_cost(&fs::read_to_string(&out)?, &program.display().to_string())?;
    fs::remove_file(out)?;
    Ok(counted)
}

/// The cost of the functions of one object, without that of what they call.
///
/// A profile has a line `ob=` where the functions of another object begin, and lines of a position and a cost. The line
/// after `calls=` is what was called.
fn self_cost(profile: &str, object: &str) -> Result<u64> {
    let (mut within, mut of_callee, mut cost) = (false, false, 0);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("ob=") {
            within = name == object;
        } else if line.starts_with("calls=") {
            of_callee = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            if within && !of_callee {
                cost += line.split(' ').nth(1).context("a cost follows the position")?.parse::<u64>()?;
            }
            of_callee = false;
        }
    }
    if cost == 0 {
        bail!("the profile has nothing of {object}");
    }
    Ok(cost)
}

#[cfg(test)]
mod tests {
    use super::self_cost;

    #[test]
    fn only_the_objects_own_cost_counts() {
        let profile =
            "version: 1\nevents: Ir\n\nob=/bin/it\nfn=main\n10 3\ncob=/lib/other\ncfn=work\ncalls=2 0\n11 500\n\
                       12 4\n\nob=/lib/other\nfn=work\n0 500\n\nob=/bin/it\nfn=end\n0 1\n\ntotals: 508\n";
        assert_eq!(self_cost(profile, "/bin/it").unwrap(), 8);
        assert!(self_cost(profile, "/bin/another").is_err());
    }
}
