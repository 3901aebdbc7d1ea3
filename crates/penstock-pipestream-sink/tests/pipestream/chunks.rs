use bytes::Bytes;
use penstock_pipestream::{ChunkInfo, EntityHeader};
use penstock_pipestream_net::{EntityDraft, Payload, Status};

use crate::raw::{RawClient, header, pending, run};
use crate::support::{Pair, block, draft, files, id, log};

fn bytes(size: usize) -> Vec<u8> {
    (0..size).map(|n| (n % 253) as u8).collect()
}

fn chunk(whole: &EntityHeader, total_chunks: u32, chunk_index: u32, chunk_offset: u64) -> EntityHeader {
    EntityHeader { chunk_info: Some(ChunkInfo { total_chunks, chunk_index, chunk_offset }), ..whole.clone() }
}

#[test]
fn a_payload_sent_in_chunks_is_one_file() {
    let pair = Pair::with_sink();
    let session = pair.connect();
    let payload = bytes(1_000_000);
    for size in [1_000_000, 300_000, 99_999] {
        let draft = EntityDraft { chunk_size: Some(size), ..draft("application/octet-stream") };
        let ticket = block(session.send(draft, Payload::bytes(payload.clone()))).unwrap();
        let resolution = block(session.wait_resolved(ticket.key)).unwrap();
        assert_eq!(resolution.status, Status::Complete, "{resolution:?}");
    }
    block(session.close()).unwrap();
    let session = id(&session);
    assert_eq!(log(&pair.sink(), &session).len(), 4);
    for entity in 1..=3 {
        assert!(std::fs::read(pair.sink().join(format!("{session}/0/{entity}"))).unwrap() == payload);
    }
}

#[test]
fn chunks_may_come_in_any_order() {
    let pair = Pair::with_sink();
    run(async {
        let mut peer = RawClient::agreed(&pair).await;
        let payload = bytes(1_000);
        let whole = header(1, &payload);
        peer.send_frames(&[pending(1)]).await;
        for index in [3_u32, 0, 2, 1] {
            let offset = index as usize * 250;
            peer.stream(&chunk(&whole, 4, index, offset as u64), &payload[offset..offset + 250]).await;
        }
        peer.expect_complete(1).await;
        peer.close().await;
    });
    let found = files(&pair.sink());
    assert_eq!(found.len(), 2);
    assert!(std::fs::read(pair.sink().join(&found[0])).unwrap() == bytes(1_000));
}

#[test]
fn wrong_chunks_fail_their_entity_only() {
    // The index, offset and size of each of two chunks.
    let cases: [&[(u32, usize, usize)]; 5] = [
        &[(0, 0, 500), (0, 500, 500)],
        &[(0, 0, 500), (1, 400, 600)],
        &[(0, 0, 400), (1, 500, 500)],
        &[(0, 0, 500), (2, 500, 500)],
        &[(0, 0, 500), (1, 500, 501)],
    ];
    for case in cases {
        let pair = Pair::with_sink();
        run(async {
            let mut peer = RawClient::agreed(&pair).await;
            let payload = bytes(2_000);
            let whole = header(1, &payload[..1_000]);
            peer.send_frames(&[pending(1), pending(2)]).await;
            for (index, offset, length) in case.iter().copied() {
                peer.stream(&chunk(&whole, 2, index, offset as u64), &payload[offset..offset + length]).await;
            }
            peer.expect_failed(1, 0x05).await;
            peer.stream(&header(2, b"next"), b"next").await;
            peer.expect_complete(2).await;
            peer.close().await;
        });
        let found = files(&pair.sink());
        assert_eq!(found.len(), 2, "{found:?}");
    }
}

#[test]
fn chunks_that_do_not_make_the_payload_are_an_integrity_error() {
    let pair = Pair::with_sink();
    run(async {
        let mut peer = RawClient::agreed(&pair).await;
        let payload = bytes(1_000);
        let mut whole = header(1, &payload);
        whole.checksum = Bytes::from(vec![9; 32]);
        peer.send_frames(&[pending(1)]).await;
        peer.stream(&chunk(&whole, 2, 0, 0), &payload[..500]).await;
        peer.stream(&chunk(&whole, 2, 1, 500), &payload[500..]).await;
        peer.expect_failed(1, 0x04).await;
        peer.close().await;
    });
    assert_eq!(files(&pair.sink()).len(), 1);
}
