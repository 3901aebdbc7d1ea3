//! The receiving end: takes each entity, verifies it, and says COMPLETE; with `--store` when a sink has it on disk.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use peers_common::{Arguments, end_with_parent, say};
use penstock_io::runtime::block_on;
use penstock_io::tls::{Identity, ServerTls};
use penstock_pipestream_net::{IncomingSessions, Server, ServerOptions, SessionHandle, channel};
use penstock_pipestream_sink::FolderSink;
use serde_json::json;

/// Entities that are taken at a time.
const BATCH: usize = 256;

pub fn run(arguments: &Arguments) {
    end_with_parent();
    let store = PathBuf::from(arguments.get("store", String::new()));
    let kept = !store.as_os_str().is_empty();
    let process = format!("penstock-bench-{}", std::process::id());
    // A server that is started again has the certificate that it had.
    let dir = if kept { store.join("certificate") } else { std::env::temp_dir().join(process) };
    let tls = ServerTls { identity: Identity::Development { dir: dir.clone() }, client_ca: None };
    let somewhere = SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.get("port", 0)));
    let mut options = ServerOptions::new(somewhere.into(), tls);
    options.session = super::sender::options(arguments);
    options.metrics = kept.then(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into());
    if arguments.get("state", 0) == 1 {
        options.state = Some(store.join("state"));
    }
    let (server, sessions) = if kept {
        let sink = FolderSink::open(&store.join("sink"), None).expect("a sink");
        (Server::bind(options, sink).expect("a server"), None)
    } else {
        let (consumer, sessions) = channel(1);
        (Server::bind(options, consumer).expect("a server"), Some(sessions))
    };
    if !kept {
        let _ = std::fs::remove_dir_all(dir);
    }
    say(&json!({
        "address": server.local_addr().expect("an address").to_string(),
        "fingerprint": server.fingerprint().expect("a fingerprint").to_string(),
        "metrics": server.metrics_addr().expect("a server").map(|address| address.to_string()),
    }));
    block_on(serve(sessions)).expect("a runtime");
}

/// Ends with the process that started this one.
async fn serve(sessions: Option<IncomingSessions>) {
    let Some(sessions) = sessions else { return std::future::pending().await };
    while let Some(session) = sessions.next().await {
        take(&session).await;
    }
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
