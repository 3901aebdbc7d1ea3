//! Packets of every size that may be requested carry payloads, and no session hangs.

use penstock_pipestream_net::{Error, Misuse, Payload, SessionOptions, Status};

use crate::support::{Pair, block, draft};

fn options(mtu: u16) -> SessionOptions {
    SessionOptions { mtu: Some(mtu), ..SessionOptions::default() }
}

#[test]
fn every_size_of_packets_carries_payloads() {
    let data: Vec<u8> = (0..4_000_000_u32).map(|n| (n % 251) as u8).collect();
    for mtu in [1_200, 1_452, 4_000, 6_500, 6_551, 8_900, 8_952, 9_000] {
        let pair = Pair::with_options(|server| server.session.mtu = Some(mtu));
        let session = pair.connect_with(options(mtu));
        for _ in 0..3 {
            let sent = block(session.send(draft("x/y"), Payload::bytes(data.clone()))).unwrap();
            assert_eq!(block(session.wait_resolved(sent.key)).unwrap().status, Status::Complete, "{mtu}");
        }
        block(session.close()).unwrap();
    }
}

#[test]
fn the_sender_alone_may_ask_for_larger_packets() {
    let pair = Pair::with_sink();
    let session = pair.connect_with(options(9_000));
    let sent = block(session.send(draft("x/y"), Payload::bytes(vec![7; 8 << 20]))).unwrap();
    assert_eq!(block(session.wait_resolved(sent.key)).unwrap().status, Status::Complete);
    block(session.close()).unwrap();
}

#[test]
fn a_size_that_no_path_carries_is_refused() {
    let pair = Pair::with_sink();
    for wrong in [0, 1_199, 9_001] {
        let refused = block(pair.client.connect(pair.server.local_addr().unwrap(), "localhost", options(wrong)));
        assert!(matches!(&refused, Err(Error::Misuse(Misuse::Mtu { mtu })) if *mtu == i64::from(wrong)), "{refused:?}");
    }
}
