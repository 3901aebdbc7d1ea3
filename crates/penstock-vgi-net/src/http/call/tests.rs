use std::path::Path;

use arrow_schema::Schema;
use penstock_vgi::http::{ARROW, Config, RequestKind, exchange_body, read_answer, request_body};
use penstock_vgi::{Answer, Limits, Log, Metadata, Method, MethodKind, Protocol, Serialized};

use super::*;
use crate::external::tests::{Failing, batch, fetching, stored, storing, values};

fn service() -> Arc<Service> {
    let method = |name: &str, kind, result: SchemaRef| Method {
        name: name.into(),
        kind,
        params: values(),
        result,
        optional: Vec::new(),
        nulls: Vec::new(),
        header: None,
        is_exchange: Some(true),
        has_return: true,
        doc: None,
        serialized: Serialized::default(),
        param_types: None,
        param_defaults: None,
    };
    let methods = vec![
        method("echo", MethodKind::Unary, values()),
        method("stream", MethodKind::Stream, SchemaRef::new(Schema::empty())),
    ];
    let protocol = Arc::new(Protocol::new("Test", methods).expect("distinct names"));
    Arc::new(Service::new(protocol, Config::new("0123456789ab", [7; 32])).expect("a prefix"))
}

fn go() -> Result<(), crate::Interrupted> {
    Ok(())
}

fn begin(service: &Arc<Service>, path: &str, counters: &Arc<Counters>, external: Option<External>) -> HttpCall {
    let headers: Headers = [("Content-Type", ARROW)].into_iter().collect();
    let prefix = Config::new("", [7; 32]).prefix;
    let request = Request { method: "POST".into(), path: format!("{prefix}/{path}"), headers, body: Vec::new() };
    HttpCall::begin(service, request, String::new(), "192.0.2.1".into(), Arc::clone(counters), external.map(Arc::new))
}

fn echo_request(metadata: Metadata, params: Batch) -> Vec<u8> {
    request_body("echo", params, metadata).expect("writable").concat()
}

/// Return a call whose caller is authenticated.
fn called(service: &Arc<Service>, path: &str, body: Vec<u8>, external: Option<External>) -> HttpCall {
    let call = begin(service, path, &Arc::default(), external);
    call.receive(body).expect("expected");
    call.authenticated(Identity::Anonymous, &mut go).expect("a valid request");
    call
}

fn answer(call: &HttpCall) -> penstock_vgi::http::ResponseContent {
    let response = call.response().expect("answered");
    assert_eq!(response.status, 200);
    read_answer(&response, RequestKind::Call, &Limits::default()).expect("an answer")
}

/// Return the only batch of an answer, fetched from a folder, and the number of log messages stored
/// with it.
fn fetched(content: penstock_vgi::http::ResponseContent, folder: &Path) -> (Batch, usize) {
    let mut batches = content.answers.into_iter().map(|answer| match answer {
        Answer::Batch(batch) => batch,
        answer @ (Answer::Log(_) | Answer::Failed(_) | Answer::End) => panic!("{answer:?}"),
    });
    let (first, None) = (batches.next().expect("a batch"), batches.next()) else { panic!("two batches") };
    assert_eq!(first.rows, 0, "a pointer");
    let received = fetching(folder).receive(first, &mut go).expect("there");
    (received.batch.expect("a batch"), received.logs.len())
}

#[test]
fn a_large_result_lies_in_the_storage_with_the_log_messages_before_it() {
    let (service, folder) = (service(), tempfile::tempdir().expect("a folder"));
    let body = echo_request(Metadata::new(), batch(&[7.0]));
    let call = called(&service, "echo", body, Some(storing(folder.path(), 1)));
    call.with(|call| call.log(Log::new("INFO", "hello", None))).expect("called");
    call.reply(batch(&[7.0])).expect("answered");
    let (batch, logs) = fetched(answer(&call), folder.path());
    assert_eq!((batch.rows, logs, stored(folder.path())), (1, 1, 1));
}

