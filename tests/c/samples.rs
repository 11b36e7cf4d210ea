//! Makes a C file of the guide's samples, a C++ file, and the Rust table that names them. Part of the build script.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

#[path = "../support/guide.rs"]
#[allow(dead_code)] // `cargo xtask docs` uses the rest
mod guide;

/// Writes `samples.c`, `samples.cpp` and `samples.rs` into `out`, and gives the path of the first.
pub fn write(out: &Path) -> io::Result<PathBuf> {
    let samples = guide::samples(Path::new("cuda-mempool/src"))?;
    let mut c = String::from("#include \"tests/c/two_processes.h\"\n");
    let (mut functions, mut table, mut steps) = (String::new(), String::new(), String::new());
    for (number, sample) in samples.iter().filter(|sample| sample.language == "c").enumerate() {
        let name = format!("{}.rs, {}", sample.chapter, sample.section.as_deref().unwrap_or("at the start"));
        let _ = write!(c, "\n/* {name} */\n");
        let body = launches_as_calls(&sample.foreign);
        if let Some(role) = role(&body) {
            let _ = writeln!(c, "static void step_{number}(void) {{\n{body}\n}}");
            let _ = writeln!(steps, "    {{{role}, step_{number}}},");
            continue;
        }
        let body = match function_name(&body) {
            Some(name) => {
                c += &body;
                format!("CALL_{name}();")
            }
            None => body,
        };
        let _ = write!(
            c,
            "\ncudaError_t sample_{number}(int first_device, int last_device, int host_node) {{\n\
             before(first_device, last_device, host_node);\n{{\n{body}\n}}\nreturn after();\n}}\n"
        );
        let _ = writeln!(functions, "    fn sample_{number}(first: i32, last: i32, node: i32) -> cudaError_t;");
        let _ = writeln!(table, "    ({name:?}, sample_{number}),");
    }
    let _ = write!(
        c,
        "\nint samples_between_processes(void) {{\nstatic const struct step steps[] = {{\n{steps}}};\n\
         return between_processes(steps, sizeof steps / sizeof *steps);\n}}\n"
    );
    let rust = format!(
        "extern \"C\" {{\n{functions}    fn samples_between_processes() -> i32;\n}}\n\n\
         type Sample = unsafe extern \"C\" fn(i32, i32, i32) -> cudaError_t;\n\
         const SAMPLES: &[(&str, Sample)] = &[\n{table}];\n"
    );
    fs::write(out.join("samples.rs"), rust)?;
    fs::write(out.join("samples.cpp"), in_cpp(&samples))?;
    let path = out.join("samples.c");
    fs::write(&path, c)?;
    Ok(path)
}

fn in_cpp(samples: &[guide::Sample]) -> String {
    let mut cpp = String::from("#include \"tests/c/rmm.hpp\"\n");
    for (number, sample) in samples.iter().filter(|sample| sample.language == "cpp").enumerate() {
        let _ = write!(cpp, "\nSAMPLE(sample_{number}) {{\n{{\n{}\n}}\n}}\n", sample.foreign);
    }
    cpp
}

/// The process that a sample belongs to, if it says so in its first line.
fn role(sample: &str) -> Option<&'static str> {
    match sample.lines().next()? {
        "/* the exporting process */" => Some("EXPORTER"),
        "/* the importing process */" => Some("IMPORTER"),
        _ => None,
    }
}

/// The name of the function that a sample defines, if it is one.
fn function_name(sample: &str) -> Option<&str> {
    let (head, _) = sample.strip_prefix("cudaError_t ")?.split_once('(')?;
    (!head.contains(' ')).then_some(head)
}

/// `kernel<<<blocks, threads, 0, stream>>>(memory)` as `kernel(memory, stream)`.
fn launches_as_calls(sample: &str) -> String {
    let mut text = String::new();
    let mut rest = sample;
    while let Some((before, launch)) = rest.split_once("<<<") {
        let (shape, call) = launch.split_once(">>>(").expect("a launch has both brackets");
        let (arguments, after) = call.split_once(')').expect("a call is closed");
        let (_, stream) = shape.rsplit_once(", ").expect("a launch names its stream last");
        let _ = write!(text, "{before}({arguments}, {stream})");
        rest = after;
    }
    text + rest
}
