//! The two ends of HTTP in memory, connected to each other.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use penstock_vgi::http::{
    ARROW, Call, Config, Headers, Kind, Request, RequestKind, RequestStart, Response, ResponseContent, Service,
    exchange_body, read_answer, request_body,
};
use penstock_vgi::ipc::{self, Output};
use penstock_vgi::{
    Answer, Batch, Dialect, Failure, Identity, Limits, Log, Metadata, Method, MethodKind, Protocol, Serialized,
    Violation, key,
};

const NOW: u64 = 1_000;

fn values() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("value", DataType::Float64, false)]))
}

fn batch(numbers: &[f64]) -> Batch {
    let column: ArrayRef = Arc::new(Float64Array::from(numbers.to_vec()));
    Batch::new(values(), vec![column], numbers.len())
}

fn service(dialect: Dialect) -> Arc<Service> {
    configured(dialect, |_| ())
}

fn configured(dialect: Dialect, change: impl FnOnce(&mut Config)) -> Arc<Service> {
    let method = |name: &str, kind, result: SchemaRef| Method {
        name: name.to_owned(),
        kind,
        params: values(),
        result,
        optional: Vec::new(),
        nulls: Vec::new(),
        header: None,
        is_exchange: None,
        has_return: kind == MethodKind::Unary,
        doc: None,
        serialized: Serialized::default(),
        param_types: None,
        param_defaults: None,
    };
    let result = Arc::new(Schema::new(vec![Field::new("result", DataType::Float64, false)]));
    let methods = vec![
        method("double", MethodKind::Unary, result),
        method("count", MethodKind::Stream, Arc::new(Schema::empty())),
        method("scale", MethodKind::Stream, Arc::new(Schema::empty())),
    ];
    let mut config = Config {
        dialect,
        prefix: "/vgi".into(),
        token_ttl: 10,
        max_request_bytes: Some(1 << 20),
        compression_level: Some(3),
        upload_urls: true,
        ..Config::new("0123456789ab", [7; 32])
    };
    change(&mut config);
    let protocol = Protocol::new("Test", methods).expect("distinct names");
    Arc::new(Service::new(Arc::new(protocol), config).expect("a prefix"))
}

fn post(path: &str, mut body: Output) -> Request {
    let headers: Headers = [("Content-Type", ARROW), ("Accept-Encoding", "gzip, zstd")].into_iter().collect();
    Request { method: "POST".into(), path: path.into(), headers, body: body.concat() }
}

fn call(service: &Arc<Service>, request: Request, now: u64) -> Result<Box<Call>, Response> {
    match service.begin(request) {
        RequestStart::Done(response) => Err(response),
        RequestStart::Call(pending) => pending.accept(Identity::Anonymous, now),
    }
}

fn called(service: &Arc<Service>, request: Request) -> Box<Call> {
    call(service, request, NOW).unwrap_or_else(|response| panic!("{}", response.status))
}

fn begin(method: &str) -> Output {
    request_body(method, batch(&[2.0]), Metadata::new()).expect("writable")
}

fn read(response: &Response) -> ResponseContent {
    read_answer(response, RequestKind::Call, &Limits::default()).expect("readable")
}

fn column(answered: &ResponseContent, at: usize) -> Vec<f64> {
    let batches: Vec<&Batch> = answered
        .answers
        .iter()
        .filter_map(|answer| match answer {
            Answer::Batch(batch) => Some(batch),
            Answer::Log(_) | Answer::End | Answer::Failed(_) => None,
        })
        .collect();
    batches[at].columns[0].as_any().downcast_ref::<Float64Array>().expect("floats").values().to_vec()
}

#[test]
fn a_unary_call_is_answered_behind_its_messages() {
    let service = service(Dialect::Spec);
    let mut call = called(&service, post("/vgi/double", begin("double")));
    assert_eq!((call.kind, call.request.values.len()), (Kind::Unary, 1));
    call.log(Log::new("INFO", "half way", None));
    let answered = read(&call.reply(&batch(&[4.0])).expect("an answer"));
    assert!(matches!(&answered.answers[0], Answer::Log(log) if log.message == "half way"));
    assert_eq!(column(&answered, 0), [4.0]);
}

#[test]
fn an_exchange_goes_on_with_its_token_in_both_dialects() {
    for dialect in [Dialect::Spec, Dialect::V0_10] {
        let service = service(dialect);
        let mut call = called(&service, post("/vgi/scale/init", begin("scale")));
        call.open(&values(), &values(), None, false).expect("a call");
        let mut answered = read(&call.finish(Some(b"one".to_vec()), NOW).expect("an answer"));
        for state in [b"one".as_slice(), b"two"] {
            let token = answered.token.take().expect("a token");
            let body = || exchange_body(batch(&[1.0, 2.0]), &token, false).expect("writable");
            let expired = self::call(&service, post("/vgi/scale/exchange", body()), NOW + 11);
            assert_eq!(expired.err().map(|response| response.status), Some(400));
            let mut call = called(&service, post("/vgi/scale/exchange", body()));
            let resumed = call.resumed.take().expect("a stream");
            assert_eq!((resumed.state.as_slice(), resumed.batch.rows, resumed.cancelled), (state, 2, false));
            assert!(resumed.batch.metadata.is_empty());
            call.open(&resumed.output, &resumed.input, None, false).expect("a call");
            call.emit(batch(&[2.0, 4.0])).expect("open");
            assert!(call.emit(batch(&[1.0])).is_err());
            answered = read(&call.finish(Some(b"two".to_vec()), NOW).expect("an answer"));
            assert_eq!(column(&answered, 0), [2.0, 4.0]);
        }
        // An answer without rows is still an answer.
        let token = answered.token.clone().expect("a token");
        let body = exchange_body(batch(&[]), &token, false).expect("writable");
        let mut call = called(&service, post("/vgi/scale/exchange", body));
        call.open(&values(), &values(), None, false).expect("a call");
        call.emit(batch(&[])).expect("open");
        let response = call.finish(Some(b"two".to_vec()), NOW).expect("an answer");
        let empty = read_answer(&response, RequestKind::Input, &Limits::default()).expect("readable");
        assert!(
            matches!(empty.answers.front(), Some(Answer::Batch(batch)) if batch.rows == 0 && batch.metadata.is_empty())
        );
        let token = answered.token.take().expect("a token");
        let cancel = exchange_body(Batch::empty(&Arc::new(Schema::empty()), Metadata::new()), &token, true);
        let mut call = called(&service, post("/vgi/scale/exchange", cancel.expect("writable")));
        assert!(call.resumed.take().expect("a stream").cancelled);
        call.open(&values(), &values(), None, false).expect("a call");
        assert!(read(&call.finish(None, NOW).expect("an answer")).token.is_none());
    }
}

