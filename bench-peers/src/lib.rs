//! The Rust peers, as a library that the comparison loads.

mod cuda_core;
mod cudarc;
#[path = "../../benches/compare/subject.rs"]
mod subject;

use subject::{table, Subject};

// SAFETY: the texts that its pointers lead to are static.
unsafe impl Sync for Subject {}

/// The function of subject.h.
///
/// # Safety
/// `count` is valid for writing.
#[no_mangle]
pub unsafe extern "C" fn bench_subjects(count: *mut usize) -> *const Subject {
    static SUBJECTS: &[Subject] =
        &[table::<cudarc::Slice<true>>(), table::<cudarc::Slice<false>>(), table::<cuda_core::Buffer>()];
    // SAFETY: the caller's promise.
    unsafe { count.write(SUBJECTS.len()) };
    SUBJECTS.as_ptr()
}
