//! The checks that the fuzz targets in `/fuzz` run on arbitrary bytes.
//!
//! The first byte of the input determines how the rest is cut into pieces, so that the fuzzer also finds cuts.

use std::time::Instant;

use penstock_lumberjack::{Accepts, Decoder, Error, Event, Frame, Limits, Server, ServerConfig};
use penstock_wire::ErrorKind;

/// Return limits so small that arbitrary bytes reach them.
fn limits() -> Limits {
    Limits {
        compressed: 1 << 16,
        inflated: 1 << 20,
        key: 64,
        value: 1 << 12,
        pairs: 64,
        data: 1 << 12,
        ..Limits::default()
    }
}

/// Check that a writer's stream decodes to the same frames and the same error however it is cut.
pub fn lumberjack_frames(input: &[u8]) {
    let Some((cut, bytes)) = input.split_first() else { return };
    let whole = decode(bytes, bytes.len());
    let pieces = decode(bytes, usize::from(*cut));
    assert_eq!(whole, pieces, "frames depend on how the stream is cut");
}

/// Return each frame as text, and how the stream ended.
fn decode(bytes: &[u8], size: usize) -> (Vec<String>, Option<(ErrorKind, Option<u64>)>) {
    let mut decoder = Decoder::new(Accepts::Writer, limits());
    let mut frames = Vec::new();
    for piece in bytes.chunks(size.max(1)) {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(format!("{frame:?}")),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.next_frame(), Err::<Option<Frame<'_>>, _>(error.clone()), "an error passed");
                    return (frames, Some((error.kind(), error.offset())));
                }
            }
        }
    }
    (frames, None)
}

/// Feed a reader whose application takes everything after each piece. Every acknowledged event must have been handed
/// over, and at most two windows may wait.
pub fn lumberjack_server(now: Instant, input: &[u8]) {
    let Some((cut, bytes)) = input.split_first() else { return };
    let config = ServerConfig { limits: Limits { window: 100, ..limits() }, ..ServerConfig::default() };
    let mut server = Server::new(now, config);
    let mut handed_over = 0_u64;
    let mut failed: Option<Error> = None;
    for piece in bytes.chunks(usize::from(*cut).max(1)) {
        server.input().extend_from_slice(piece);
        loop {
            let mut take = |_: u32, _: Event<'_>| handed_over += 1;
            let result = server.handle_input(now, 1 << 12, &mut take);
            assert_eq!(server.received(), handed_over, "events were lost or made up");
            assert!(server.received() - server.acknowledged() <= 200, "more than two windows are waited for");
            assert_eq!(server.acknowledge(now, handed_over), Ok(()));
            assert!(failed.is_none() || result.as_ref().err() == failed.as_ref(), "an error passed");
            match result {
                Ok(progress) if progress.more || progress.events > 0 => {}
                Ok(_) => break,
                Err(error) => {
                    assert_eq!(server.acknowledged(), handed_over, "events before an error are acknowledged");
                    assert!(server.poll_timeout().is_none() && !server.wants_input());
                    failed = Some(error);
                    break;
                }
            }
        }
        while server.poll_transmit().is_some() {}
    }
}
