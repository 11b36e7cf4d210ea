//! Shares memory with another process, which it starts itself (the example `ipc_importer`): first with the parts and
//! events, as CUDA's guide does it in C, then in a session, which looks after order and deaths.
//!
//! `cargo run --example ipc_exporter` (after `cargo build --examples`, which makes the importer too)

use std::error::Error;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use cuda_mempool::ipc::{EventHandle, Exporter, Lease, SharedBuffer};
use cuda_mempool::{Access, Device, Event, HandleTypes, Location, MemPool, Stream};

const LENGTH: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let device = match Device::new(0) {
        Ok(device) => device,
        Err(why) => {
            println!("Skipped: {why}");
            return Ok(());
        }
    };
    share("device", device, Location::Device(device))?;
    match device.host_numa_node()? {
        Some(node) => share("host", device, Location::HostNuma(node))?,
        None => println!("The driver does not name a NUMA node of the host: no pool there."),
    }
    Ok(())
}

fn share(name: &str, device: Device, location: Location) -> Result<(), Box<dyn Error>> {
    let stream = Stream::new(device)?;
    // Handle types make a pool exportable. Devices have no access to pools of the host by themselves.
    let pool =
        MemPool::builder(location).handle_types(HandleTypes::POSIX_FD).grant(device, Access::ReadWrite).build()?;
    println!("A pool on the {name}, shared with another process");
    let (mut importer, mut socket) = start_importer(pool.export_fd()?)?;
    by_hand(&pool, &stream, &mut socket)?;
    in_a_session(&pool, &stream, socket)?;
    let status = importer.wait()?;
    if !status.success() {
        return Err(format!("the importer ended badly: {status}").into());
    }
    stream.synchronize()?;
    println!("  in use at the end: {} bytes", pool.usage()?.used);
    Ok(())
}

/// The importer gets the pool as its standard input and a socket as its standard output.
fn start_importer(pool: OwnedFd) -> Result<(Child, UnixStream), Box<dyn Error>> {
    let (ours, theirs) = UnixStream::pair()?;
    let program: PathBuf = std::env::current_exe()?.with_file_name("ipc_importer");
    let child = Command::new(&program)
        .stdin(Stdio::from(pool))
        .stdout(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .map_err(|error| format!("{}: {error} (cargo build --examples makes it)", program.display()))?;
    Ok((child, ours))
}

/// What a program does that brings its own transport, and orders the streams by events.
fn by_hand(pool: &MemPool, stream: &Stream, socket: &mut UnixStream) -> Result<(), Box<dyn Error>> {
    let ready = Event::builder(stream.device()).interprocess(true).build()?;
    let mut buffer = pool.alloc::<u8>(stream, LENGTH)?;
    buffer.as_slice_mut().fill_bytes(1)?;
    ready.record(stream)?;
    socket.write_all(&buffer.export_pointer()?.to_bytes())?;
    socket.write_all(ready.ipc_handle()?.as_bytes())?;

    // The importer's free comes before ours: its event is recorded behind that.
    let mut finished = [0; 64];
    socket.read_exact(&mut finished)?;
    // SAFETY: the importer keeps the event until it has read the byte below.
    let finished = unsafe { Event::open_ipc(&EventHandle::from_bytes(finished), stream.device()) }?;
    stream.wait(&finished)?;
    let bytes = buffer.to_vec()?;
    assert!(bytes.iter().all(|&byte| byte == 2), "the importer's work is there");
    println!("  by hand: the importer wrote {} bytes, in the order of two events", bytes.len());
    drop((buffer, finished));
    stream.synchronize()?;
    socket.write_all(&[0])?;
    Ok(())
}

/// The same, with everything looked after.
fn in_a_session(pool: &MemPool, stream: &Stream, socket: UnixStream) -> Result<(), Box<dyn Error>> {
    let exporter = Exporter::new(socket, pool)?;
    let mut buffer: SharedBuffer<u8> = pool.alloc_zeroed::<u8>(stream, LENGTH)?.into();
    for round in 1..=3 {
        let lease: Lease<_> = exporter.send_tagged(buffer, round).map_err(|(_buffer, error)| error)?;
        // Nothing has waited for the device so far, and this only waits for the importer's host.
        buffer = lease.wait()?;
    }
    let bytes = buffer.to_vec()?;
    assert!(bytes.iter().all(|&byte| byte == 3), "the importer's work is there");
    println!("  in a session: handed over three times, mapped once");
    drop(buffer);
    Ok(exporter.close()?)
}
