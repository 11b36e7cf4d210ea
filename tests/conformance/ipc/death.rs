//! A stream that waits for another process's event, when that process ends.

use crate::support::answer::name;
use crate::support::child::{leave_stuck_streams, Peer};
use crate::support::ipc::interprocess_event;
use crate::support::link::Link;
use crate::support::prelude::*;

area! {
    isolated: [
        complete_event_before_the_peers_exit,
        complete_event_after_the_peers_exit,
        complete_event_after_the_peers_death,
        complete_event_after_the_peer_destroyed_it,
        unfinished_event_waited_for_before_the_peers_death_never_comes,
        unfinished_event_waited_for_after_the_peers_death_never_comes,
        stuck_stream_is_not_helped_by_recording_or_destroying,
    ],
    roles: [have_done, be_busy, have_never_recorded],
    questions: [event_never_recorded],
}

const A_WHILE: Duration = Duration::from_millis(300);
/// Long enough to call it never.
const LONG: Duration = Duration::from_secs(2);

/// Sends a complete event; destroys it if asked to, and ends.
fn have_done(link: &mut Link) {
    let (stream, event) = (Stream::new(), interprocess_event());
    event.record(&stream);
    stream.synchronize();
    link.send_event(&event);
    if link.receive() == b"destroy" {
        drop(event);
        link.signal();
        link.wait();
    }
}

/// Sends an event behind work that takes longer than this process will live.
fn be_busy(link: &mut Link) {
    let (stream, event) = (Stream::new(), interprocess_event());
    // A kernel where there are some, else a host function.
    let kernels = machine::kernels().ok();
    let gate = kernels.is_none().then(|| Gate::close(&stream));
    if let Some(kernels) = &kernels {
        kernels.spin(stream.raw(), 20_000_000_000).expect("the kernel starts");
    }
    event.record(&stream);
    link.send_event(&event);
    link.wait();
    drop(gate);
}

fn have_never_recorded(link: &mut Link) {
    let event = interprocess_event();
    link.send_event(&event);
    link.wait();
}

fn complete_event_before_the_peers_exit() -> Outcome {
    let mut peer = Peer::start(&AREA, "have_done");
    let (stream, event) = (Stream::new(), peer.link.receive_event());
    event.hold_up(&stream);
    assert!(stream.settles_within(A_WHILE));
    peer.link.send(b"exit");
    peer.finish()?;
    assert!(stream.settles_within(A_WHILE));
    assert_eq!(event.query(), cudaError_t::cudaSuccess);
    Ok(())
}

fn complete_event_after_the_peers_exit() -> Outcome {
    let mut peer = Peer::start(&AREA, "have_done");
    let (stream, event) = (Stream::new(), peer.link.receive_event());
    peer.link.send(b"exit");
    peer.finish()?;
    event.hold_up(&stream);
    assert!(stream.settles_within(LONG));
    assert_eq!(event.query(), cudaError_t::cudaSuccess);
    Ok(())
}

fn complete_event_after_the_peers_death() -> Outcome {
    let mut peer = Peer::start(&AREA, "have_done");
    let (stream, event) = (Stream::new(), peer.link.receive_event());
    peer.kill();
    event.hold_up(&stream);
    assert!(stream.settles_within(LONG));
    assert_eq!(event.query(), cudaError_t::cudaSuccess);
    Ok(())
}

fn complete_event_after_the_peer_destroyed_it() -> Outcome {
    let mut peer = Peer::start(&AREA, "have_done");
    let (stream, event) = (Stream::new(), peer.link.receive_event());
    peer.link.send(b"destroy");
    peer.link.wait();
    event.hold_up(&stream);
    assert!(stream.settles_within(LONG));
    assert_eq!(event.query(), cudaError_t::cudaSuccess);
    peer.link.signal();
    peer.finish()
}

fn unfinished_event_waited_for_before_the_peers_death_never_comes() -> Outcome {
    leave_stuck_streams();
    let mut peer = Peer::start(&AREA, "be_busy");
    let (stream, event) = (Stream::new(), peer.link.receive_event());
    event.hold_up(&stream);
    assert!(!stream.settles_within(A_WHILE));
    peer.kill();
    assert!(!stream.settles_within(LONG));
    assert_eq!(event.query(), cudaError_t::cudaErrorNotReady);
    Ok(())
}

fn unfinished_event_waited_for_after_the_peers_death_never_comes() -> Outcome {
    leave_stuck_streams();
    let mut peer = Peer::start(&AREA, "be_busy");
    let (stream, event) = (Stream::new(), peer.link.receive_event());
    peer.kill();
    event.hold_up(&stream);
    assert!(!stream.settles_within(LONG));
    assert_eq!(event.query(), cudaError_t::cudaErrorNotReady);
    Ok(())
}

fn stuck_stream_is_not_helped_by_recording_or_destroying() -> Outcome {
    leave_stuck_streams();
    let mut peer = Peer::start(&AREA, "be_busy");
    let (stuck, event) = (Stream::new(), peer.link.receive_event());
    event.hold_up(&stuck);
    peer.kill();
    let other = Stream::new();
    let recorded = Event::recorded_on(&other);
    assert!(other.settles_within(A_WHILE), "other streams run on");
    assert_eq!(recorded.query(), cudaError_t::cudaSuccess);

    event.record(&other);
    assert!(!other.settles_within(A_WHILE), "a stream that records the event is stuck too");
    assert!(!stuck.settles_within(A_WHILE));
    assert_eq!(event.query(), cudaError_t::cudaErrorNotReady);

    ok!(cudaEventDestroy(event.raw()));
    std::mem::forget(event);
    assert!(!stuck.settles_within(A_WHILE));
    stuck.destroy();

    let fresh = Stream::new();
    Memory::new(100, &fresh).free();
    assert!(fresh.settles_within(A_WHILE), "a new stream runs");
    // Those that are stuck stay so: nothing may wait for them.
    std::mem::forget((other, fresh, recorded));
    Ok(())
}

fn event_never_recorded() -> Outcome {
    leave_stuck_streams();
    let mut peer = Peer::start(&AREA, "have_never_recorded");
    let (stream, event) = (Stream::new(), peer.link.receive_event());
    say!("query: {}", name(event.query()));
    event.hold_up(&stream);
    say!("a stream that waits for it settles: {}", stream.settles_within(A_WHILE));
    peer.kill();
    say!("after the peer's death: {}, query {}", stream.settles_within(LONG), name(event.query()));
    Ok(())
}
