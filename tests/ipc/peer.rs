//! Other processes of this program, each of which plays a role.

use std::env;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A role: its name, and what it does with its two sockets.
pub type Role = (&'static str, fn(Sockets));

/// How long a peer may live.
const LIFE: Duration = Duration::from_secs(60);
const ROLE: &str = "CUDA_MEMPOOL_IPC_ROLE";

/// Both ends have the same: one socket for the session, one for whatever else (a second session, or words).
pub struct Sockets {
    pub session: UnixStream,
    pub other: UnixStream,
}

/// A process that plays a role. Killed when this is dropped.
pub struct Peer {
    process: Child,
}

impl Peer {
    pub fn start(role: &str) -> (Self, Sockets) {
        Self::start_with(role, &[])
    }

    /// With some environment.
    pub fn start_with(role: &str, environment: &[(&str, &str)]) -> (Self, Sockets) {
        Self::start_by(Command::new(env::current_exe().expect("the program has a path")), role, environment)
    }

    /// By a command that runs this program.
    pub fn start_by(mut command: Command, role: &str, environment: &[(&str, &str)]) -> (Self, Sockets) {
        let (session, their_session) = UnixStream::pair().expect("a socket pair");
        let (other, their_other) = UnixStream::pair().expect("a socket pair");
        // The peer finds its ends as its standard input and output.
        let process = command
            .env(ROLE, role)
            .envs(environment.iter().copied())
            .stdin(Stdio::from(OwnedFd::from(their_session)))
            .stdout(Stdio::from(OwnedFd::from(their_other)))
            .spawn()
            .expect("the program can be started again");
        (Self { process }, Sockets { session, other })
    }

    /// Waits until the role is played, which must have gone well.
    pub fn finish(mut self) {
        let status = self.exit();
        assert!(status.success(), "the peer ended badly: {status}");
    }

    /// Waits for the process to end by itself.
    pub fn exit(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIFE;
        loop {
            if let Some(status) = self.process.try_wait().expect("a child of this process") {
                return status;
            }
            assert!(Instant::now() < deadline, "the peer does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the process wherever it is.
    pub fn kill(&mut self) {
        self.process.kill().expect("not waited for yet");
        self.process.wait().expect("a child of this process");
    }

    /// Stops the process without ending it.
    pub fn freeze(&self) {
        // SAFETY: signals a child that was not waited for.
        unsafe { libc::kill(self.process.id() as i32, libc::SIGSTOP) };
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Plays the role that the environment names, if it names one, and does not return then.
pub fn play_role(roles: &[&[Role]]) {
    let Ok(name) = env::var(ROLE) else { return };
    // SAFETY: has the kernel end this process with its parent, and changes nothing else.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let own = |fd: std::os::fd::BorrowedFd<'_>| UnixStream::from(fd.try_clone_to_owned().expect("a descriptor"));
    let sockets = Sockets { session: own(std::io::stdin().as_fd()), other: own(std::io::stdout().as_fd()) };
    // The standard ones would keep the sockets open.
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").expect("/dev/null");
    for standard in [0, 1] {
        // SAFETY: replaces descriptors that nobody in this process has borrowed.
        unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&null), standard) };
    }
    let (_, role) = roles.concat().into_iter().find(|(known, _)| *known == name).expect("a known role");
    role(sockets);
    std::process::exit(0);
}

impl Sockets {
    /// Says a word to the other process.
    pub fn say(&mut self, word: u8) {
        self.other.write_all(&[word]).expect("the peer listens");
    }

    /// Waits for the next word.
    pub fn hear(&mut self) -> u8 {
        let mut word = [0];
        self.other.set_read_timeout(Some(LIFE)).expect("a timeout");
        self.other.read_exact(&mut word).expect("the peer says something");
        word[0]
    }
}
