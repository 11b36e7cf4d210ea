//! Builds the programs in `tests/fixtures` and runs them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// One way to build a program.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Build {
    fixture: &'static str,
    variables: Vec<(String, String)>,
    arguments: Vec<String>,
}

impl Build {
    pub fn new(link: &str) -> Self {
        Self::unsettled().variable("CUDA_MEMPOOL_LINK", link)
    }

    /// The link kind is left to the build script.
    pub fn unsettled() -> Self {
        Self { fixture: "link-probe", variables: Vec::new(), arguments: Vec::new() }
    }

    /// Another program than the usual one.
    pub fn of(mut self, fixture: &'static str) -> Self {
        self.fixture = fixture;
        self
    }

    pub fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.into(), value.as_ref().to_str().unwrap().into()));
        self
    }

    pub fn feature(self, name: &str) -> Self {
        self.argument("--features").argument(name)
    }

    /// An argument for cargo.
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// The program; built once for all tests that want it built so.
    pub fn program(self) -> PathBuf {
        let mut built = built();
        if let Some(program) = built.get(&self) {
            return program.clone();
        }
        let output = self.cargo("build").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // The next build has the same name for another program.
        let program = folder().join(format!("{}-{}", self.fixture, built.len()));
        std::fs::copy(self.target().join("debug").join(self.fixture), &program).unwrap();
        built.insert(self, program.clone());
        program
    }

    /// The static library that it is, and what else the linker must be given with it.
    pub fn static_library(self) -> (PathBuf, Vec<String>) {
        let _alone = built();
        let output = self.cargo("rustc").args(["--", "--print", "native-static-libs"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        let libraries = said.lines().find_map(|line| line.split_once("native-static-libs:")).expect("rustc says it").1;
        let name = format!("lib{}.a", self.fixture.replace('-', "_"));
        (self.target().join("debug").join(name), libraries.split_whitespace().map(str::to_owned).collect())
    }

    /// Runs those of its tests whose names contain one of these, all if none is named. Gives what they print.
    pub fn tested(self, names: &[&str]) -> String {
        let _alone = built();
        printed(self.cargo("test").arg("--").args(names))
    }

    /// Whether cargo builds it, and what it says. Nothing is linked.
    pub fn check(&self) -> (bool, String) {
        let _alone = built();
        self.check_alone()
    }

    /// As [`Self::check`], right after doing just that.
    pub fn check_again(&self) -> (bool, String) {
        let _alone = built();
        self.check_alone();
        self.check_alone()
    }

    fn check_alone(&self) -> (bool, String) {
        let output = self.cargo("check").output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    }

    fn cargo(&self, command: &str) -> Command {
        let mut cargo = clean(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.arg(command).args(&self.arguments).arg("--target-dir").arg(self.target());
        cargo.envs(self.variables.iter().map(|(name, value)| (name, value)));
        cargo.current_dir(self.source());
        cargo
    }

    /// Where the program's source lies.
    pub fn source(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(self.fixture)
    }

    fn target(&self) -> PathBuf {
        folder().join(self.fixture)
    }
}

/// The programs built so far. Held while cargo runs: all builds share a folder, and each undoes the one before.
fn built() -> MutexGuard<'static, HashMap<Build, PathBuf>> {
    static BUILT: OnceLock<Mutex<HashMap<Build, PathBuf>>> = OnceLock::new();
    BUILT.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// A command that nothing around the test tells where CUDA is.
pub fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let tells = ["CUDA", "CARGO_FEATURE", "CARGO_CFG", "CARGO_PKG", "CARGO_MANIFEST", "PKG_CONFIG"];
        let names = ["CONDA_PREFIX", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "CARGO_TARGET_DIR"];
        if tells.iter().any(|part| text.contains(part)) || names.contains(&&*text) {
            command.env_remove(&name);
        }
    }
    command
}

/// What the program printed when all went well.
pub fn printed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{status}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// The value that the program printed for a key.
#[track_caller]
pub fn value<'a>(printed: &'a str, key: &str) -> &'a str {
    let value = printed.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("no {key} in:\n{printed}"))
}

/// Fails unless the text holds every part.
#[track_caller]
pub fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
}

pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}
