//! The other process of the example `ipc_exporter`, which starts it: the pool is its standard input, a socket its
//! standard output.

use std::error::Error;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use cuda_mempool::ipc::{EventHandle, ImportedPool, Importer, PointerExport};
use cuda_mempool::{Access, Device, Event, Stream};

fn main() -> Result<(), Box<dyn Error>> {
    let mut socket = UnixStream::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    if socket.peer_addr().is_err() {
        println!("This is the other process of ipc_exporter, which starts it: start that.");
        return Ok(());
    }
    let stream = Stream::new(Device::new(0)?)?;
    by_hand(&stream, &mut socket)?;
    in_a_session(&stream, socket)
}

fn by_hand(stream: &Stream, socket: &mut UnixStream) -> Result<(), Box<dyn Error>> {
    let pool = ImportedPool::import_fd(std::io::stdin().as_fd())?;
    pool.set_access(stream.device(), Access::ReadWrite)?;
    let (mut export, mut ready) = ([0; 80], [0; 64]);
    socket.read_exact(&mut export)?;
    socket.read_exact(&mut ready)?;

    // SAFETY: the exporter keeps the event until this process is done.
    let ready = unsafe { Event::open_ipc(&EventHandle::from_bytes(ready), stream.device()) }?;
    // SAFETY: the stream waits for the exporter's work, and the exporter's stream for what is enqueued here, the free
    // included.
    let mut buffer = unsafe { pool.import::<u8>(&PointerExport::from_bytes(&export), stream) }?;
    stream.wait(&ready)?;
    assert!(buffer.as_slice().to_vec()?.iter().all(|&byte| byte == 1), "the exporter's work is there");
    buffer.as_slice_mut().fill_bytes(2)?;
    drop(buffer);
    let finished = Event::builder(stream.device()).interprocess(true).build()?;
    finished.record(stream)?;
    socket.write_all(finished.ipc_handle()?.as_bytes())?;
    // The exporter uses the event until it says so.
    socket.read_exact(&mut [0])?;
    Ok(())
}

fn in_a_session(stream: &Stream, socket: UnixStream) -> Result<(), Box<dyn Error>> {
    let importer = Importer::new(socket, stream)?;
    while let Some(mut buffer) = importer.recv::<u8>()? {
        let round = buffer.tag() as u8;
        buffer.as_slice_mut().fill_bytes(round)?;
    } // dropped: on its way back, behind the fill
    Ok(importer.close()?)
}
