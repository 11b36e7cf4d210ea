//! Bindings made now, from the headers of the toolkit found (feature `bindgen`).

use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::environment::{Environment, Target};
use crate::generate::generate;
use crate::plan::Plan;

/// Writes the bindings and names the file, if they are to be made now.
pub fn write(plan: &Plan, target: &Target, environment: &Environment<'_>) -> Result<Option<PathBuf>, String> {
    let (true, Some(toolkit)) = (plan.generates, &plan.toolkit) else { return Ok(None) };
    println!("cargo:rerun-if-changed=wrapper.h");
    let wrapper = Path::new("wrapper.h");
    // bindgen and clang-sys read these by themselves.
    for name in ["LIBCLANG_PATH", "LLVM_CONFIG_PATH", "CLANG_PATH", "BINDGEN_EXTRA_CLANG_ARGS"] {
        environment.variable(name);
    }
    let mut arguments = vec![format!("-I{}", toolkit.include.display())];
    if target.triple != environment.cargo("HOST") {
        arguments.push(format!("--target={}", target.triple));
    }
    let bindings = attempt(wrapper, &arguments).or_else(|why| {
        // A libclang without its own headers (limits.h and kin) can use those of the C compiler.
        let headers = compiler_headers(target).filter(|_| why.contains("file not found")).ok_or_else(|| why.clone())?;
        arguments.push(format!("-isystem{headers}"));
        attempt(wrapper, &arguments).map_err(|again| format!("{why}; and with the headers in {headers}: {again}"))
    })?;
    let file = Path::new(&environment.cargo("OUT_DIR")).join("bindings.rs");
    fs::write(&file, bindings).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(Some(file))
}

fn attempt(wrapper: &Path, arguments: &[String]) -> Result<String, String> {
    // bindgen panics when there is no libclang: its message goes into ours.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let outcome = panic::catch_unwind(|| generate(wrapper, arguments));
    panic::set_hook(hook);
    outcome
        .unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref().copied());
            Err(text.unwrap_or("bindgen panicked").to_owned())
        })
        .map_err(|why| {
            format!(
            "the feature `bindgen` could not make the bindings: {}\nIt needs libclang: install libclang-dev (Debian, \
             Ubuntu), clang-devel (Fedora) or clang (Arch), or set LIBCLANG_PATH to the folder of libclang.so. Without \
             the feature nothing of that is needed",
            why.trim_end()
        )
        })
}

/// The folder of the C compiler's own headers, where a compiler for the target is there.
fn compiler_headers(target: &Target) -> Option<String> {
    let cross = format!("{}-linux-gnu-gcc", target.arch);
    let output = [cross.as_str(), "cc"]
        .iter()
        .find_map(|compiler| Command::new(compiler).arg("-print-file-name=include").output().ok())?;
    let folder = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    Path::new(&folder).is_absolute().then_some(folder)
}
