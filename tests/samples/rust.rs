//! The samples in Rust that stand beside those in C and C++. As documentation tests they run one by one; as functions they
//! also run where there is no compiler, and those of two processes run in two processes.

use std::fmt::Write;

use super::guide::Session;
use super::{numbered, place, role, Role, Sample};

/// A file to include: the functions, and tables that name them beside the C.
pub fn module(samples: &[Sample], sessions: &[Session]) -> String {
    let (mut c, mut table, mut functions) = (String::new(), String::new(), String::new());
    let (mut exporter, mut importer) = (String::new(), String::new());
    for (number, sample) in numbered(samples, "c") {
        match role(sample) {
            Some(Role::Exporter) => exporter = exporter + &sample.rust + "\n",
            Some(Role::Importer) => importer = importer + &sample.rust + "\n",
            None => {
                let _ = writeln!(c, "    fn sample_{number}(first: i32, last: i32, node: i32) -> cudaError_t;");
                let _ = writeln!(table, "    ({:?}, sample_{number}, rust::sample_{number}),", place(sample));
                let _ = writeln!(functions, "pub fn sample_{number}() {{\n{}\n}}", sample.whole_rust);
            }
        }
    }
    let mut from_rmm = String::new();
    for (number, sample) in numbered(samples, "cpp") {
        let _ = writeln!(from_rmm, "    ({:?}, rust::from_rmm_{number}),", place(sample));
        let _ = writeln!(functions, "pub fn from_rmm_{number}() {{\n{}\n}}", sample.whole_rust);
    }
    for (role, body) in [("exporter", exporter), ("importer", importer)] {
        let _ = writeln!(functions, "pub fn {role}({PARAMETERS}) -> Result<(), Box<dyn Error>> {{\n{body}");
        let _ = writeln!(functions, "meet(stream, &mut channel)\n}}");
    }
    for session in sessions {
        let _ = writeln!(functions, "pub mod {} {{\n{}\n}}", session.name, session.whole_rust);
    }
    format!(
        "extern \"C\" {{\n{c}    fn samples_between_processes() -> i32;\n}}\n\n\
         type InC = unsafe extern \"C\" fn(i32, i32, i32) -> cudaError_t;\n\
         const SAMPLES: &[(&str, InC, fn())] = &[\n{table}];\n\
         const FROM_RMM: &[(&str, fn())] = &[\n{from_rmm}];\n\n\
         #[allow(clippy::all, unused)]\nmod rust {{\nuse super::in_two_processes::*;\n\n{functions}}}\n"
    )
}

/// What the samples of two processes are given.
const PARAMETERS: &str = "device: Device, stream: &Stream, mut channel: UnixStream";
