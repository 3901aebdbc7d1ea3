//! `polling COMMAND --option value ...`: what a buffer that is polled gets through; prints JSON.
//!
//! - `bare`: a hyper endpoint with the same answers; prints its address.
//! - `poll`: as many connections as `--connections` ask for ten chunks that are there, or with `--empty 1` for some that are not.
//! - `write`: they write ten chunks a request, each to jobs of its own.
//! - `first`: one connection waits, another writes; how long until the chunk is there, and how long a plain request takes.
//! - `idle`: polls that are held open, until standard input ends.
//! - `download`: one answer in pieces, read to its end.
//!
//! `--system` is `pimp`, `webdis`, `nginx` or `bare`: the same loop, with other requests.

mod bare;
mod client;
mod jobs;

use std::io::{self, Read as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use peers_common::Arguments;
use serde_json::{Value, json};

use crate::client::Client;

/// Chunks of a request.
const TEN: usize = 10;
/// Requests to a job: its indices end at 4,095.
const REQUESTS: usize = 400;

fn main() -> io::Result<()> {
    let arguments = Arguments::read();
    let found = match arguments.command.as_str() {
        "bare" => return bare::serve(arguments.get("size", 1_024)),
        "poll" => poll(&arguments)?,
        "write" => write(&arguments)?,
        "first" => first(&arguments)?,
        "idle" => return idle(&arguments),
        "download" => download(&arguments)?,
        command => return Err(io::Error::other(format!("no such command: {command}"))),
    };
    println!("{found}");
    Ok(())
}

/// Runs a loop on every connection at once, a number of times in all; gives the rate and how long each took.
fn rate<F>(arguments: &Arguments, each: F) -> io::Result<Value>
where
    F: Fn(&mut Client, usize, usize) -> io::Result<()> + Sync,
{
    let (address, system) = (arguments.get("address", String::new()), arguments.get("system", String::new()));
    let (connections, count) = (arguments.get("connections", 16_usize), arguments.get("count", 1_000_usize));
    let taken = AtomicUsize::new(0);
    let began = Instant::now();
    let mut times: Vec<Duration> = thread::scope(|scope| {
        let running: Vec<_> = (0..connections)
            .map(|connection| {
                let (address, taken, each) = (&address, &taken, &each);
                scope.spawn(move || -> io::Result<Vec<Duration>> {
                    let (mut client, mut times) = (Client::connect(address)?, Vec::new());
                    let mut round = 0;
                    while taken.fetch_add(1, Ordering::Relaxed) < count {
                        let began = Instant::now();
                        each(&mut client, connection, round)?;
                        times.push(began.elapsed());
                        round += 1;
                    }
                    Ok(times)
                })
            })
            .collect();
        running.into_iter().map(|run| run.join().expect("no panic")).collect::<io::Result<Vec<_>>>()
    })?
    .concat();
    let seconds = began.elapsed().as_secs_f64();
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e6;
    Ok(json!({"system": system, "count": times.len(), "seconds": seconds, "p50": at(50), "p99": at(99)}))
}

fn expect(client: &mut Client, request: &[u8], status: u16) -> io::Result<Vec<u8>> {
    let answer = client.ask(request)?;
    if answer.status != status {
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        return Err(io::Error::other(format!("{} instead of {status}: {body}", answer.status)));
    }
    Ok(answer.body)
}

/// Each job has a key of its own: requests are limited for each.
fn key(job: &str) -> String {
    format!("writer-of-{job}")
}

fn create(client: &mut Client, job: &str) -> io::Result<()> {
    let request = client.request("PUT", &format!("/pimp/{job}"), Some(&key(job)), b"");
    expect(client, &request, 201).map(drop)
}

fn poll(arguments: &Arguments) -> io::Result<Value> {
    let (address, size) = (arguments.get("address", String::new()), arguments.get("size", 1_024));
    let (system, empty) = (arguments.get("system", String::new()), arguments.get("empty", 0) == 1);
    let (job, mut client) = (jobs::id(0), Client::connect(&address)?);
    let chunks = jobs::chunks(&job, 1, TEN, size);
    let path = match system.as_str() {
        "pimp" => {
            create(&mut client, &job)?;
            let write = client.request(
                "POST",
                &format!("/pimp/{job}/chunks"),
                Some(&key(&job)),
                jobs::write(&chunks).as_bytes(),
            );
            expect(&mut client, &write, 201)?;
            format!("/pimp/{job}?from={}", if empty { 11 } else { 1 })
        }
        "webdis" => {
            let push = client.request("POST", "/", None, jobs::push(&job, &chunks).as_bytes());
            expect(&mut client, &push, 200)?;
            format!("/LRANGE/{job}/{}/-1", if empty { TEN } else { 0 })
        }
        "nginx" => {
            let push = client.request("POST", &format!("/{job}"), None, chunks.join("\n").as_bytes());
            expect(&mut client, &push, 200)?;
            format!("/{job}?from={}", if empty { TEN + 1 } else { 1 })
        }
        _ => if empty { "/empty" } else { "/chunks" }.to_owned(),
    };
    let request = client.request("GET", &path, None, b"");
    let body = expect(&mut client, &request, 200)?;
    let least = if empty { 0 } else { TEN * size };
    if body.len() < least || (empty && body.len() > 100) {
        return Err(io::Error::other(format!("{} bytes came", body.len())));
    }
    rate(arguments, |client, _, _| expect(client, &request, 200).map(drop))
}

fn write(arguments: &Arguments) -> io::Result<Value> {
    let (size, system) = (arguments.get("size", 1_024), arguments.get("system", String::new()));
    rate(arguments, |client, connection, round| {
        let job = jobs::id(1 + connection * 1_000_000 + round / REQUESTS);
        let chunks = jobs::chunks(&job, 1 + round % REQUESTS * TEN, TEN, size);
        match system.as_str() {
            "pimp" => {
                if round % REQUESTS == 0 {
                    create(client, &job)?;
                }
                let path = format!("/pimp/{job}/chunks");
                let request = client.request("POST", &path, Some(&key(&job)), jobs::write(&chunks).as_bytes());
                expect(client, &request, 201).map(drop)
            }
            "webdis" => {
                let request = client.request("POST", "/", None, jobs::push(&job, &chunks).as_bytes());
                expect(client, &request, 200).map(drop)
            }
            "nginx" => {
                let request = client.request("POST", &format!("/{job}"), None, chunks.join("\n").as_bytes());
                expect(client, &request, 200).map(drop)
            }
            _ => {
                let request = client.request("POST", "/", None, jobs::write(&chunks).as_bytes());
                expect(client, &request, 200).map(drop)
            }
        }
    })
}

/// From a write to its delivery to who waits, and a plain request's round trip in turn with it.
fn first(arguments: &Arguments) -> io::Result<Value> {
    let (address, count) = (arguments.get("address", String::new()), arguments.get("count", 100_usize));
    let (mut sender, mut reader) = (Client::connect(&address)?, Client::connect(&address)?);
    let (mut plain, mut waited) = (Vec::new(), Vec::new());
    for round in 0..count {
        let job = jobs::id(1_000_000 + round / 4_000);
        let index = 1 + round % 4_000;
        if index == 1 {
            create(&mut sender, &job)?;
        }
        let status = reader.request("GET", &format!("/pimp/{job}/status"), None, b"");
        let began = Instant::now();
        expect(&mut reader, &status, 200)?;
        plain.push(began.elapsed());
        reader.send(&reader.request("GET", &format!("/pimp/{job}?from={index}&wait=30000"), None, b""))?;
        // Until the buffer holds the poll open.
        thread::sleep(Duration::from_micros(500));
        let chunk = jobs::chunks(&job, index, 1, 100);
        let write =
            sender.request("POST", &format!("/pimp/{job}/chunks"), Some(&key(&job)), jobs::write(&chunk).as_bytes());
        let began = Instant::now();
        sender.send(&write)?;
        let answer = reader.answer()?;
        waited.push(began.elapsed());
        if !String::from_utf8_lossy(&answer.body).contains("\"index\"") {
            return Err(io::Error::other("a poll that waited brought nothing"));
        }
        if sender.answer()?.status != 201 {
            return Err(io::Error::other("a write was not taken"));
        }
    }
    let middle = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e6
    };
    Ok(json!({"waited": middle(&mut waited), "plain": middle(&mut plain)}))
}

fn idle(arguments: &Arguments) -> io::Result<()> {
    let (address, count) = (arguments.get("address", String::new()), arguments.get("count", 10_000_usize));
    let job = jobs::id(0);
    create(&mut Client::connect(&address)?, &job)?;
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        let stream = std::net::TcpStream::connect(&address)?;
        io::Write::write_all(
            &mut &stream,
            format!("GET /pimp/{job}?wait=30000 HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes(),
        )?;
        held.push(stream);
    }
    println!("{}", json!({"held": held.len()}));
    io::stdin().read_to_end(&mut Vec::new()).map(drop)
}

fn download(arguments: &Arguments) -> io::Result<Value> {
    let (address, bytes) = (arguments.get("address", String::new()), arguments.get("bytes", 1_usize << 20));
    let mut client = Client::connect(&address)?;
    let began = Instant::now();
    client.send(&client.request("GET", &format!("/download/{bytes}"), None, b""))?;
    let found = client.download()?;
    let seconds = began.elapsed().as_secs_f64();
    if found.len() != bytes {
        return Err(io::Error::other(format!("{} bytes came", found.len())));
    }
    Ok(json!({"bytes": bytes, "seconds": seconds}))
}
