//! The loader (link kind `dlopen`) and all that it can be given instead of a CUDA runtime.
//!
//! Loading happens once in a process, so each case is a process of its own.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::probe::{clean, printed, says, value, Build};

fn probe(argument: &str) -> Command {
    let mut probe = clean(Build::new("dlopen").program());
    probe.arg(argument);
    probe
}

/// What the program reports when `CUDA_MEMPOOL_CUDART` has this value.
fn report_with(library: impl AsRef<OsStr>) -> String {
    printed(probe("report").env("CUDA_MEMPOOL_CUDART", library))
}

/// The value is refused for this reason, and the message says what to do about it.
#[track_caller]
fn refused(library: impl AsRef<Path>, reason: &str) {
    let report = report_with(library.as_ref());
    assert_eq!(value(&report, "answer"), "303");
    assert_eq!(value(&report, "tried"), "1");
    says(value(&report, "error"), &["correct CUDA_MEMPOOL_CUDART, or unset it to search the usual places"]);
    says(&report, &[&format!("\n  {}: ", library.as_ref().display()), reason]);
}

/// Libraries made for a test.
struct Made(TempDir);

impl Made {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// A shared library from C.
    fn library(&self, name: &str, source: &str) -> PathBuf {
        let path = self.file(name, "");
        let source = self.file("source.c", source);
        let soname = format!("-Wl,-soname,{}", path.file_name().unwrap().to_str().unwrap());
        let compiled = Command::new("cc").args(["-shared", "-fPIC", &soname, "-o"]).arg(&path).arg(source).status();
        assert!(compiled.unwrap().success());
        path
    }

    /// A library that says it is a CUDA runtime of this version, and has nothing else.
    fn runtime(&self, name: &str, version: u32) -> PathBuf {
        self.library(name, &format!("int cudaRuntimeGetVersion(int *version) {{ *version = {version}; return 0; }}"))
    }
}

#[test]
fn text_file() {
    refused(Made::new().file("libcudart.so.13", "no library\n".repeat(100)), "invalid ELF header");
}

#[test]
fn missing_file() {
    refused("/nowhere/libcudart.so.13", "No such file or directory");
}

#[test]
fn library_of_32_bits() {
    // The header of a shared library for i386, padded so that it is read as a whole.
    let mut elf = b"\x7fELF\x01\x01\x01".to_vec();
    elf.resize(16, 0);
    elf.extend([3, 0, 3, 0, 1, 0, 0, 0]);
    elf.resize(4096, 0);
    refused(Made::new().file("libcudart.so.13", elf), "wrong ELF class: ELFCLASS32");
}

#[test]
fn another_library() {
    let made = Made::new();
    refused(made.library("libother.so", "int other;"), "not a CUDA runtime: it has no cudaRuntimeGetVersion");
}

#[test]
fn runtime_that_fails() {
    let made = Made::new();
    let library = made.library("libcudart.so.13", "int cudaRuntimeGetVersion(int *version) { return 999; }");
    refused(library, "its cudaRuntimeGetVersion answers error 999");
}

#[test]
fn runtime_of_an_older_or_newer_major() {
    let made = Made::new();
    refused(made.runtime("libcudart.so.10.2", 10020), "CUDA runtime 10.2, but only 11 to 13 are supported");
    refused(made.runtime("libcudart.so.14", 14000), "CUDA runtime 14.0, but only 11 to 13 are supported");
}

#[test]
fn missing_symbol() {
    let made = Made::new();
    let library = made.runtime("libcudart.so.12", 12040);
    let report = report_with(&library);
    assert_eq!(value(&report, "version"), "12040");
    assert_eq!(Path::new(value(&report, "path")), library);
    assert_eq!(value(&report, "answer"), "302");
}

#[test]
fn without_a_library_every_function_answers() {
    let answers = printed(probe("every-function").env("CUDA_MEMPOOL_CUDART", "/nowhere/libcudart.so.13"));
    let mut count = 0;
    for line in answers.lines() {
        let (function, answer) = line.split_once('=').unwrap();
        let expected = match function {
            "cudaGetErrorName" | "cudaGetErrorString" => "no CUDA runtime library is loaded",
            _ => "303",
        };
        assert_eq!(answer, expected, "{function}");
        count += 1;
    }
    let bindings = fs::read_to_string(value(&printed(&mut probe("told")), "bindings")).unwrap();
    assert_eq!(count, bindings.matches("    pub fn cuda").count());
}

