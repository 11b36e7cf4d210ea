//! Sharing with other processes: who this process is, and how another's memory file is reached.

pub mod blob;
pub mod board;
pub mod pools;

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

use crate::config;

/// A number that no other process, and no other pool, has.
pub fn unique() -> u64 {
    let mut bytes = [0_u8; 8];
    // SAFETY: the buffer is as long as is said.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != bytes.len() as isize {
        config::fatal("the system gives no random bytes");
    }
    u64::from_ne_bytes(bytes)
}

/// A file of some process, as a handle names it. Nothing is left behind in the file system when that process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessFile {
    process: u64,
    pid: u32,
    fd: i32,
}

impl ProcessFile {
    /// How others name a file of this process.
    pub fn of(file: BorrowedFd<'_>) -> Self {
        Self { process: this_process(), pid: std::process::id(), fd: file.as_raw_fd() }
    }

    /// Whether it is a file of this process.
    pub fn is_own(&self) -> bool {
        self.process == this_process()
    }

    /// Opens it, while that process lives and lets this one.
    pub fn open(&self) -> Option<File> {
        OpenOptions::new().read(true).write(true).open(format!("/proc/{}/fd/{}", self.pid, self.fd)).ok()
    }

    /// Appends it to a blob.
    pub fn put(&self, blob: &mut blob::Writer) {
        blob.put(self.process);
        blob.put(u64::from(self.pid));
        blob.put(self.fd as u64);
    }

    /// Reads it from a blob.
    pub fn take(blob: &mut blob::Reader) -> Option<Self> {
        Some(Self { process: blob.take()?, pid: blob.take()?.try_into().ok()?, fd: blob.take()?.try_into().ok()? })
    }
}

fn this_process() -> u64 {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    *PROCESS.get_or_init(unique)
}
