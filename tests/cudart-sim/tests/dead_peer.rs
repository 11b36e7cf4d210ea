//! Streams that wait for the event of a peer that was killed. They are stuck for the life of this process, so these tests
//! have a program of their own.

mod common;
#[path = "common/peer.rs"]
mod peer;

use std::time::Duration;

use common::*;
use cudart_sim::cuda::*;
use peer::*;

#[test]
fn an_event_of_a_dead_peer_holds_up_for_ever_what_it_had_not_finished() {
    let _alone = alone();
    for (role, wait_first) in [("recorder_done", true), ("recorder_busy", true), ("recorder_busy", false)] {
        let mut peer = Peer::start(role);
        let event = open_event(peer.socket.receive()).unwrap();
        let (stream, other) = (stream(), stream());
        // SAFETY: the handles are live.
        unsafe {
            if wait_first {
                ok(cudaStreamWaitEvent(stream, event, 0));
            }
            peer.kill();
            if !wait_first {
                ok(cudaStreamWaitEvent(stream, event, 0));
            }
            if role == "recorder_done" {
                assert!(settles(stream, Duration::from_secs(20)));
                ok(cudaEventQuery(event));
            } else {
                assert!(!settles(stream, Duration::from_millis(200)));
                assert_eq!(cudaEventQuery(event), cudaError::cudaErrorNotReady);
                // Another stream is not concerned until it records the event itself.
                ok(cudaMemGetInfo(&mut 0, &mut 0));
                assert!(settles(other, Duration::from_secs(20)));
                ok(cudaEventRecord(event, other));
                assert!(!settles(other, Duration::from_millis(200)));
            }
            ok(cudaEventDestroy(event));
            ok(cudaStreamDestroy(stream));
            ok(cudaStreamDestroy(other));
        }
    }
}

fn record(mut socket: Socket, busy: bool) {
    let (event, stream) = (shared_event(), stream());
    let gate = busy.then(|| Gate::on(stream));
    // SAFETY: the handles are live.
    unsafe {
        ok(cudaEventRecord(event, stream));
        if !busy {
            ok(cudaStreamSynchronize(stream));
        }
    }
    socket.send(handle(event));
    std::thread::sleep(Duration::from_secs(60));
    drop(gate);
}

#[test]
fn recorder_done() {
    as_peer("recorder_done", |socket| record(socket, false));
}

#[test]
fn recorder_busy() {
    as_peer("recorder_busy", |socket| record(socket, true));
}
