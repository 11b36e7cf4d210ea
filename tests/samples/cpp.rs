//! The samples in C++, which are RMM's.

use std::fmt::Write;

use super::{numbered, place, Sample};

/// A program that runs each.
pub fn program(samples: &[Sample]) -> String {
    let (mut cpp, mut calls) = (String::from("#include \"tests/c/rmm.hpp\"\n"), String::new());
    for (number, sample) in numbered(samples, "cpp") {
        let _ = write!(cpp, "\n// {}\nSAMPLE(sample_{number}) {{\n{{\n{}\n}}\n}}\n", place(sample), sample.foreign);
        let _ = writeln!(calls, "    run({:?}, sample_{number});", place(sample));
    }
    let _ = write!(cpp, "\nint main() {{\n{calls}}}\n");
    cpp
}
