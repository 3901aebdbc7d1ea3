//! The receiving end: takes each entity, verifies it, and says COMPLETE.

use std::net::{Ipv4Addr, SocketAddr};

use peers_common::{Arguments, end_with_parent, say};
use penstock_net::pipestream::{Server, ServerOptions, SessionHandle, channel};
use penstock_net::runtime::block_on;
use penstock_net::tls::{Identity, ServerTls};
use serde_json::json;

/// Entities that are taken at a time.
const BATCH: usize = 256;

pub fn run(arguments: &Arguments) {
    end_with_parent();
    let dir = std::env::temp_dir().join(format!("penstock-bench-{}", std::process::id()));
    let tls = ServerTls { identity: Identity::Development { dir: dir.clone() }, client_ca: None };
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut options = ServerOptions::new(anywhere, tls);
    options.session = super::sender::options(arguments);
    let (consumer, sessions) = channel(1);
    let server = Server::bind(options, consumer).expect("a server");
    let _ = std::fs::remove_dir_all(dir);
    say(&json!({
        "address": server.local_addr().expect("an address").to_string(),
        "fingerprint": server.fingerprint().expect("a fingerprint").to_string(),
    }));
    block_on(async {
        while let Some(session) = sessions.next().await {
            take(&session).await;
        }
    })
    .expect("a runtime");
}

async fn take(session: &SessionHandle) {
    loop {
        let entities = session.next_entities(BATCH).await.expect("a session");
        if entities.is_empty() {
            return;
        }
        let wrong = session.complete_many(entities).await;
        assert!(wrong.is_ok_and(|wrong| wrong.is_empty()), "a payload is not what its header says");
    }
}
