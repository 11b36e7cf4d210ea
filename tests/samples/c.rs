//! The samples in C.

use std::fmt::Write;

use super::{numbered, place, role, Role, Sample};

/// A C file: a function for each sample, and one that runs those of two processes.
pub fn functions(samples: &[Sample]) -> String {
    let (mut c, mut steps) = (String::from("#include \"tests/c/two_processes.h\"\n"), String::new());
    for (number, sample) in numbered(samples, "c") {
        let _ = write!(c, "\n/* {} */\n", place(sample));
        let body = launches_as_calls(&sample.foreign);
        if let Some(role) = role(sample) {
            let role = if role == Role::Exporter { "EXPORTER" } else { "IMPORTER" };
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
    }
    let _ = write!(
        c,
        "\nint samples_between_processes(void) {{\nstatic const struct step steps[] = {{\n{steps}}};\n\
         return between_processes(steps, sizeof steps / sizeof *steps);\n}}\n"
    );
    c
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
