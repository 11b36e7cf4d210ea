//! A ring of two buffers: while the importer copies one, the other is on its way. Beside it plain copies, in one process,
//! and the same ring by the C calls.
//!
//! Work of two processes takes turns on a GPU, and to change over takes longer than a copy. So it matters whether the
//! exporter's streams have something to do in every round: that is asked in three forms, the first without. As there is one
//! copy for each block, the importer's, plain copies are what that form can come up to.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::ptr::null_mut;

use cuda_mempool::host::{NumaAllocator, PinnedBox};
use cuda_mempool::ipc::{Exporter, Importer, Lease, Options, SharedBuffer};
use cuda_mempool::sys::{self, cudaEvent_t, cudaMemPool_t};
use cuda_mempool::{DeviceBuffer, DeviceSliceMut, MemPool, Stream};

use crate::bare;
use crate::measure::{now, Answers, Outcome};

const BLOCK: usize = 64 << 20;
/// Blocks that go round in one measurement, and how many of those there are.
const BLOCKS: usize = 200;
const RUNS: usize = 5;
const STAMP: usize = 256;
/// The tag of the block that ends a measurement.
const LAST: u64 = 1;

/// What the exporter does with a block before it hands it over.
#[derive(Clone, Copy)]
enum Stamp {
    Nothing,
    Copy,
    Kernel,
}

const STAMPS: [(Stamp, &str); 3] = [
    (Stamp::Nothing, "ring of two"),
    (Stamp::Copy, "ring of two, written to by a copy"),
    (Stamp::Kernel, "ring of two, written to by a kernel"),
];

/// The exporter's side: its stream and pool, and what it writes by a copy.
pub(crate) struct Ring<'a> {
    stream: &'a Stream,
    pool: &'a MemPool,
    stamp: PinnedBox<[u8]>,
}

impl<'a> Ring<'a> {
    pub(crate) fn new(stream: &'a Stream, pool: &'a MemPool) -> Outcome<Self> {
        let pinned = NumaAllocator::builder().near(stream.device()).build()?;
        Ok(Self { stream, pool, stamp: PinnedBox::zeroed(&pinned, STAMP)? })
    }

    fn block(&self) -> Outcome<DeviceBuffer<u8>> {
        Ok(self.pool.alloc_zeroed::<u8>(self.stream, BLOCK)?)
    }

    fn write(&self, how: Stamp, mut block: DeviceSliceMut<'_, u8>) -> Outcome {
        match how {
            Stamp::Nothing => Ok(()),
            // SAFETY: the ring keeps the stamp until its stream is done, and nobody writes to it.
            Stamp::Copy => Ok(unsafe { block.copy_from_host_async(&self.stamp) }?),
            Stamp::Kernel => Ok(block.fill_bytes(1)?),
        }
    }

    /// Copies in this process alone.
    pub(crate) fn plain(&self, answers: &mut Answers) -> Outcome {
        let (source, mut target) = (self.block()?, self.block()?);
        let samples = measure(|| {
            (0..BLOCKS).try_for_each(|_| target.copy_from(&source))?;
            Ok(self.stream.synchronize()?)
        })?;
        for (_, workload) in STAMPS {
            answers.add(workload, BLOCK, "plain copies", &samples);
        }
        Ok(())
    }

    /// The ring by the C calls: events between the processes, and a byte for each block.
    pub(crate) fn bare(&self, words: &mut UnixStream, answers: &mut Answers) -> Outcome {
        let mut blocks = [self.block()?, self.block()?];
        let ready = [bare::event(), bare::event()];
        for (block, &ready) in blocks.iter().zip(&ready) {
            words.write_all(&bare::export_pointer(block.as_ptr().cast()))?;
            words.write_all(&bare::export_event(ready))?;
        }
        let done = [bare::receive_event(words)?, bare::receive_event(words)?];
        let raw = self.stream.as_raw();
        for (how, workload) in STAMPS {
            let samples = measure(|| {
                for round in 0..BLOCKS {
                    let index = round % 2;
                    if round > 1 {
                        words.read_exact(&mut [0])?;
                        bare::wait(raw, done[index]);
                    }
                    self.write(how, blocks[index].slice_mut(..STAMP))?;
                    bare::record(ready[index], raw);
                    words.write_all(&[0])?;
                }
                // The last two, and that the copies are done.
                Ok(words.read_exact(&mut [0; 3])?)
            })?;
            answers.add(workload, BLOCK, bare::SUBJECT, &samples);
        }
        words.read_exact(&mut [0])?;
        self.stream.synchronize()?;
        done.into_iter().chain(ready).for_each(bare::destroy);
        Ok(())
    }

