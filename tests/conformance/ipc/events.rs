//! Events between processes, while both are alive.

use crate::support::answer::name;
use crate::support::child::Peer;
use crate::support::ipc::{event_handle, interprocess_event};
use crate::support::link::Link;
use crate::support::prelude::*;

area! {
    isolated: [
        ordinary_event_has_no_handle,
        event_is_not_opened_in_its_own_process,
        all_zero_event_handle_is_not_opened,
        event_holds_up_a_stream_of_another_process,
        event_recorded_by_the_importer_holds_up_the_exporter,
    ],
    roles: [wait_for_the_event, record_the_event, report_on_events],
    questions: [opened_events],
}

fn ordinary_event_has_no_handle() -> Outcome {
    let event = Event::new();
    let mut handle = cudaIpcEventHandle_t { reserved: [0; 64] };
    answers!(cudaIpcGetEventHandle(&mut handle, event.raw()) => cudaErrorInvalidResourceHandle);
    Ok(())
}

fn event_is_not_opened_in_its_own_process() -> Outcome {
    let event = interprocess_event();
    let mut opened = null_mut();
    answers!(cudaIpcOpenEventHandle(&mut opened, event_handle(&event)) => cudaErrorDeviceUninitialized);
    Ok(())
}

fn all_zero_event_handle_is_not_opened() -> Outcome {
    let mut opened = null_mut();
    let zero = cudaIpcEventHandle_t { reserved: [0; 64] };
    answers!(cudaIpcOpenEventHandle(&mut opened, zero) => cudaErrorMapBufferObjectFailed);
    Ok(())
}

fn event_holds_up_a_stream_of_another_process() -> Outcome {
    let stream = Stream::new();
    let event = interprocess_event();
    let mut peer = Peer::start(&AREA, "wait_for_the_event");
    let gate = Gate::close(&stream);
    event.record(&stream);
    peer.link.send_event(&event);
    // The peer's stream waits, and does not run.
    peer.link.wait();
    gate.open();
    stream.synchronize();
    peer.finish()
}

fn wait_for_the_event(link: &mut Link) {
    let event = link.receive_event();
    let stream = Stream::new();
    event.hold_up(&stream);
    assert!(!stream.settles_within(Duration::from_millis(50)));
    assert_eq!(event.query(), cudaError_t::cudaErrorNotReady);
    link.signal();
    stream.synchronize();
    assert_eq!(event.query(), cudaError_t::cudaSuccess);
}

fn event_recorded_by_the_importer_holds_up_the_exporter() -> Outcome {
    let stream = Stream::new();
    let event = interprocess_event();
    let mut peer = Peer::start(&AREA, "record_the_event");
    peer.link.send_event(&event);
    peer.link.wait();
    event.hold_up(&stream);
    assert!(!stream.settles_within(Duration::from_millis(50)));
    peer.link.signal();
    stream.synchronize();
    peer.finish()
}

fn record_the_event(link: &mut Link) {
    let event = link.receive_event();
    let stream = Stream::new();
    let gate = Gate::close(&stream);
    event.record(&stream);
    link.signal();
    link.wait();
    gate.open();
    stream.synchronize();
}

fn opened_events() -> Outcome {
    let event = interprocess_event();
    let (first, second) = (event_handle(&event), event_handle(&event));
    say!("two handles of one event are the same: {}", first.reserved == second.reserved);
    let mut peer = Peer::start(&AREA, "report_on_events");
    peer.link.send_event(&event);
    peer.link.send_event(&event);
    peer.finish()
}

fn report_on_events(link: &mut Link) {
    let (event, again) = (link.receive_event(), link.receive_event());
    say!("opened twice: same handle {}", event.raw() == again.raw());
    say!("query of an event that was never recorded: {}", name(event.query()));
    let stream = Stream::new();
    event.hold_up(&stream);
    say!("a stream that waits for it settles: {}", stream.settles_within(Duration::from_millis(300)));
    let mut handle = cudaIpcEventHandle_t { reserved: [0; 64] };
    say!("its handle: {}", name(ask!(cudaIpcGetEventHandle(&mut handle, event.raw()))));
    let mut time = -5.0;
    say!("elapsed time: {}", name(ask!(cudaEventElapsedTime(&mut time, event.raw(), again.raw()))));
}
