//! One pointer, one mapping.
//!
//! Importing a pointer twice gives one address, and freeing it once unmaps it under whoever else uses it: the process
//! dies. So every import goes through here, and one lock is held over looking up, importing and the last free.

use std::collections::HashMap;
use std::ffi::c_void;
use std::mem::{align_of, size_of};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cuda_mempool_sys::cudaMemPoolPtrExportData;

use super::driver;
use super::handles::{same_bytes, PointerBlob};
use super::pool::ImportedPool;
use crate::error::call;
use crate::stream::order;
use crate::{teardown, Error, ErrorKind, Result, Stream};

/// One use of a mapping. To be given back with [`release`](Self::release).
#[derive(Debug)]
#[must_use]
pub(super) struct Mapping {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: an address, and the memory behind it is reached through the runtime alone.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

type Key = (u64, PointerBlob);

#[derive(Default)]
struct Registry {
    by_key: HashMap<Key, usize>,
    by_address: HashMap<usize, Entry>,
}

struct Entry {
    keys: Vec<Key>,
    size: usize,
    state: State,
}

enum State {
    /// In use, or not unmapped because that failed.
    Mapped {
        users: usize,
        /// The streams of the uses that have ended: the free comes after what they were doing.
        streams: Vec<Stream>,
        /// Keeps the pool.
        _pool: ImportedPool,
    },
    /// The free is enqueued. What is imported before it is done would be unmapped by it.
    Unmapping(Arc<AtomicBool>),
}

fn registry() -> MutexGuard<'static, Registry> {
    static REGISTRY: OnceLock<Mutex<Registry>> = OnceLock::new();
    REGISTRY.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mapping {
    /// How long a free may take to come to its turn. On a device that is broken it never does.
    pub(super) const PATIENCE: Duration = Duration::from_secs(10);

    /// Maps the memory, or shares the mapping that there is. `stream` is where it is freed again if something fails.
    pub(super) fn import(pool: &ImportedPool, blob: &PointerBlob, stream: &Stream) -> Result<Self> {
        const FUNCTION: &str = "cudaMemPoolImportPointer";
        teardown::reachable(FUNCTION)?;
        let key = (pool.number(), *blob);
        let started = Instant::now();
        loop {
            let mut registry = registry();
            registry.forget_unmapped();
            match registry.find(&key) {
                Found::Mapped(mapping) => return Ok(mapping),
                Found::Nothing => return registry.import(key, pool, stream),
                Found::Unmapping if started.elapsed() > Self::PATIENCE => {
                    let why = "the memory was mapped before, and the free of that does not come to its turn";
                    return Err(Error::refused(ErrorKind::NotPermitted, FUNCTION, why));
                }
                Found::Unmapping => {}
            }
            drop(registry);
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Whether importing has to wait: the memory was mapped before, and the free of that has not come to its turn.
    pub(super) fn is_unmapping(blob: &PointerBlob) -> bool {
        let mut registry = registry();
        registry.forget_unmapped();
        registry.is_unmapping(blob)
    }

    /// Where the memory starts.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The size of the memory, in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The elements in an extent of the memory, given in bytes; `None` when they are not whole, within, and aligned.
    pub(super) fn elements<T>(&self, offset: usize, bytes: usize) -> Option<(NonNull<T>, usize)> {
        let length = bytes.checked_div(size_of::<T>())?;
        let end = offset.checked_add(bytes)?;
        if length * size_of::<T>() != bytes || end > self.size {
            return None;
        }
        let first = self.start.as_ptr().wrapping_add(offset).cast::<T>();
        let aligned = first as usize % align_of::<T>() == 0;
        NonNull::new(first).filter(|_| aligned).map(|first| (first, length))
    }

    /// Ends this use, all of which was ordered on `stream`. The last one frees the mapping there, after all others.
    ///
    /// # Errors
    /// What ordering and freeing answer, with the use, which has not ended.
    pub(super) fn release(self, stream: &Stream) -> Result<(), (Self, Error)> {
        let mut registry = registry();
        registry.forget_unmapped();
        registry.release(self.address(), stream).map_err(|error| (self, error))
    }

    /// Ends this use in any case, as [`release`](Self::release).
    ///
    /// # Errors
    /// As there. The memory then stays mapped, until it is imported and released again.
    pub(super) fn let_go(self, stream: &Stream) -> Result<()> {
        self.release(stream).map_err(|(mapping, error)| {
            mapping.keep_mapped(stream);
            error
        })
    }

    /// Ends this use without freeing: that is left to whoever imports the memory again.
    pub(super) fn keep_mapped(self, stream: &Stream) {
        registry().end_use(self.address(), stream);
    }

    fn address(&self) -> usize {
        self.start.as_ptr() as usize
    }
}

enum Found {
    Nothing,
    Mapped(Mapping),
    Unmapping,
}

impl Registry {
    /// Forgets mappings whose free is done.
    fn forget_unmapped(&mut self) {
        let done = |entry: &Entry| matches!(&entry.state, State::Unmapping(done) if done.load(Ordering::Acquire));
        if self.by_address.values().any(done) {
            let keys = &mut self.by_key;
            self.by_address.retain(|_, entry| {
                let forget = done(entry);
                if forget {
                    keys.retain(|key, _| !entry.keys.contains(key));
                }
                !forget
            });
        }
    }

    fn find(&mut self, key: &Key) -> Found {
        let known = self.by_key.get(key).and_then(|address| Some((*address, self.by_address.get_mut(address)?)));
        if let Some((address, Entry { size, state: State::Mapped { users, .. }, .. })) = known {
            *users += 1;
            return NonNull::new(address as *mut u8)
                .map_or(Found::Nothing, |start| Found::Mapped(Mapping { start, size: *size }));
        }
        match self.is_unmapping(&key.1) {
            true => Found::Unmapping,
            false => Found::Nothing,
        }
    }

    /// Whether this memory is still to be unmapped, by whichever handle of its pool it was mapped.
    fn is_unmapping(&self, blob: &PointerBlob) -> bool {
        let of_it = |entry: &Entry| entry.keys.iter().any(|(_, known)| known == blob);
        self.by_address.values().any(|entry| matches!(entry.state, State::Unmapping(_)) && of_it(entry))
    }

    fn import(&mut self, key: Key, pool: &ImportedPool, stream: &Stream) -> Result<Mapping> {
        const FUNCTION: &str = "cudaMemPoolImportPointer";
        let mut data = same_bytes!(*key.1.as_bytes(), [u8; 64] => cudaMemPoolPtrExportData);
        let mut address: *mut c_void = std::ptr::null_mut();
        // SAFETY: the pool is alive, the pointers are valid, and any bytes may be asked for.
        unsafe { call!(cudaMemPoolImportPointer(&mut address, pool.as_raw(), &mut data)) }?;
        let Some(start) = NonNull::new(address.cast::<u8>()) else {
            return Err(Error::refused(ErrorKind::Other, FUNCTION, "success, but a null pointer"));
        };
        // The same memory by another handle of its pool: the runtime has not mapped it again.
        if let Some(Entry { keys, size, state: State::Mapped { users, .. } }) =
            self.by_address.get_mut(&(address as usize))
        {
            *users += 1;
            keys.push(key);
            self.by_key.insert(key, address as usize);
            return Ok(Mapping { start, size: *size });
        }
        let size = match driver::range_of(address) {
            Ok((base, size)) if base == start => Ok(size),
            Ok(_) => Err(Error::refused(ErrorKind::InvalidValue, FUNCTION, "it is not the start of an allocation")),
            Err(error) => Err(error),
        };
        let state = State::Mapped { users: 1, streams: Vec::new(), _pool: pool.clone() };
        self.by_key.insert(key, address as usize);
        let entry = Entry { keys: vec![key], size: *size.as_ref().unwrap_or(&0), state };
        // What was there before is being unmapped, and the runtime has used its address again.
        if let Some(before) = self.by_address.insert(address as usize, entry) {
            self.by_key.retain(|known, _| *known == key || !before.keys.contains(known));
        }
        match size {
            Ok(size) => Ok(Mapping { start, size }),
            Err(error) => {
                if self.release(address as usize, stream).is_err() {
                    self.end_use(address as usize, stream);
                }
                Err(error)
            }
        }
    }

    fn release(&mut self, address: usize, stream: &Stream) -> Result<()> {
        let Some(entry) = self.by_address.get_mut(&address) else { return Ok(()) };
        let State::Mapped { users, streams, .. } = &mut entry.state else { return Ok(()) };
        if *users > 1 {
            self.end_use(address, stream);
            return Ok(());
        }
        for before in &*streams {
            order(before, stream)?;
        }
        free(address as *mut c_void, stream)?;
        streams.clear();
        let done = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&done);
        let told = stream.launch_host_fn(move || flag.store(true, Ordering::Release));
        if told.is_err() {
            // Nothing will tell when: what can be had now is that it is.
            done.store(stream.synchronize().is_ok(), Ordering::Release);
        }
        entry.state = State::Unmapping(done);
        Ok(())
    }

    /// Ends a use that was not the last, or could not be.
    fn end_use(&mut self, address: usize, stream: &Stream) {
        /// From here on it is worth looking for streams that are done.
        const MANY: usize = 16;
        let Some(entry) = self.by_address.get_mut(&address) else { return };
        let State::Mapped { users, streams, .. } = &mut entry.state else { return };
        *users -= 1;
        if streams.len() >= MANY {
            streams.retain(|stream| !stream.query().unwrap_or(false));
        }
        if !streams.contains(stream) {
            streams.push(stream.clone());
        }
    }
}

fn free(address: *mut c_void, stream: &Stream) -> Result<()> {
    if stream.is_elsewhere() {
        // Another thread's per-thread stream cannot be reached: its work is waited for instead.
        stream.device().synchronize()?;
        return free(address, &Stream::per_thread(stream.device()));
    }
    let _current = stream.enter("cudaFreeAsync")?;
    // SAFETY: the memory was imported, is freed only here, and all its uses were ordered on this stream.
    unsafe { call!(cudaFreeAsync(address, stream.raw())) }
}