    /// The ring by a session whose exporter leaves its streams out of it: they have work in no other round than those in
    /// which they write.
    pub(crate) fn by_host(&self, session: UnixStream, words: &mut UnixStream, answers: &mut Answers) -> Outcome {
        let exporter = Exporter::with_options(session, self.pool, &Options::default().host_ordering(true))?;
        self.session("session, the exporter's host waits", &exporter, words, answers)?;
        Ok(exporter.close()?)
    }

    /// The ring by a session.
    pub(crate) fn session(
        &self,
        subject: &str,
        exporter: &Exporter,
        words: &mut UnixStream,
        answers: &mut Answers,
    ) -> Outcome {
        let send = |block: SharedBuffer<u8>, tag| -> Outcome<Lease<_>> {
            Ok(exporter.send_tagged(block, tag).map_err(|(_, error)| error)?)
        };
        let mut blocks = [SharedBuffer::from(self.block()?), SharedBuffer::from(self.block()?)];
        for (how, workload) in STAMPS {
            let mut samples = Vec::new();
            for run in 0..=RUNS {
                // The first maps the blocks, and is not counted.
                let started = now();
                let mut home = blocks.map(Some);
                let mut away = [None, None];
                for round in 0..BLOCKS {
                    let index = round % 2;
                    let mut block = match home[index].take() {
                        Some(block) => block,
                        None => away[index].take().map(Lease::wait).expect("lent before")?,
                    };
                    self.write(how, block.slice_mut(..STAMP))?;
                    away[index] = Some(send(block, if round + 1 == BLOCKS { LAST } else { 0 })?);
                }
                words.read_exact(&mut [0])?;
                let took = now() - started;
                if run > 0 {
                    samples.push(took / BLOCKS as u64);
                }
                let [one, other] = away.map(|lease| lease.expect("lent above").wait());
                blocks = [one?, other?];
                self.stream.synchronize()?;
            }
            answers.add(workload, BLOCK, subject, &samples);
        }
        Ok(())
    }
}

/// Nanoseconds a block, for each run but a first one.
fn measure(mut run: impl FnMut() -> Outcome) -> Outcome<Vec<u64>> {
    run()?;
    let mut samples = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let started = now();
        run()?;
        samples.push((now() - started) / BLOCKS as u64);
    }
    Ok(samples)
}

/// The importer's own memory, which it copies to.
fn own(stream: &Stream) -> Outcome<DeviceBuffer<u8>> {
    Ok(MemPool::default_for(stream.device())?.alloc::<u8>(stream, BLOCK)?)
}

pub(crate) fn bare_importer(stream: &Stream, pool: cudaMemPool_t, words: &mut UnixStream) -> Outcome {
    let own = own(stream)?;
    let raw = stream.as_raw();
    let (mut blocks, mut ready) = ([null_mut(); 2], [null_mut::<_>() as cudaEvent_t; 2]);
    for index in 0..2 {
        blocks[index] = bare::receive_pointer(words, pool)?;
        ready[index] = bare::receive_event(words)?;
    }
    let done = [bare::event(), bare::event()];
    for done in done {
        words.write_all(&bare::export_event(done))?;
    }
    for _ in 0..STAMPS.len() * (RUNS + 1) {
        for round in 0..BLOCKS {
            let index = round % 2;
            words.read_exact(&mut [0])?;
            bare::wait(raw, ready[index]);
            let kind = sys::cudaMemcpyKind::cudaMemcpyDeviceToDevice;
            // SAFETY: both are of that length; the events order the copy.
            bare::check(unsafe {
                sys::cudaMemcpyAsync(own.as_ptr().cast_mut().cast(), blocks[index], BLOCK, kind, raw)
            });
            bare::record(done[index], raw);
            words.write_all(&[0])?;
        }
        stream.synchronize()?;
        words.write_all(&[0])?;
    }
    for block in blocks {
        // SAFETY: the memory was imported, and is not used again.
        bare::check(unsafe { sys::cudaFreeAsync(block, raw) });
    }
    stream.synchronize()?;
    done.into_iter().chain(ready).for_each(bare::destroy);
    Ok(words.write_all(&[0])?)
}

/// The other end of [`Ring::by_host`].
pub(crate) fn importer(stream: &Stream, session: UnixStream, words: &mut UnixStream) -> Outcome {
    let importer = Importer::new(session, stream)?;
    go_round(stream, &importer, words)?;
    Ok(importer.close()?)
}

/// The other end of [`Ring::session`].
pub(crate) fn go_round(stream: &Stream, importer: &Importer, words: &mut UnixStream) -> Outcome {
    let mut own = own(stream)?;
    while let Some(block) = importer.recv::<u8>()? {
        let last = block.tag() == LAST;
        own.copy_from(block.as_slice())?;
        drop(block);
        if last {
            stream.synchronize()?;
            words.write_all(&[0])?;
        }
    }
    Ok(())
}
