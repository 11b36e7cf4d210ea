//! Subjects of other makers, from shared libraries that may or may not be there.

use std::path::Path;

use libloading::{Library, Symbol};

use crate::results::Absent;
use crate::subject::Subject;

/// What `subject.h` declares.
type Subjects = unsafe extern "C" fn(count: *mut usize) -> *const Subject;

/// The C calls, which `raw.c` has.
#[cfg(raw_c)]
pub fn of_c() -> &'static [Subject] {
    extern "C" {
        fn bench_subjects(count: *mut usize) -> *const Subject;
    }
    // SAFETY: the function is the one of subject.h.
    unsafe { listed(bench_subjects) }
}

/// All subjects of the libraries in a folder.
pub fn load(folder: &Path) -> (Vec<Subject>, Vec<Absent>) {
    let (mut subjects, mut absent) = (Vec::new(), Vec::new());
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    // Libraries that peers need lie there too: those of peers have no `lib` before their name.
    let is_peer = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.ends_with(".so") && !name.starts_with("lib")
    };
    let mut libraries: Vec<_> = entries.filter(is_peer).collect();
    libraries.sort();
    for path in libraries {
        match from(&path) {
            Ok(found) => subjects.extend_from_slice(found),
            Err(why) => absent.push(Absent { what: path.display().to_string(), why: why.to_string() }),
        }
    }
    (subjects, absent)
}

fn from(path: &Path) -> Result<&'static [Subject], libloading::Error> {
    // SAFETY: the libraries that the caller names are those made for this program.
    let library: &'static Library = Box::leak(Box::new(unsafe { Library::new(path) }?));
    // SAFETY: the function is the one of subject.h, and its library stays.
    unsafe {
        let subjects: Symbol<'static, Subjects> = library.get(b"bench_subjects\0")?;
        Ok(listed(*subjects))
    }
}

/// # Safety
/// The function is the one of subject.h, and its library stays.
unsafe fn listed(subjects: Subjects) -> &'static [Subject] {
    let mut count = 0;
    // SAFETY: the caller's promise: so many static tables.
    unsafe {
        let first = subjects(&mut count);
        std::slice::from_raw_parts(first, count)
    }
}
