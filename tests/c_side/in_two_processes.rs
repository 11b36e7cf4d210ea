//! What the guide's samples in Rust of two processes use, and what starts the second process: this program again.

pub use std::error::Error;
pub use std::io::{Read, Write};
pub use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
pub use std::os::unix::net::UnixStream;

pub use cuda_mempool::example::kernel;
pub use cuda_mempool::{Device, Stream};

use std::net::Shutdown;
use std::process::{Command, Stdio};
use std::time::Duration;

#[path = "../conformance/support/link.rs"]
#[allow(dead_code)] // frames are not used here
mod link;

use link::Link;

/// What a process does with its end of the socket.
pub type Part = fn(UnixStream, Device) -> Result<(), Box<dyn Error>>;

const PEER: &str = "CUDA_MEMPOOL_SAMPLES_PEER";

/// Does the first part here and the second in another process. `test` names the test that calls this.
#[track_caller]
pub fn run(test: &str, device: Device, ours: Part, theirs: Part) {
    if std::env::var_os(PEER).is_some_and(|peer| peer == test) {
        let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
        return theirs(socket, device).expect("the peer does its part");
    }
    let (socket, its) = UnixStream::pair().unwrap();
    // A peer that is stuck is to be an error, not a test that does not end.
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", test, "--nocapture"]).env(PEER, test);
    let peer = program.stdin(Stdio::from(OwnedFd::from(its))).stdout(Stdio::piped()).spawn().unwrap();
    drop(program); // and with it our copy of the peer's end: if the peer dies, we read the end
    let done = ours(socket, device);
    let output = peer.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    done.expect("this process does its part");
}

pub fn send_fd(channel: &UnixStream, fd: BorrowedFd<'_>) -> std::io::Result<()> {
    Link::new(channel.try_clone()?).send_fd(fd);
    Ok(())
}

pub fn receive_fd(channel: &UnixStream) -> std::io::Result<OwnedFd> {
    Ok(Link::new(channel.try_clone()?).receive_fd())
}

/// Ends when the other process has come here too, with all of its work done. Events can then be destroyed.
pub fn meet(stream: &Stream, channel: &mut UnixStream) -> Result<(), Box<dyn Error>> {
    stream.synchronize()?;
    channel.shutdown(Shutdown::Write)?;
    let rest = channel.read(&mut [0])?;
    assert_eq!(rest, 0, "the other process says nothing more");
    Ok(())
}
