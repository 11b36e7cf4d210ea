//! What the build is told: environment variables, and the target that Cargo names.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsString;

/// Environment variables, with a record of those that decided something.
pub struct Environment<'a> {
    lookup: &'a dyn Fn(&str) -> Option<OsString>,
    asked: RefCell<BTreeSet<String>>,
}

impl<'a> Environment<'a> {
    pub fn new(lookup: &'a dyn Fn(&str) -> Option<OsString>) -> Self {
        Self { lookup, asked: RefCell::default() }
    }

    /// A variable of the user's, recorded so that a change of it runs the build script again. An empty one counts as
    /// not set.
    pub fn variable(&self, name: &str) -> Option<OsString> {
        self.asked.borrow_mut().insert(name.to_owned());
        (self.lookup)(name).filter(|value| !value.is_empty())
    }

    /// A variable that must be text to mean anything.
    pub fn text(&self, name: &str) -> Option<String> {
        self.variable(name).map(|value| value.to_string_lossy().into_owned())
    }

    /// A variable that Cargo sets, and watches by itself.
    pub fn cargo(&self, name: &str) -> String {
        (self.lookup)(name).map(|value| value.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Whether a feature of this crate is on.
    pub fn feature(&self, name: &str) -> bool {
        (self.lookup)(&format!("CARGO_FEATURE_{}", name.to_uppercase())).is_some()
    }

    /// The names of all the variables that [`Self::variable`] was asked for.
    pub fn asked(&self) -> Vec<String> {
        self.asked.borrow().iter().cloned().collect()
    }
}

/// The machine that the program is built for.
#[derive(Debug, Clone)]
pub struct Target {
    pub triple: String,
    pub arch: String,
    pub os: String,
    /// `gnu`, `musl`, `msvc`, ….
    pub abi: String,
}

impl Target {
    pub fn of(environment: &Environment<'_>) -> Self {
        Self {
            triple: environment.cargo("TARGET"),
            arch: environment.cargo("CARGO_CFG_TARGET_ARCH"),
            os: environment.cargo("CARGO_CFG_TARGET_OS"),
            abi: environment.cargo("CARGO_CFG_TARGET_ENV"),
        }
    }

    pub fn is_windows(&self) -> bool {
        self.os == "windows"
    }

    /// Whether there is a CUDA runtime that a program of this target can link.
    pub fn has_cuda(&self) -> bool {
        let system = (self.os == "linux" && self.abi == "gnu") || (self.is_windows() && self.abi == "msvc");
        system && self.elf_machine().is_some()
    }

    /// The number of the architecture in an ELF header.
    pub fn elf_machine(&self) -> Option<u16> {
        match self.arch.as_str() {
            "x86_64" => Some(62),
            "aarch64" => Some(183),
            _ => None,
        }
    }

    /// A variable's name with this target before it: `X86_64_UNKNOWN_LINUX_GNU_CUDA_HOME`.
    pub fn prefixed(&self, variable: &str) -> String {
        format!("{}_{variable}", self.triple.to_uppercase().replace(['-', '.'], "_"))
    }
}
