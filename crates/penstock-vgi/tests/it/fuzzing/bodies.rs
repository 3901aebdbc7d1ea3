//! The checks that the fuzz targets in `/fuzz` do with arbitrary bytes.

use std::sync::Arc;
use std::time::Duration;

use arrow_schema::{DataType, Field, Schema};
use penstock_vgi::external::{Fetched, Pointer, pointer};
use penstock_vgi::http::{ARROW, Config, Request, RequestKind, RequestStart, Response, Service, read_answer};
use penstock_vgi::ipc::{Decoder, Item};
use penstock_vgi::shm_layout::{HEADER, Table};
use penstock_vgi::{
    Batch, Client, Dialect, ErrorKind, Event, Failure, Identity, Limits, Method, MethodKind, Protocol, Refused, Server,
    ServerConfig, Signer,
};

/// Return limits so small that arbitrary bytes reach them.
fn limits() -> Limits {
    Limits { body: 1 << 20, head: 1 << 16, metadata: 1 << 12, pairs: 32, rows: 1 << 16, dictionaries: 1 << 16 }
}

/// Decode IPC streams: the same items and the same error, however they are cut.
pub fn vgi_ipc(input: &[u8]) {
    let Some((cut, bytes)) = input.split_first() else { return };
    assert_eq!(decode(bytes, bytes.len()), decode(bytes, usize::from(*cut)), "items depend on cuts");
}

fn decode(bytes: &[u8], size: usize) -> (Vec<String>, Option<ErrorKind>) {
    let mut decoder = Decoder::new(limits());
    let mut items = Vec::new();
    let mut failed = None;
    for piece in bytes.chunks(size.max(1)) {
        if let Err(error) = decoder.push(piece, &mut items) {
            failed = Some(error.kind());
            break;
        }
    }
    let seen = items.iter().map(|item| match item {
        Item::Schema(schema) => format!("{schema:?}"),
        Item::Batch(batch) => format!("{} {:?}", batch.rows, batch.metadata),
        Item::End => "end".to_owned(),
    });
    (seen.collect(), failed)
}

/// Read the header of a segment: a valid one is written back unchanged, and stays within its segment.
pub fn vgi_shm_header(input: &[u8]) {
    let size = HEADER.saturating_add(4096);
    if let Ok(mut table) = Table::read(input, size) {
        let written = table.write();
        assert_eq!(input.get(20..24).is_some_and(|padding| padding == [0; 4]), input.starts_with(&written));
        if let Some(region) = table.allocate(100) {
            assert!(region.offset >= HEADER && region.offset.saturating_add(region.length) <= size);
        }
    }
}

/// Open what was fetched for a pointer: it is read or rejected, within its limit, and never another pointer.
pub fn vgi_external(input: &[u8]) {
    let (Some(protocol), Some((choice, bytes))) = (protocol(), input.split_first()) else { return };
    let schema = protocol.method(usize::from(*choice) % 3).map(|method| Arc::clone(&method.params));
    let Some(schema) = schema else { return };
    let Some(Ok(pointer)) = Pointer::of(&pointer(&schema, "https://host/object", None)) else { return };
    let fetched = Fetched { bytes: bytes.to_vec(), zstd: choice & 0x80 != 0, took: Duration::ZERO };
    if let Ok(opened) = pointer.open(fetched, &limits(), 1 << 16)
        && let Ok(batch) = opened.batch
    {
        assert!(Pointer::of(&batch).is_none(), "what is behind a pointer is none");
        assert_eq!(batch.schema.fields(), schema.fields());
    }
}

/// Open state tokens: anything that is not our token is rejected, and a token signed with our key is written back
/// unchanged.
pub fn vgi_token(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else { return };
    let dialect = if choice & 1 == 0 { Dialect::Spec } else { Dialect::V0_10 };
    let signer = Signer::new(b"a key of 16 bytes".as_slice(), dialect, 0);
    assert_eq!(signer.open(bytes, &Identity::Anonymous, 0), Err(Refused::Forged));
    let signed = signer.sign(bytes.to_vec(), &Identity::Anonymous);
    if let Ok(token) = signer.open(&signed, &Identity::Anonymous, 0) {
        assert_eq!(signer.seal(&token, &Identity::Anonymous), signed);
    }
}

