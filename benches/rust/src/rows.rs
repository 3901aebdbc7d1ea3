//! Sends rows of bytes to a sink from as many threads as there are sessions, as fast as penstock-pipestream-net can.
//!
//! `rows ADDRESS FINGERPRINT ROWS BYTES SESSIONS` prints `{"seconds": S}`, from the first connection to the last close.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use penstock_io::runtime::{block_on, spawn};
use penstock_io::tls::{ClientTls, Trust};
use penstock_pipestream_net::{Client, EntityDraft, Payload, ScopeKey, SessionHandle, SessionOptions, Status};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What rows are sent together, like those of Spark.
const CHUNK_ROWS: usize = 256;
const CHUNK_BYTES: usize = 1 << 20;
/// The memory that rows are sliced out of, like Arrow's.
const SLAB: usize = 8 << 20;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, fingerprint, rows, bytes, sessions] = arguments.as_slice() else {
        return Err("rows ADDRESS FINGERPRINT ROWS BYTES SESSIONS".into());
    };
    let address: SocketAddr = address.parse()?;
    let (rows, bytes, sessions): (usize, usize, usize) = (rows.parse()?, bytes.parse()?, sessions.parse()?);
    let trust = Trust::Fingerprint(fingerprint.parse()?);
    let started = Instant::now();
    let client = Client::new(&ClientTls { trust, identity: None })?;
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..sessions)
            .map(|index| {
                let client = &client;
                let share = rows / sessions + usize::from(index < rows % sessions);
                scope.spawn(move || send(client, address, share, bytes))
            })
            .collect();
        senders.into_iter().try_for_each(|sender| sender.join().map_err(|_| "a sender has died")?)
    })?;
    let seconds = started.elapsed().as_secs_f64();
    writeln!(io::stdout(), "{}", serde_json::json!({ "seconds": seconds }))?;
    Ok(())
}

fn send(client: &Client, address: SocketAddr, rows: usize, size: usize) -> Outcome<()> {
    let session = block_on(client.connect(address, "localhost", SessionOptions::default()))??;
    let collector = spawn(collect(session.clone(), rows))?;
    let slab = Bytes::from(vec![b'x'; SLAB.max(size)]);
    let metadata = BTreeMap::from([("penstock.document".to_owned(), "a.zip".to_owned())]);
    let chunk = (CHUNK_BYTES / size.max(1)).clamp(1, CHUNK_ROWS);
    let mut offset = 0;
    let mut left = rows;
    let mut announcing = None;
    while left > 0 {
        let mut items = Vec::with_capacity(chunk);
        for _ in 0..chunk.min(left) {
            offset = if offset + size > slab.len() { 0 } else { offset };
            let draft = EntityDraft {
                content_type: "application/octet-stream".to_owned(),
                metadata: metadata.clone(),
                ..EntityDraft::default()
            };
            items.push((draft, Payload::bytes(slab.slice(offset..offset + size))));
            offset += size;
        }
        left -= items.len();
        if let Some(announced) = announcing.take() {
            check(block_on(announced)??)?;
        }
        let session = session.clone();
        announcing = Some(spawn(async move { session.send_many(items).await })?);
    }
    if let Some(announced) = announcing {
        check(block_on(announced)??)?;
    }
    block_on(collector)???;
    block_on(session.end_root())??;
    block_on(session.wait_released(ScopeKey { scope: 0, scope_use: 0 }))??;
    block_on(session.close())??;
    Ok(())
}

fn check<T>(announced: Vec<penstock_pipestream_net::Result<T>>) -> Outcome<()> {
    announced.into_iter().try_for_each(|each| each.map(drop).map_err(Into::into))
}

/// Waits until every row is COMPLETE.
async fn collect(session: SessionHandle, rows: usize) -> Outcome<()> {
    let mut complete = 0;
    while complete < rows {
        let outcomes = session.resolutions(CHUNK_ROWS).await?;
        if outcomes.is_empty() || outcomes.iter().any(|(_, outcome)| outcome.status != Status::Complete) {
            return Err("a row is not COMPLETE".into());
        }
        complete += outcomes.len();
    }
    Ok(())
}