#[test]
fn an_input_or_an_answer_that_is_an_unresolved_pointer_is_an_error() {
    let service = service(Dialect::Spec);
    for (place, why) in [(key::LOCATION, "behind a URL"), (key::SHM_OFFSET, "in shared memory")] {
        let mut call = called(&service, post("/vgi/scale/init", begin("scale")));
        call.open(&values(), &values(), None, false).expect("a call");
        let token = read(&call.finish(Some(Vec::new()), NOW).expect("an answer")).token.expect("a token");
        let pointer = || Batch::empty(&values(), [(place, "65536")].into_iter().collect());
        let body = exchange_body(pointer(), &token, false).expect("writable");
        let refused = self::call(&service, post("/vgi/scale/exchange", body), NOW).err().expect("no empty batch");
        let answered = read(&refused);
        let Some(Answer::Failed(failure)) = answered.answers.front() else { panic!("{answered:?}") };
        assert!(refused.status == 400 && failure.message.contains(why), "{failure:?}");
    }
    let mut out = Output::new();
    let pointer = Batch::empty(&values(), [(key::SHM_OFFSET, "65536")].into_iter().collect());
    ipc::stream(&values(), [&pointer], &mut out).expect("writable");
    let response = Response { status: 200, headers: Headers::new(), body: out.take() };
    let error = read_answer(&response, RequestKind::Call, &Limits::default()).expect_err("no empty batch");
    assert_eq!(error, Violation::HttpPointer.into());
}

#[test]
fn a_producer_fills_its_answer_or_gives_one_batch_as_its_dialect_says() {
    for (dialect, room) in [(Dialect::Spec, true), (Dialect::V0_10, false)] {
        let service = service(dialect);
        let mut call = called(&service, post("/vgi/count/init", begin("count")));
        call.open(&values(), &Arc::new(Schema::empty()), None, true).expect("a call");
        call.emit(batch(&[1.0])).expect("open");
        assert_eq!(call.has_capacity(), room);
        call.emit(batch(&vec![3.0; 10_000])).expect("open");
        let response = call.finish(Some(b"left".to_vec()), NOW).expect("an answer");
        assert_eq!(response.headers.get("content-encoding"), Some("zstd"));
        let answered = read(&response);
        assert_eq!((column(&answered, 0), column(&answered, 1).len()), (vec![1.0], 10_000));
        assert!(answered.token.is_some());
    }
}

#[test]
fn a_producer_that_fails_keeps_what_it_has_put_out() {
    for (dialect, status) in [(Dialect::Spec, 500), (Dialect::V0_10, 200)] {
        let service = service(dialect);
        let mut call = called(&service, post("/vgi/count/init", begin("count")));
        call.open(&values(), &Arc::new(Schema::empty()), None, true).expect("a call");
        call.emit(batch(&[1.0])).expect("open");
        let response = call.fail(false, &Failure::new("ValueError", "no")).expect("an answer");
        assert_eq!(response.status, status);
        let answered = read(&response);
        assert_eq!(column(&answered, 0), [1.0]);
        assert!(matches!(answered.answers.back(), Some(Answer::Failed(failure)) if failure.error_type == "ValueError"));
        assert!(call.fail(false, &Failure::new("ValueError", "again")).is_err());
    }
}

#[test]
fn guarded_pages_and_the_applications_own_wait_for_authentication() {
    let service = configured(Dialect::Spec, |config| {
        config.guarded_pages = true;
        config.own_pages = vec!["/.well-known/x".into()];
    });
    let get = |path: &str| Request { method: "GET".into(), path: path.into(), ..Request::default() };
    let pending = |request| match service.begin(request) {
        RequestStart::Call(pending) => pending,
        RequestStart::Done(response) => panic!("{}", response.status),
    };
    for path in ["/vgi", "/nothing"] {
        assert!(pending(get(path)).wants_page());
        assert_eq!(pending(get(path)).unauthorized("no", Some("Bearer")).status, 401);
    }
    assert_eq!(call(&service, get("/vgi"), NOW).err().map(|response| response.status), Some(200));
    assert_eq!(call(&service, get("/nothing"), NOW).err().map(|response| response.status), Some(404));
    let own = pending(get("/.well-known/x"));
    assert!(own.wants_own_page());
    let said = own.respond(Response { status: 302, ..Response::default() });
    assert_eq!((said.status, said.headers.get("X-Request-ID").is_some()), (302, true));
    // The health page needs no authentication.
    assert!(matches!(service.begin(get("/vgi/health")), RequestStart::Done(response) if response.status == 200));
}