/// Feed a connection to a server whose methods all fail, and one to a client that has called: neither may panic.
pub fn vgi_connection(input: &[u8]) {
    let Some(protocol) = protocol() else { return };
    let config = ServerConfig { server_id: "fuzz".into(), description: None, limits: limits(), seed: 1 };
    let mut server = Server::new(protocol, config);
    let mut client = Client::new(limits());
    let nothing = Batch::new(Arc::new(Schema::empty()), Vec::new(), 1);
    let called = client.call("nothing", nothing, penstock_vgi::Metadata::new());
    assert!(called.is_ok(), "a new client can call");
    let mut rest = input;
    while !rest.is_empty() {
        let space = server.input().space();
        let count = space.len().min(rest.len());
        let (now, later) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        space.iter_mut().zip(now).for_each(|(to, from)| *to = *from);
        server.input().advance(count);
        rest = later;
        while server.handle_input().is_ok() {
            let Some(event) = server.poll_event() else { break };
            if matches!(event, Event::Call(_) | Event::Input(_)) {
                assert!(server.fail(&Failure::new("ValueError", "no")).is_ok(), "a call can fail");
            }
        }
        server.output().take();
        let mut items = Vec::new();
        if client.input().push(now, &mut items).is_err() || client.handle_input().is_err() {
            return;
        }
        while client.poll_answer().is_some() {}
    }
}

/// Feed a body to a server and to a client: neither may panic, and every request gets a response.
pub fn vgi_http(input: &[u8]) {
    let (Some(protocol), Some((choice, body))) = (protocol(), input.split_first()) else { return };
    let config = Config {
        dialect: if choice & 1 == 0 { Dialect::Spec } else { Dialect::V0_10 },
        limits: limits(),
        token_ttl: 0,
        max_request_bytes: Some(1 << 16),
        upload_urls: true,
        ..Config::new("fuzz", b"a key of 16 bytes")
    };
    let Ok(service) = Service::new(protocol, config).map(Arc::new) else { return };
    let path = ["/add", "/nothing", "/count/init", "/count/exchange", "/__upload_url__/init"]
        .get(usize::from(choice >> 1) % 5);
    let mut headers: penstock_vgi::http::Headers = [("Content-Type", ARROW)].into_iter().collect();
    if choice & 0x80 != 0 {
        headers.push("Content-Encoding", "zstd");
    }
    let path = path.copied().unwrap_or_default().to_owned();
    let answer = Response { status: 200, headers: headers.clone(), body: vec![body.to_vec().into()] };
    // A client's response is read or rejected.
    drop(read_answer(&answer, if choice & 8 == 0 { RequestKind::Header } else { RequestKind::Input }, &limits()));
    let request = Request { method: "POST".into(), path, headers, body: body.to_vec() };
    let status = match service.begin(request) {
        RequestStart::Done(response) => response.status,
        RequestStart::Call(pending) => match pending.accept(Identity::Anonymous, 0) {
            Err(response) => response.status,
            Ok(mut call) => call.fail(false, &Failure::new("ValueError", "no")).map_or(0, |response| response.status),
        },
    };
    assert!(matches!(status, 200 | 400 | 404 | 413 | 415 | 500), "an answer with the status {status}");
}

fn protocol() -> Option<Arc<Protocol>> {
    let params = Arc::new(Schema::new(vec![Field::new("a", DataType::Float64, false)]));
    let empty = Arc::new(Schema::empty());
    let method = |name: &str, kind, params: &Arc<Schema>| Method {
        name: name.to_owned(),
        kind,
        params: Arc::clone(params),
        result: Arc::clone(&empty),
        optional: Vec::new(),
        nulls: Vec::new(),
        header: None,
        is_exchange: None,
        has_return: false,
        doc: None,
        serialized: penstock_vgi::Serialized::default(),
        param_types: None,
        param_defaults: None,
    };
    let methods = vec![
        method("nothing", MethodKind::Unary, &empty),
        method("add", MethodKind::Unary, &params),
        method("count", MethodKind::Stream, &params),
    ];
    Protocol::new("Fuzz", methods).ok().map(Arc::new)
}
