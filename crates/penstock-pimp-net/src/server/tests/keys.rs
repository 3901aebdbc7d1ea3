//! Guessed keys, and keys that are signed tokens.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use penstock_pimp::{JobId, Limits};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::{DiskStore, JSON, MemoryStore, Server, Service, ServiceConfig, Store, WRITER, chunk, id, metadata};
use crate::clock::now;

#[test]
fn an_address_that_guesses_keys_has_to_wait() {
    let server = Server::memory();
    let (id, job) = (id(1), format!("/pimp/{}", id(1)));
    server.create(id);
    let from = |address: &str, key: &str| {
        let headers = [format!("Authorization: Bearer {key}"), format!("X-Forwarded-For: 203.0.113.9, {address}")];
        server.ask("DELETE", &job, &[&headers[0], &headers[1]], b"")
    };
    let guess = |number: u32| from("192.0.2.1", &number.to_string());
    let late = (0..200).map(guess).find(|response| response.status == 429).expect("at last");
    assert!(late.header("retry-after").is_some());
    assert_eq!(from("192.0.2.1", "writer").status, 429, "the right key is no faster");
    assert_eq!(from("192.0.2.2", "writer").status, 204, "whom the proxy names besides does not wait for it");
}

#[test]
fn an_address_that_guesses_keys_by_creating_the_job_again_has_to_wait_as_well() {
    let server = Server::memory();
    let job = format!("/pimp/{}", id(1));
    server.create(id(1));
    let make = |address: &str, key: &str| {
        let headers = [format!("Authorization: Bearer {key}"), format!("X-Forwarded-For: {address}")];
        server.ask("PUT", &job, &[&headers[0], &headers[1]], b"").status
    };
    let statuses: Vec<u16> = (0..200).map(|number| make("192.0.2.1", &number.to_string())).collect();
    assert_eq!((statuses[0], statuses[199]), (409, 429));
    assert_eq!(make("192.0.2.1", "writer"), 429, "the right key is no faster");
    assert_eq!(make("192.0.2.2", "writer"), 200);
    let late = (0..200).map(|host| make(&format!("2001:db8::{host:x}"), "x")).filter(|status| *status == 429).count();
    assert!(late > 100, "addresses of one network are one");
    assert_eq!(make("2001:db8:0:1::1", "writer"), 200);
}

/// Return a JWT (HS256) of a job.
pub(super) fn token(secret: &[u8], id: JobId, claims: &str) -> String {
    let pad = |with: u8| {
        let mut block = [with; 64];
        block.iter_mut().zip(secret).for_each(|(byte, secret)| *byte ^= secret);
        block
    };
    let header = r#"{"alg":"HS256","typ":"JWT"}"#;
    let claims = format!(r#"{{"jobId":"{id}",{claims}}}"#);
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(&signed).finalize();
    let mac = Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac))
}

