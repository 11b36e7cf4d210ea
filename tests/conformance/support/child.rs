//! Peers: further processes of this executable that play a role.

use std::any::Any;
use std::env;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::panic::{self, AssertUnwindSafe};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::fact::{Area, Outcome, Skip};
use super::link::{Link, FAILED};
use super::watchdog::{leave, Watchdog};

/// How long a peer may live, and how long its exit may take.
const LIFE: Duration = Duration::from_secs(60);

const ROLE: &str = "--role";
const PASSED: &[u8] = b"passed";
const SKIPPED: &[u8] = b"skipped";

/// A process that plays a role, killed when this is dropped.
pub struct Peer {
    process: Child,
    pub link: Link,
}

impl Peer {
    /// Starts a process for a role, a fact or a question of an area.
    pub fn start(area: &Area, role: &str) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        // The child's end of the socket is its standard input: no descriptor number to agree on.
        let process = Command::new(env::current_exe().expect("the suite has a path"))
            .arg(ROLE)
            .arg(area.full_name(role))
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .spawn()
            .expect("the suite can be started again");
        Self { process, link: Link::new(ours) }
    }

    /// Waits for the end of the role, and passes on its failure or why it had to be skipped.
    pub fn finish(mut self) -> Outcome {
        let verdict = match self.link.try_receive() {
            Ok(verdict) => verdict,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => panic!("the peer has died: {}", self.exit()),
            Err(error) => panic!("the peer is stuck: {error}"),
        };
        let text = self.link.try_receive().unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        if verdict == SKIPPED {
            return Skip::because(text);
        }
        assert!(verdict == PASSED, "in the peer: {text}");
        let status = self.exit();
        assert!(status.success(), "the peer had done its part, but ended badly: {status}");
        Ok(())
    }

    /// Waits for the process to end by itself.
    pub fn exit(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIFE;
        loop {
            if let Some(status) = self.process.try_wait().expect("the peer is a child of this process") {
                return status;
            }
            assert!(Instant::now() < deadline, "the peer does not end");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the process by SIGKILL, wherever it is.
    pub fn kill(&mut self) {
        self.process.kill().expect("the peer has not been waited for");
        let status = self.process.wait().expect("the peer is a child of this process");
        assert_eq!(status.signal(), Some(libc::SIGKILL), "the peer had ended before it was killed: {status}");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Both fail when the process has ended, which is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Plays the role that the command line names, if it names one, and never returns then.
pub fn play_role(areas: &[Area]) {
    let mut arguments = env::args().skip(1);
    if arguments.next().as_deref() != Some(ROLE) {
        return;
    }
    let wanted = arguments.next().expect("--role is followed by a name");
    end_with_parent();
    let _watchdog = Watchdog::new(&wanted, LIFE);
    let socket = std::io::stdin().as_fd().try_clone_to_owned().expect("the socket is the standard input");
    let mut link = Link::new(UnixStream::from(socket));

    let outcome = panic::catch_unwind(AssertUnwindSafe(|| play(areas, &wanted, &mut link)));
    let (verdict, text) = match outcome {
        Ok(Ok(())) => (PASSED, String::new()),
        Ok(Err(Skip(reason))) => (SKIPPED, reason),
        Err(panic) => (FAILED, message(panic)),
    };
    // A parent that has gone needs no verdict.
    let _ = link.try_send(verdict).and_then(|()| link.try_send(text.as_bytes()));
    if verdict != PASSED {
        leave(1);
    }
    if LEAVES_STUCK_STREAMS.load(Ordering::Relaxed) {
        leave(0);
    }
    std::process::exit(0);
}

/// Says that this process has streams which never finish, so that it must not run the runtime's exit handlers.
pub fn leave_stuck_streams() {
    LEAVES_STUCK_STREAMS.store(true, Ordering::Relaxed);
}

static LEAVES_STUCK_STREAMS: AtomicBool = AtomicBool::new(false);

fn play(areas: &[Area], wanted: &str, link: &mut Link) -> Outcome {
    for area in areas {
        let is_wanted = |name: &str| area.full_name(name) == wanted;
        if let Some((_, role)) = area.roles.iter().find(|(name, _)| is_wanted(name)) {
            role(link);
            return Ok(());
        }
        if let Some((_, fact)) =
            area.facts.iter().chain(area.isolated).chain(area.questions).find(|(name, _)| is_wanted(name))
        {
            return fact();
        }
    }
    panic!("no role {wanted}");
}

/// Has the kernel kill this process when its parent ends.
fn end_with_parent() {
    // SAFETY: changes nothing but that.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// The text of a panic.
pub fn message(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast::<&str>().map_or_else(|_| "a panic without text".into(), |text| (*text).into()),
    }
}