#[test]
fn named_library_wins_over_all_places() {
    let made = Made::new();
    made.runtime("home/lib64/libcudart.so.13", 13000);
    let named = made.runtime("named.so", 12000);
    let report =
        printed(probe("report").env("CUDA_MEMPOOL_CUDART", &named).env("CUDA_HOME", made.0.path().join("home")));
    assert_eq!(Path::new(value(&report, "path")), named);
}

/// Of two names that the system's loader can resolve, the newer.
#[test]
fn newest_name_first() {
    let made = Made::new();
    made.runtime("libcudart.so.12", 12090);
    let newer = made.runtime("libcudart.so.13", 13000);
    let report = printed(probe("report").env("LD_LIBRARY_PATH", made.0.path()));
    assert_eq!(Path::new(value(&report, "path")), newer);
}

/// A refused library is passed over when it was found and not named.
#[test]
fn search_goes_on_after_a_refused_library() {
    let made = Made::new();
    made.file("libcudart.so.13", "no library");
    let older = made.runtime("libcudart.so.12", 12090);
    let report = printed(probe("report").env("LD_LIBRARY_PATH", made.0.path()));
    assert_eq!(Path::new(value(&report, "path")), older);
}

#[test]
fn toolkit_that_a_variable_names() {
    let Some(made) = without_system_runtime() else { return };
    let library = made.runtime("home/lib64/libcudart.so.12", 12060);
    let report = printed(probe("report").env("CUDA_HOME", made.0.path().join("home")));
    assert_eq!(Path::new(value(&report, "path")), library);
}

#[test]
fn usual_places_that_have_nothing_are_all_told() {
    let Some(made) = without_system_runtime() else { return };
    let home = made.0.path().join("home");
    let report = printed(probe("report").env("CUDA_HOME", &home));
    assert_eq!(value(&report, "answer"), "303");
    says(&report, &["install the CUDA runtime (11 to 13), or set CUDA_MEMPOOL_CUDART to the path of its libcudart"]);
    for place in ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", &home.to_string_lossy(), "/usr/local/cuda"]
    {
        says(&report, &[&format!("\n  {place}: ")]);
    }
}

/// An empty place for libraries; nothing where the system has a runtime of its own, which would be found first.
fn without_system_runtime() -> Option<Made> {
    let report = printed(&mut probe("report"));
    if value(&report, "answer") == "303" {
        return Some(Made::new());
    }
    println!("skipped: the system has a CUDA runtime, {}", value(&report, "path"));
    None
}

#[test]
fn library_that_the_program_has_already() {
    let made = Made::new();
    let older = made.runtime("older/libcudart.so.12", 12000);
    made.runtime("newer/libcudart.so.13", 13000);
    let report = printed(probe("report-with").arg(&older).env("LD_LIBRARY_PATH", made.0.path().join("newer")));
    assert_eq!(Path::new(value(&report, "path")), older);
}

#[test]
fn first_call_on_several_threads() {
    let made = Made::new();
    let library = made.library(
        "libcudart.so.13",
        "#include <unistd.h>\n\
         __attribute__((constructor)) static void slow(void) { usleep(100000); }\n\
         int cudaRuntimeGetVersion(int *version) { *version = 13000; return 0; }",
    );
    let answers = printed(probe("race").env("CUDA_MEMPOOL_CUDART", library));
    assert_eq!(answers, "answer=0 version=13000\n".repeat(8));
}

/// A process with more rights than its user must not load what that user names.
#[test]
fn set_uid_program_heeds_no_variable() {
    use std::os::unix::fs::{chown, MetadataExt};
    const NOBODY: u32 = 65534;
    let made = Made::new();
    if made.0.path().metadata().unwrap().uid() != 0 {
        println!("skipped: only root can make a file another user's");
        return;
    }
    let program = made.0.path().join("probe");
    fs::copy(Build::new("dlopen").program(), &program).unwrap();
    fs::set_permissions(made.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let library = made.runtime("home/lib64/libcudart.so.13", 13000);
    let report = || {
        let mut command = clean(&program);
        let command = command.arg("report").env("CUDA_MEMPOOL_CUDART", &library);
        printed(command.env("CUDA_HOME", made.0.path().join("home")))
    };
    assert_eq!(Path::new(value(&report(), "path")), library);

    chown(&program, Some(NOBODY), None).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let report = report();
    if value(&report, "secure") == "false" {
        println!("skipped: the file system of {} heeds no set-uid bit", made.0.path().display());
        return;
    }
    assert!(!report.contains(&*made.0.path().to_string_lossy()), "{report}");
}
