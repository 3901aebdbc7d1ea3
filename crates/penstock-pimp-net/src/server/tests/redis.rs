//! Buffers that share a Redis. Without a redis-server these tests are skipped with a message.

use std::io::{BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use penstock_io::runtime::block_on;
use penstock_pimp::{Job, Limits, Settings};
use serde_json::json;
use tempfile::TempDir;

use super::{JSON, Server, Service, ServiceConfig, WRITER, ask, chunk, id, metadata, service};
use crate::{Change, RedisStore, Store};

/// A Redis for one test, with a socket in its folder.
struct Redis {
    folder: TempDir,
    child: Child,
}

impl Redis {
    fn start() -> Option<Self> {
        let folder = TempDir::new().expect("a folder");
        match Self::run(&folder) {
            Some(child) => Some(Self { folder, child }),
            None => {
                let _ = writeln!(std::io::stderr(), "NOT TESTED: buffers over Redis; there is no redis-server");
                None
            }
        }
    }

    fn socket(folder: &TempDir) -> PathBuf {
        folder.path().join("redis")
    }

    fn run(folder: &TempDir) -> Option<Child> {
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            "0",
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--daemonize",
            "no",
        ]);
        command.arg("--dir").arg(folder.path()).arg("--unixsocket").arg(Self::socket(folder));
        let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let ready = lines.map_while(Result::ok).any(|line| line.contains("eady to accept connections"));
        assert!(ready, "redis-server has ended");
        Some(child)
    }

    fn url(&self) -> String {
        format!("redis+unix://{}", Self::socket(&self.folder).display())
    }

    fn store(&self) -> Arc<RedisStore> {
        Arc::new(RedisStore::open(&self.url()).expect("it answers"))
    }

    /// Send a command from another client.
    fn tell(&self, command: &[&str]) {
        let client = ::redis::Client::open(self.url()).expect("valid");
        let mut connection = client.get_connection().expect("it answers");
        let (name, arguments) = command.split_first().expect("a command");
        ::redis::cmd(name).arg(arguments).exec(&mut connection).expect("done");
    }

    fn server(&self) -> Server {
        Server::over(service(self.store()), None)
    }

    fn stop(&mut self) {
        self.child.kill().expect("it ran");
        self.child.wait().expect("it has ended");
    }

    fn start_again(&mut self) {
        self.child = Self::run(&self.folder).expect("as before");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn two_buffers_over_one_redis_are_one_buffer() {
    let Some(redis) = Redis::start() else { return };
    let (one, other) = (redis.server(), redis.server());
    let id = id(1);
    let job = format!("/pimp/{id}");
    one.create(id);
    assert_eq!(other.ask("PUT", &job, &[WRITER], b"").status, 200, "it is known there too");
    let address = other.buffer.address();
    let path = format!("{job}?wait=30000");
    let waiting = std::thread::spawn(move || ask(address, "GET", &path, &[], b""));
    while other.service.jobs.waiting(id) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(one.write(id, &[metadata(id, "\"identity\"")]).status, 201);
    assert_eq!(waiting.join().expect("asked").expect("answered").indices(), [0]);
    // Both buffers write the same job at the same time: no write may undo another.
    std::thread::scope(|scope| {
        for (number, server) in [&one, &other, &one, &other].into_iter().enumerate() {
            scope.spawn(move || {
                for round in 0..25 {
                    let index = 1 + u32::try_from(number).expect("few") + 4 * round;
                    let written = server.write(id, &[chunk(id, index, "ab", false)]);
                    assert_eq!((written.status, written.json()), (201, json!({"written": 1})));
                }
            });
        }
    });
    one.write(id, &[chunk(id, 101, "end", true)]);
    let status = other.get(&format!("{job}/status"), &[]).json();
    assert_eq!((&status["state"], &status["chunks"]), (&json!("COMPLETED"), &json!(102)));
    assert_eq!(other.get(&job, &[]).indices(), (0..=101).collect::<Vec<u64>>());
    assert_eq!(other.get(&format!("{job}/raw"), &[]).body, [b"ab".repeat(100), b"end".to_vec()].concat());
    assert_eq!(other.ask("DELETE", &job, &[WRITER], b"").status, 204);
    assert_eq!(one.get(&job, &[]).status, 404);
}

#[test]
fn what_expires_goes_from_redis_by_itself() {
    let Some(redis) = Redis::start() else { return };
    let server = redis.server();
    let job = format!("/pimp/{}", id(1));
    assert_eq!(server.ask("PUT", &job, &[WRITER, JSON], br#"{"ttlMs":400}"#).status, 201);
    server.write(id(1), &[metadata(id(1), "\"identity\"")]);
    let (mut expired, store) = (false, redis.store());
    loop {
        match server.get(&job, &[]).status {
            200 => assert!(!expired),
            410 => expired = true,
            404 => break,
            status => panic!("{status}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(expired);
    // Redis uses its own clock, which may be some milliseconds late.
    while !block_on(store.read(id(1), vec![0], u64::MAX)).expect("runs").expect("readable").is_empty() {
        std::thread::yield_now();
    }
    block_on(store.sweep(u64::MAX / 2)).expect("runs").expect("swept");
    assert_eq!(store.usage().jobs, 0);
}

#[test]
fn a_change_that_was_decided_by_an_older_record_changes_nothing() {
    let Some(redis) = Redis::start() else { return };
    let store = redis.store();
    let now = crate::clock::now();
    let job = || Job::create(now, "key", Settings::default(), &Limits::default()).expect("valid");
    let commit = |was: Option<Job>, job: Option<Job>| {
        block_on(store.commit(id(1), Change { was, job, chunks: Vec::new() })).expect("runs").expect("answered")
    };
    assert!(commit(None, Some(job())));
    assert!(!commit(None, Some(job())), "somebody made it before");
    let mut cancelled = job();
    cancelled.handle_cancel(now, Some("key")).expect("its key");
    assert!(commit(Some(job()), Some(cancelled.clone())));
    assert!(!commit(Some(job()), None));
    assert_eq!(block_on(store.load(id(1))).expect("runs").expect("loads"), Some(cancelled));
}

#[test]
fn what_was_deleted_is_made_by_no_token_at_any_buffer() {
    let Some(redis) = Redis::start() else { return };
    let with_tokens = || {
        let (store, jwt_secret) = (redis.store(), Some(b"secret".to_vec()));
        let config = ServiceConfig { store, limits: Limits::default(), jwt_secret, allow_origin: None };
        Server::over(Service::new(config), None)
    };
    let (one, other) = (with_tokens(), with_tokens());
    let job = format!("/pimp/{}", id(1));
    let until = crate::clock::now().unix_millis() / 1_000 + 200;
    let token = format!("Authorization: Bearer {}", super::keys::token(b"secret", id(1), &format!("\"exp\":{until}")));
    let token = [token.as_str(), JSON];
    let body = json!({"chunks": [metadata(id(1), "\"identity\"")]}).to_string();
    let write = |server: &Server| server.ask("POST", &format!("{job}/chunks"), &token, body.as_bytes()).status;
    assert_eq!(write(&one), 201);
    assert_eq!(other.ask("DELETE", &job, &token, b"").status, 204);
    for server in [&one, &other, &with_tokens()] {
        assert_eq!((write(server), server.get(&job, &[]).status), (404, 404));
    }
    let store = redis.store();
    assert!(block_on(store.load(id(1))).expect("runs").expect("readable").is_some_and(|job| job.is_deleted()));
    assert_eq!(block_on(store.read(id(1), vec![0], u64::MAX)).expect("runs").expect("readable").len(), 0);
    // Anyone may create it again with keys of their choice.
    assert_eq!(other.ask("PUT", &job, &[WRITER, JSON], b"").status, 201);
    assert_eq!(one.get(&job, &[]).status, 200);
}

#[test]
fn a_redis_that_is_gone_is_503_until_it_is_there_again() {
    let Some(mut redis) = Redis::start() else { return };
    let server = redis.server();
    server.create(id(1));
    assert_eq!(server.write(id(1), &[metadata(id(1), "\"identity\"")]).status, 201);
    redis.stop();
    let refused = server.write(id(1), &[chunk(id(1), 1, "x", true)]);
    assert_eq!((refused.status, refused.json()["code"].as_str()), (503, Some("UNAVAILABLE")));
    assert!(refused.header("retry-after").is_some());
    redis.start_again();
    while server.write(id(1), &[chunk(id(1), 1, "x", true)]).status == 503 {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(server.get(&format!("/pimp/{}", id(1)), &[]).indices(), [0, 1], "what was answered with 201 is there");
}

#[test]
fn a_job_whose_chunks_redis_has_evicted_is_lost_at_every_buffer() {
    let Some(redis) = Redis::start() else { return };
    let (one, other) = (redis.server(), redis.server());
    for number in [1, 2] {
        one.create(id(number));
        assert_eq!(one.write(id(number), &[metadata(id(number), "\"identity\"")]).status, 201);
    }
    redis.tell(&["DEL", &format!("pimp:{}:chunks", id(1))]);
    let poll = one.get(&format!("/pimp/{}", id(1)), &[]);
    assert_eq!((poll.status, poll.json()["code"].as_str()), (410, Some("LOST")));
    let write = other.write(id(1), &[chunk(id(1), 1, "x", true)]);
    assert_eq!((write.status, write.json()["code"].as_str()), (410, Some("LOST")));
    assert_eq!(other.get(&format!("/pimp/{}", id(2)), &[]).indices(), [0], "the other job has all of it");
}

#[test]
fn a_redis_without_memory_fails_until_it_has_some() {
    let Some(redis) = Redis::start() else { return };
    let store = redis.store();
    let job = Job::create(crate::clock::now(), "key", Settings::default(), &Limits::default()).expect("valid");
    let commit = || {
        let change = Change { was: None, job: Some(job.clone()), chunks: vec![(1, "x".into())] };
        block_on(store.commit(id(1), change)).expect("runs")
    };
    redis.tell(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(store.failing(), None);
    assert!(commit().is_err());
    for _ in 0..2 {
        assert!(store.failing().is_some_and(|why| why.contains("maxmemory")), "{:?}", store.failing());
        assert!(block_on(store.sweep(0)).expect("runs").is_err(), "a change would be refused");
    }
    redis.tell(&["CONFIG", "SET", "maxmemory", "0"]);
    block_on(store.sweep(0)).expect("runs").expect("sweeps");
    assert!(matches!((store.failing(), commit()), (None, Ok(true))));
}

#[test]
fn the_password_of_a_url_is_not_revealed() {
    let error = RedisStore::open("redis://user:hunter2@127.0.0.1:1/").expect_err("nobody listens there");
    assert!(!error.to_string().contains("hunter2") && error.to_string().contains("127.0.0.1:1"), "{error}");
    assert!(RedisStore::open("http://hunter2@127.0.0.1/").is_err_and(|error| !error.to_string().contains("hunter2")));
    let Some(redis) = Redis::start() else { return };
    assert!(format!("{:?}", redis.store()).contains("RedisStore"));
}
