//! The page of semaphores: memory that both processes map, and whose words streams write and wait for.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::violation::Violation;

/// How many buffers a session can share at once.
pub(super) const SLOTS: u32 = 4096;
/// The two words of a slot, and room: fewer slots share a line of the processors' caches.
const SLOT: usize = 16;
const LENGTH: usize = SLOTS as usize * SLOT;
/// Without these, a peer could make the memory vanish under us.
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
/// With this, what is mapped already can be written, and nothing else: no hole can be made in it either.
const CLOSED: i32 = libc::F_SEAL_FUTURE_WRITE;

/// Which word of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// The exporter's data is there up to this generation.
    Ready,
    /// The importer is done with this generation.
    Done,
}

impl Word {
    /// Where the word lies in the page, in bytes.
    pub(super) fn offset(self, slot: u32) -> usize {
        slot as usize * SLOT
            + match self {
                Self::Ready => 0,
                Self::Done => 4,
            }
    }
}

/// Whether a word that says `found` has come to `value`. Generations wrap around, as the GPU's comparison does.
pub(super) fn reached(found: u32, value: u32) -> bool {
    found.wrapping_sub(value) as i32 >= 0
}

/// The page, mapped.
///
/// Its words are the peer's to scribble on: that can upset the order of its own data, and nothing else.
#[derive(Debug)]
pub(super) struct Page {
    start: NonNull<u8>,
}

// SAFETY: the memory is only reached through atomics.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// Where a word lies that is no slot's.
    pub(super) const SPARE: usize = 8;

    /// A new one, all words 0, with the descriptor to send.
    pub(super) fn create() -> io::Result<(Self, OwnedFd)> {
        let fd = memfd()?;
        File::from(fd.try_clone()?).set_len(LENGTH as u64)?;
        // SAFETY: works on an open descriptor.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((Self::map(fd.as_fd())?, fd))
    }

    /// The one that a peer has sent.
    pub(super) fn open(fd: BorrowedFd<'_>) -> Result<Self, Violation> {
        // SAFETY: works on an open descriptor.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 {
            return Err(Violation::Descriptor("shared memory"));
        }
        if seals & SEALS != SEALS {
            return Err(Violation::Descriptor("sealed against shrinking and growing"));
        }
        let length = fd.try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
        if length.map_or(true, |metadata| metadata.len() != LENGTH as u64) {
            return Err(Violation::Descriptor("a page of semaphores of the right length"));
        }
        Self::map(fd).map_err(|_| Violation::Descriptor("shared memory that can be written"))
    }

    /// To be called when both ends have mapped it: whether it is sure from now on that processors and devices see the
    /// same memory.
    ///
    /// A device keeps the pages that it was given. A peer that makes a hole in the file gives the processors other pages,
    /// and a stream that waits could then be set free by nobody. Linux before 5.1 cannot forbid that, and a peer may have
    /// forbidden us to forbid it.
    pub(super) fn close_to_others(fd: BorrowedFd<'_>) -> bool {
        // SAFETY: works on an open descriptor, here and below.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, CLOSED) };
        // SAFETY: as above.
        let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
        seals >= 0 && seals & CLOSED == CLOSED
    }

    fn map(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), LENGTH, access, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(start.cast()).map(|start| Self { start }).ok_or_else(|| io::Error::other("mapped at null"))
    }

    /// The memory, for registering it with CUDA.
    pub(super) fn bytes(&self) -> (NonNull<u8>, usize) {
        (self.start, LENGTH)
    }

    fn word(&self, word: Word, slot: u32) -> &AtomicU32 {
        assert!(slot < SLOTS);
        // SAFETY: within the mapping, aligned, and only ever used as an atomic.
        unsafe { &*self.start.as_ptr().add(word.offset(slot)).cast::<AtomicU32>() }
    }

    /// Whether the word has come to `value`. What was written before that value is then visible.
    pub(super) fn has(&self, word: Word, slot: u32, value: u32) -> bool {
        reached(self.word(word, slot).load(Ordering::Acquire), value)
    }

    /// Writes the word from the host. Streams that wait for this value go on.
    pub(super) fn set(&self, word: Word, slot: u32, value: u32) {
        self.word(word, slot).store(value, Ordering::Release);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and this is its last use.
        unsafe { libc::munmap(self.start.as_ptr().cast(), LENGTH) };
    }
}

fn memfd() -> io::Result<OwnedFd> {
    // The first is refused by kernels before 6.3, the second by systems that forbid executable memory files.
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    for flags in [flags | libc::MFD_NOEXEC_SEAL, flags] {
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"cuda-mempool semaphores".as_ptr(), flags) };
        if fd >= 0 {
            // SAFETY: a descriptor that was just made for us.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
    Err(io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn both_ends_see_the_same_words() {
        let (ours, fd) = Page::create().expect("a page");
        let theirs = Page::open(fd.as_fd()).expect("the same page");
        assert!(!theirs.has(Word::Ready, 7, 2));
        ours.set(Word::Ready, 7, 2);
        assert!(theirs.has(Word::Ready, 7, 2) && theirs.has(Word::Ready, 7, 1));
        assert!(!theirs.has(Word::Done, 7, 2) && !theirs.has(Word::Ready, 6, 2));
        theirs.set(Word::Done, SLOTS - 1, 9);
        assert!(ours.has(Word::Done, SLOTS - 1, 9));
    }

    #[test]
    fn generations_wrap_around() {
        assert!(reached(2, 2) && reached(3, 2) && !reached(1, 2));
        assert!(reached(1, u32::MAX) && !reached(u32::MAX, 1));
    }

    #[test]
    fn the_page_cannot_be_made_to_vanish() {
        let (page, fd) = Page::create().expect("a page");
        let file = File::from(fd);
        assert!(file.set_len(0).is_err() && file.set_len(1 << 20).is_err());
        page.set(Word::Done, SLOTS - 1, 1);
    }

    #[test]
    fn other_descriptors_are_refused() {
        let sealed = |length: u64, seals: i32| {
            let fd = memfd().expect("a memory file");
            let file = File::from(fd.try_clone().expect("a descriptor"));
            file.set_len(length).expect("it can grow");
            // SAFETY: works on an open descriptor.
            assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
            fd
        };
        let null: OwnedFd = File::open("/dev/null").expect("/dev/null").into();
        let (socket, _other) = UnixStream::pair().expect("a pair");
        let refusals: [(OwnedFd, &str); 7] = [
            (null, "shared memory"),
            (socket.into(), "shared memory"),
            (sealed(LENGTH as u64, 0), "sealed"),
            (sealed(LENGTH as u64, libc::F_SEAL_GROW), "sealed"),
            (sealed(0, SEALS), "length"),
            (sealed(LENGTH as u64 * 2, SEALS), "length"),
            (sealed(LENGTH as u64, SEALS | libc::F_SEAL_WRITE), "written"),
        ];
        for (fd, why) in refusals {
            match Page::open(fd.as_fd()) {
                Err(Violation::Descriptor(what)) => assert!(what.contains(why), "{what}, not {why}"),
                other => panic!("{other:?}, not {why}"),
            }
        }
    }
}
