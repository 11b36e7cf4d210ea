//! A fact is a named function that asserts; an area is the facts of one subject.

use super::link::Link;

/// What a fact comes to when no assertion fails.
pub type Outcome = Result<(), Skip>;

/// Why a fact cannot be asked on this machine.
#[derive(Debug)]
pub struct Skip(pub String);

impl Skip {
    pub fn because<T>(reason: impl Into<String>) -> Result<T, Self> {
        Err(Self(reason.into()))
    }
}

impl From<crate::driver::DriverError> for Skip {
    fn from(error: crate::driver::DriverError) -> Self {
        Self(error.0)
    }
}

/// A named function of an area.
pub type Named<F> = (&'static str, F);

pub struct Area {
    /// The Rust path of the area's module.
    pub module: &'static str,
    /// Run in the harness's process.
    pub facts: &'static [Named<fn() -> Outcome>],
    /// Run in a process of their own, as they touch what the whole process shares.
    pub isolated: &'static [Named<fn() -> Outcome>],
    /// What a peer process does for a fact.
    pub roles: &'static [Named<fn(&mut Link)>],
    /// Not asserted: the answer is printed.
    pub questions: &'static [Named<fn() -> Outcome>],
}

/// Declares a module's [`Area`]. A function that is left out is unused, which the compiler reports.
macro_rules! area {
    ($($kind:ident: [$($name:ident),* $(,)?]),* $(,)?) => {
        pub const AREA: $crate::support::fact::Area = $crate::support::fact::Area {
            $($kind: &[$((stringify!($name), $name)),*],)*
            ..$crate::support::fact::Area::empty(module_path!())
        };
    };
}

/// Prints a line of the answer to a question.
macro_rules! say {
    ($($text:tt)*) => {
        println!("    {}", format_args!($($text)*))
    };
}

impl Area {
    pub const fn empty(module: &'static str) -> Self {
        Self { module, facts: &[], isolated: &[], roles: &[], questions: &[] }
    }

    /// The full name of one of the area's functions: the module's path within the suite, and the function.
    pub fn full_name(&self, function: &str) -> String {
        let (_crate, path) = self.module.split_once("::").expect("an area is a module of the suite");
        format!("{path}::{function}")
    }
}