#[test]
fn an_exchange_is_stored_once_and_with_its_token() {
    let (service, folder) = (service(), tempfile::tempdir().expect("a folder"));
    let body = request_body("stream", batch(&[7.0]), Metadata::new()).expect("writable").concat();
    let call = called(&service, "stream/init", body, None);
    call.open(&values(), &values(), None, false).expect("opened");
    call.finish(Some(b"state".to_vec())).expect("answered");
    let token = answer(&call).token.expect("a token");
    let body = exchange_body(batch(&[1.0]), &token, false).expect("writable").concat();
    let call = called(&service, "stream/exchange", body, Some(storing(folder.path(), 1)));
    call.open(&values(), &values(), None, false).expect("opened");
    call.emit(batch(&[2.0])).expect("kept");
    assert_eq!(stored(folder.path()), 0, "its token is not known yet");
    call.finish(Some(b"state".to_vec())).expect("answered");
    let content = answer(&call);
    let (mut batch, _) = fetched(content, folder.path());
    assert!(penstock_vgi::http::StreamToken::take(&mut batch.metadata).is_some());
    assert_eq!((batch.rows, stored(folder.path())), (1, 1));
}

#[test]
fn a_request_behind_a_pointer_reaches_its_method_and_a_refused_one_is_answered() {
    let (service, folder) = (service(), tempfile::tempdir().expect("a folder"));
    let pointer = storing(folder.path(), 0).store(Vec::new(), batch(&[3.0])).expect("stored");
    let body = || echo_request(pointer.metadata.clone(), Batch::empty(&values(), Metadata::new()));
    let call = called(&service, "echo", body(), Some(fetching(folder.path())));
    let value = call.with(|call| call.request.values.first().cloned().flatten()).expect("called");
    assert_eq!(value, batch(&[3.0]).columns.first().cloned());

    let elsewhere = tempfile::tempdir().expect("a folder");
    let counters = Arc::default();
    let refusing = fetching(elsewhere.path()).with_validator(Box::new(Failing::refusing()));
    let call = begin(&service, "echo", &counters, Some(refusing));
    call.receive(body()).expect("expected");
    call.authenticated(Identity::Anonymous, &mut go).expect("it is answered");
    assert!(call.is_done());
    assert_eq!(counters.refusals(), 1);
    assert!(call.response().expect("answered").status >= 400);
}

#[test]
fn each_step_has_its_stage() {
    let (service, counters) = (service(), Arc::default());
    let misuse = |result: Result<()>| {
        let error = result.expect_err("too early or late");
        let crate::Error::Misuse(misuse) = error else { panic!("{error:?}") };
        misuse
    };
    let call = begin(&service, "echo", &counters, None);
    assert_eq!(misuse(call.reply(batch(&[7.0]))), Misuse::NotAuthenticated);
    assert_eq!(misuse(call.response().map(drop)), Misuse::NotAnswered);
    assert!(!call.admit(Box::new(())), "a web server has the body");
    call.receive(echo_request(Metadata::new(), batch(&[7.0]))).expect("expected");
    call.authenticated(Identity::Anonymous, &mut go).expect("a valid request");
    assert_eq!(misuse(call.authenticated(Identity::Anonymous, &mut go)), Misuse::Authenticated);
    assert_eq!(misuse(call.answer(|pending| pending.error(500, "late"))), Misuse::Authenticated);
    assert_eq!(misuse(call.receive(Vec::new())), Misuse::HasBody);
    call.reply(batch(&[7.0])).expect("answered");
    assert_eq!(misuse(call.reply(batch(&[7.0]))), Misuse::Answered);
    assert!(call.is_done() && call.response().is_ok());
    assert_eq!(misuse(call.response().map(drop)), Misuse::Sent);
    assert_eq!(counters.refusals(), 0);
}

#[test]
fn a_caller_who_is_refused_is_counted_and_answered_once() {
    let (service, counters) = (service(), Arc::default());
    let call = begin(&service, "echo", &counters, None);
    call.answer(|pending| pending.unauthorized("who are you?", None)).expect("pending");
    assert_eq!((counters.refusals(), call.response().expect("answered").status), (1, 401));
}
