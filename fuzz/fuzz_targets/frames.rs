//! Frames of a peer, one after the other, as both ends of a session would take them. No CUDA, no socket.
//!
//! `cargo +nightly fuzz run frames`

#![no_main]

use cuda_mempool::ipc::protocol::book::{Conversation, ExporterBook, ExporterSaid, ImporterBook, ImporterSaid};
use cuda_mempool::ipc::protocol::frame::{Frame, LENGTH};
use cuda_mempool::ipc::protocol::nonce::Nonce;
use libfuzzer_sys::fuzz_target;

const SLOTS: u32 = 4096;

fuzz_target!(|data: &[u8]| {
    let ours = Nonce([0x11; 16]);
    let (mut strict, mut exporter, mut importer) =
        (Conversation::new(ours), ExporterBook::new(SLOTS), ImporterBook::new(SLOTS));
    // A few buffers in each state that the exporter can bring about by itself.
    for slot in 0..4 {
        assert_eq!(exporter.enter(), Some(slot));
        let turn = exporter.next_turn(slot);
        if slot > 0 {
            exporter.lend(turn);
        }
    }
    for chunk in data.chunks_exact(LENGTH) {
        let bytes: &[u8; LENGTH] = chunk.try_into().expect("as long");
        let Ok(frame) = Frame::decode(bytes) else { continue };
        assert_eq!(frame.encode(), *bytes, "there is one way to write a frame");
        // The checks of the sequence are left to themselves, so that the books see something.
        let _ = strict.admit(&frame, frame.body.has_fd());
        match exporter.accept(&frame.body) {
            Ok(ImporterSaid::Returned(turn)) => {
                assert!(!exporter.is_lent(turn));
                if turn.slot % 2 == 0 {
                    exporter.retire(turn.slot);
                } else {
                    exporter.lend(exporter.next_turn(turn.slot));
                }
            }
            Ok(ImporterSaid::Unmapped { turn, .. }) => assert!(!exporter.is_lent(turn)),
            Ok(_) | Err(_) => {}
        }
        if let Ok(ExporterSaid::Offered(lend)) = importer.accept(&frame.body) {
            assert!(lend.turn.slot < SLOTS);
            if let Some(fresh) = &lend.fresh {
                assert!(lend.offset + lend.bytes <= fresh.range);
            }
            if lend.tag % 4 > 0 {
                importer.give_back(lend.turn, lend.tag % 4 > 1);
            }
            if lend.tag % 4 == 3 {
                importer.unmap_idle();
            }
        }
    }
});
