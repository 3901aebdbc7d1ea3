use penstock_net::pipestream::*;
use penstock_net::runtime::wait;
use crate::support::*;
#[test]
fn dbg() {
    let pair = Pair::with_sink();
    let session = pair.connect();
    let mut keys = std::collections::BTreeSet::new();
    for batch in 0..40_u32 {
        let items = (0..250_u32).map(|n| (draft("application/octet-stream"), Payload::bytes((batch * 250 + n).to_be_bytes().repeat(256)))).collect();
        for t in block(session.send_many(items)) { keys.insert(t.unwrap().key.entity); }
    }
    loop {
        match wait(session.resolutions(1000), Some(std::time::Instant::now() + std::time::Duration::from_secs(3)), &mut || Ok(())) {
            Ok(b) => for (k, r) in b.unwrap() { assert_eq!(r.status, Status::Complete); keys.remove(&k.entity); },
            Err(_) => break,
        }
        if keys.is_empty() { return; }
    }
    println!("missing {keys:?} {:?} {:?}", pair.server.counters(), pair.client.counters());
    loop {
        let e = wait(session.events(100000), Some(std::time::Instant::now() + std::time::Duration::from_secs(1)), &mut || Ok(()));
        let Ok(Ok(e)) = e else { break };
        for ev in e.events { if let Event::Status{key,..} = &ev { if keys.contains(&key.entity) { println!("{ev:?}"); } } else if !matches!(ev, Event::Resolved{..}) { println!("{ev:?}"); } }
    }
    panic!();
}
