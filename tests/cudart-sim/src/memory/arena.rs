//! Where the bytes are: sparse in-memory files, mapped piece by piece.
//!
//! A piece of device memory is mapped twice: at the address that the user gets, where the host may not touch it, and at
//! an address of the simulator's own, where the operations work. Host memory is mapped once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;

/// A file that gives out ever new places and keeps only the pages that were touched.
#[derive(Debug)]
pub struct Arena {
    file: File,
    next: AtomicU64,
}

impl Arena {
    /// A new file, closed on exec.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"cudart-sim".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Self { file: unsafe { File::from_raw_fd(fd) }, next: AtomicU64::new(0) })
    }

    /// Puts bytes at the start, before any place is given out, and keeps `room` for them.
    pub fn start_with(&self, bytes: &[u8], room: usize) -> io::Result<()> {
        let offset = self.take(room)?;
        self.file.write_all_at(bytes, offset)
    }

    /// How long the file is.
    pub fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// A file made by another process: no place in it can be taken.
    pub fn existing(file: File) -> Self {
        Self { file, next: AtomicU64::new(u64::MAX) }
    }

    /// The file.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A place of `len` bytes (a multiple of the page size) that was never given out before.
    fn take(&self, len: usize) -> io::Result<u64> {
        let offset = self.next.fetch_add(len as u64, Ordering::Relaxed);
        // Two threads may get here in either order; the file must never shrink.
        if self.len()? < offset + len as u64 {
            self.file.set_len(offset + len as u64)?;
        }
        Ok(offset)
    }

    /// Gives the pages of a place back to the system.
    fn punch(&self, offset: u64, len: usize) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the descriptor is open. A failure only keeps the pages longer.
        unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset as libc::off_t, len as libc::off_t) };
    }
}

/// A mapped piece of an arena.
#[derive(Debug)]
pub struct Segment {
    /// The address that users get.
    pub user: usize,
    pub len: usize,
    internal: usize,
    arena: Arc<Arena>,
    offset: u64,
    /// Whether the bytes are this process's own, to be given back with the mapping.
    owner: bool,
}

impl Segment {
    /// Maps a new piece of `len` bytes, a multiple of the page size. `host`: whether the host may touch it.
    pub fn new(arena: &Arc<Arena>, len: usize, host: bool) -> io::Result<Self> {
        Self::map(arena, arena.take(len)?, len, host, true)
    }

    /// Maps a piece of a file that another process made.
    pub fn foreign(arena: &Arc<Arena>, offset: u64, len: usize, host: bool) -> io::Result<Self> {
        Self::map(arena, offset, len, host, false)
    }

    fn map(arena: &Arc<Arena>, offset: u64, len: usize, host: bool, owner: bool) -> io::Result<Self> {
        let user = addresses::reserve(len)?;
        let fixed = host.then_some(user);
        match addresses::map(fixed, len, libc::PROT_READ | libc::PROT_WRITE, Some((&arena.file, offset))) {
            Ok(internal) => Ok(Self { user, len, internal, arena: Arc::clone(arena), offset, owner }),
            Err(error) => {
                addresses::retire(user, len);
                Err(error)
            }
        }
    }

    /// Where the simulator reads and writes what the user calls `address`.
    pub fn internal(&self, address: usize) -> *mut u8 {
        debug_assert!((self.user..=self.user + self.len).contains(&address));
        (self.internal + (address - self.user)) as *mut u8
    }

    /// The file, and the place in it of what the user calls `address`.
    pub fn place(&self, address: usize) -> (&Arc<Arena>, u64) {
        (&self.arena, self.offset + (address - self.user) as u64)
    }

    /// Gives the pages behind a part back. The address stays taken, and the host may not touch it any more.
    pub fn discard(&self, address: usize, len: usize) {
        if self.internal == self.user {
            addresses::close(address, len);
        }
        self.arena.punch(self.offset + (address - self.user) as u64, len);
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.owner {
            self.arena.punch(self.offset, self.len);
        }
        if self.internal != self.user {
            // SAFETY: the mapping is this segment's own; whoever works in it holds the segment.
            unsafe { libc::munmap(self.internal as *mut libc::c_void, self.len) };
        }
        addresses::retire(self.user, self.len);
    }
}

/// Addresses that users get. They are never given back to the system, so that a stale device pointer never points to
/// something else than device memory.
mod addresses {
    use super::*;

    /// Retired ranges by address; all are mapped without any access.
    static RETIRED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

    pub fn reserve(len: usize) -> io::Result<usize> {
        let mut retired = RETIRED.lock();
        let best = retired.iter().filter(|(_, room)| **room >= len).min_by_key(|(_, room)| **room);
        if let Some((&start, &room)) = best {
            retired.remove(&start);
            if room > len {
                retired.insert(start + len, room - len);
            }
            return Ok(start);
        }
        map(None, len, libc::PROT_NONE, None)
    }

    /// Ends all access to a range, which stays reserved.
    pub fn close(start: usize, len: usize) {
        map(Some(start), len, libc::PROT_NONE, None).expect("replacing a mapping of one's own");
    }

    pub fn retire(start: usize, len: usize) {
        close(start, len);
        let mut retired = RETIRED.lock();
        let (mut start, mut len) = (start, len);
        if let Some((&before, &room)) = retired.range(..start).next_back() {
            if before + room == start {
                retired.remove(&before);
                (start, len) = (before, room + len);
            }
        }
        if let Some(room) = retired.remove(&(start + len)) {
            len += room;
        }
        retired.insert(start, len);
    }

    /// Maps part of a file, or nothing; at a reserved address, or anywhere.
    pub fn map(fixed: Option<usize>, len: usize, access: i32, file: Option<(&File, u64)>) -> io::Result<usize> {
        let place = if fixed.is_some() { libc::MAP_FIXED } else { 0 };
        let (kind, fd, offset) = match file {
            Some((file, offset)) => (libc::MAP_SHARED, file.as_raw_fd(), offset),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
        };
        // SAFETY: a fixed address lies in a range that this module reserved; any other is the system's choice.
        let start = unsafe {
            libc::mmap(
                fixed.unwrap_or(0) as *mut libc::c_void,
                len,
                access,
                kind | place | libc::MAP_NORESERVE,
                fd,
                offset as libc::off_t,
            )
        };
        if start == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(start as usize)
        }
    }
}
