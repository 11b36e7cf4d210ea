//! The same through a session.

use std::os::unix::net::UnixStream;

use cuda_mempool::ipc::{Exporter, Importer, Lease, SharedBuffer};
use cuda_mempool::{MemPool, Stream};

use crate::measure::{
    give, now, take, Answers, Outcome, FIRST, FIRST_HANDOVER, MEGABYTE, REPEATED, REPEATED_HANDOVER, THERE_AND_BACK,
};
use crate::ring::{self, Ring};

const SUBJECT: &str = "session";

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

    Ring::new(stream, pool)?.session("session", &exporter, words, answers)?;
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
    ring::go_round(stream, &importer, words)?;
    Ok(importer.close()?)
}