#[test]
fn a_token_counts_until_it_expires_and_a_newer_one_takes_its_place() {
    let (store, limits) = (Arc::new(MemoryStore::new()), Limits::default());
    let config = ServiceConfig { store, limits, jwt_secret: Some(b"secret".to_vec()), allow_origin: None };
    let server = Server::over(Service::new(config), None);
    let at = |seconds: f64| format!("\"exp\":{}", now().unix_millis() as f64 / 1_000.0 + seconds);
    let sign = |id: JobId, claims: &str| token(b"secret", id, claims);
    let write = |id: JobId, index: u32, key: &str| {
        let value = if index == 0 { metadata(id, "\"identity\"") } else { chunk(id, index, "x", false) };
        let body = json!({"chunks": [value]}).to_string();
        let key = format!("Authorization: Bearer {key}");
        server.ask("POST", &format!("/pimp/{id}/chunks"), &[&key, JSON], body.as_bytes()).status
    };
    // None of these creates a job.
    for (claims, status) in [(at(-1.0), 401), (at(3_000.0), 401), (format!("{},\"nbf\":4e9", at(60.0)), 401)] {
        assert_eq!(write(id(1), 0, &sign(id(1), &claims)), status, "{claims}");
    }
    assert_eq!(write(id(1), 0, &token(b"other", id(1), &at(60.0))), 404);
    assert_eq!(write(id(1), 0, &sign(id(2), &at(60.0))), 401);
    // A token of short validity creates the job, and one of longer validity replaces it.
    let (short, long) = (sign(id(1), &at(60.0)), sign(id(1), &at(120.0)));
    assert_eq!((write(id(1), 0, &short), write(id(1), 1, &short)), (201, 201));
    assert_eq!((write(id(1), 1, &long), write(id(1), 2, &short)), (200, 401), "the newer one counts from now on");
    assert_eq!((write(id(1), 2, &long), write(id(1), 3, &sign(id(1), &at(90.0)))), (201, 401));
    // The token expires while the job continues.
    let brief = sign(id(2), &at(0.5));
    assert_eq!(write(id(2), 0, &brief), 201);
    while write(id(2), 0, &brief) != 401 {
        std::thread::yield_now();
    }
    let status = server.get(&format!("/pimp/{}/status", id(2)), &[]);
    assert_eq!(status.json()["state"], json!("ACTIVE"));
    assert_eq!(write(id(2), 1, &sign(id(2), &at(60.0))), 201);
    // After a takeover with an ordinary key, tokens are no longer accepted.
    let bearer = format!("Authorization: Bearer {long}");
    let taken = server.ask("PUT", &format!("/pimp/{}", id(1)), &[&bearer, "If-Match: *"], br#"{"writeKey":"new"}"#);
    assert_eq!((taken.status, write(id(1), 3, &sign(id(1), &at(200.0)))), (200, 401));
    assert_eq!(write(id(1), 3, "new"), 201);
}

#[test]
fn what_was_deleted_or_forgotten_no_token_makes_again() {
    let folder = TempDir::new().expect("a folder");
    let stores: [Arc<dyn Store>; 2] =
        [Arc::new(MemoryStore::new()), Arc::new(DiskStore::open(folder.path()).expect("fresh"))];
    for store in stores {
        let limits = Limits::default();
        let config = ServiceConfig { store, limits, jwt_secret: Some(b"secret".to_vec()), allow_origin: None };
        let server = Server::over(Service::new(config), None);
        let soon = now().unix_millis() / 1_000 + 60;
        for (number, settings) in [(1, r#"{"readKey":"reader"}"#), (2, r#"{"ttlMs":200,"readKey":"reader"}"#)] {
            let (id, job) = (id(number), format!("/pimp/{}", id(number)));
            let key = format!("Authorization: Bearer {}", token(b"secret", id, &format!("\"exp\":{soon}")));
            let chunks = json!({"chunks": [metadata(id, "\"identity\"")]}).to_string();
            let write = || server.ask("POST", &format!("{job}/chunks"), &[&key, JSON], chunks.as_bytes()).status;
            assert_eq!(server.ask("PUT", &job, &[&key, JSON], settings.as_bytes()).status, 201);
            assert_eq!(write(), 201);
            if number == 1 {
                assert_eq!(server.ask("DELETE", &job, &[&key], b"").status, 204);
                assert_eq!((write(), server.get(&job, &[&key]).status, server.get(&job, &[]).status), (404, 404, 404));
                assert_eq!(server.ask("DELETE", &job, &[&key], b"").status, 404);
                assert_eq!(server.service.jobs.store.usage().chunk_bytes, 0);
            } else {
                while server.service.jobs.store.usage().chunk_bytes > 0 {
                    std::thread::yield_now();
                }
                std::thread::sleep(Duration::from_millis(400));
                assert_eq!(write(), 410, "it is known as long as its token counts");
            }
        }
        let again = server.ask("PUT", &format!("/pimp/{}", id(1)), &[WRITER], b"");
        assert_eq!(again.status, 201, "who says with which keys may make it again");
    }
}
