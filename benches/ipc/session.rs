//! The same through a session, and a ring of two buffers beside a plain copy.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use cuda_mempool::ipc::{Exporter, Importer, Lease, SharedBuffer};
use cuda_mempool::{MemPool, Stream};

use crate::measure::{
    give, now, take, Answers, Outcome, FIRST, FIRST_HANDOVER, MEGABYTE, REPEATED, REPEATED_HANDOVER, RING,
    THERE_AND_BACK,
};

const SUBJECT: &str = "session";

const BLOCK: usize = 64 << 20;
const BLOCKS: usize = 200;

fn send(exporter: &Exporter, buffer: impl Into<SharedBuffer<u8>>, tag: u64) -> Outcome<Lease<SharedBuffer<u8>>> {
    Ok(exporter.send_tagged(buffer, tag).map_err(|(_, error)| error)?)
}

pub(crate) fn exporter(
    stream: &Stream,
    pool: &MemPool,
    session: UnixStream,
    words: &mut UnixStream,
    answers: &mut Answers,
) -> Outcome {
    let exporter = Exporter::new(session, pool)?;
    let fresh = || {
        let buffer = pool.alloc::<u8>(stream, MEGABYTE)?;
        stream.synchronize()?;
        Ok::<_, cuda_mempool::Error>(buffer)
    };
    // Brings the pool over.
    drop(send(&exporter, fresh()?, 0)?.wait()?);

    for _ in 0..FIRST {
        let buffer = fresh()?;
        drop(send(&exporter, buffer, now())?.wait()?);
    }
    answers.add(FIRST_HANDOVER, MEGABYTE, SUBJECT, &take(words, FIRST)?);

    let mut buffer: SharedBuffer<u8> = fresh()?.into();
    let mut both_ways = Vec::with_capacity(REPEATED);
    for _ in 0..=REPEATED {
        let started = now();
        buffer = send(&exporter, buffer, started)?.wait()?;
        both_ways.push(now() - started);
    }
    both_ways.remove(0);
    stream.synchronize()?;
    answers.add(REPEATED_HANDOVER, MEGABYTE, SUBJECT, &take(words, REPEATED)?);
    answers.add(THERE_AND_BACK, MEGABYTE, SUBJECT, &both_ways);
    drop(buffer);

    ring(stream, pool, &exporter, words, answers)?;
    Ok(exporter.close()?)
}

pub(crate) fn importer(stream: &Stream, session: UnixStream, words: &mut UnixStream) -> Outcome {
    let importer = Importer::new(session, stream)?;
    let next = || importer.recv::<u8>().map(|buffer| buffer.expect("the exporter goes on"));
    drop(next()?);
    // The first of the repeated ones is a new buffer, and not counted.
    for (uncounted, count) in [(0, FIRST), (1, REPEATED)] {
        for _ in 0..uncounted {
            drop(next()?);
        }
        let mut samples = Vec::with_capacity(count);
        for _ in 0..count {
            let buffer = next()?;
            samples.push(now() - buffer.tag());
        }
        give(words, &samples)?;
    }
    let mut own = MemPool::default_for(stream.device())?.alloc::<u8>(stream, BLOCK)?;
    while let Some(buffer) = importer.recv::<u8>()? {
        let last = buffer.tag() == BLOCKS as u64;
        own.copy_from(buffer.as_slice())?;
        drop(buffer);
        if last {
            stream.synchronize()?;
            words.write_all(&[0])?;
        }
    }
    drop(own);
    Ok(importer.close()?)
}

/// Two buffers go round: while the importer copies one, the other is on its way.
fn ring(
    stream: &Stream,
    pool: &MemPool,
    exporter: &Exporter,
    words: &mut UnixStream,
    answers: &mut Answers,
) -> Outcome {
    let block = || pool.alloc_zeroed::<u8>(stream, BLOCK);
    let (source, mut target) = (block()?, block()?);
    let mut plain = || {
        let started = Instant::now();
        for _ in 0..BLOCKS {
            target.copy_from(&source)?;
        }
        stream.synchronize()?;
        Ok::<_, cuda_mempool::Error>(started.elapsed())
    };
    plain()?;
    let plain = plain()?;
    drop((source, target));

    let mut buffers = [Some(SharedBuffer::from(block()?)), Some(SharedBuffer::from(block()?))];
    for buffer in &mut buffers {
        let mapped = send(exporter, buffer.take().expect("there"), 0)?;
        *buffer = Some(mapped.wait()?);
    }
    stream.synchronize()?;
    let started = Instant::now();
    let mut away = buffers.map(|buffer| buffer.map(|buffer| send(exporter, buffer, 0)));
    for round in 2..BLOCKS {
        let lease = away[round % 2].take().expect("there")?;
        let mut buffer = lease.wait()?;
        // As a producer would, it writes: a stamp, so that it is the copies that are timed.
        buffer.slice_mut(..256).fill_bytes(round as u8)?;
        away[round % 2] = Some(send(exporter, buffer, round as u64 + 1));
    }
    words.read_exact(&mut [0])?;
    let ring = started.elapsed();
    for lease in away.into_iter().flatten() {
        drop(lease?.wait()?);
    }
    let of_block = |time: std::time::Duration| [time.as_nanos() as u64 / BLOCKS as u64];
    answers.add(RING, BLOCK, "plain copies", &of_block(plain));
    answers.add(RING, BLOCK, SUBJECT, &of_block(ring));
    Ok(())
}
