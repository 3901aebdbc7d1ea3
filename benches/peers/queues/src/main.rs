//! `queues submit|cycle SYSTEM ADDRESS COUNT SIZE WINDOW`: what a client of a task queue gets through; prints JSON.
//!
//! The same loop for all systems, with their frames only different: plain sockets, a buffer for what is read, and as many
//! requests in one write as the window has room for.
//!
//! - `submit`: one connection submits, with at most WINDOW requests unanswered. With a window of 1 each is timed.
//! - `cycle`: one connection submits, four workers take tasks and acknowledge them, until all are acknowledged. A worker
//!   sends the acknowledgement and the next request in one write. WINDOW is what a worker of Quicx prefetches.

mod connection;
mod systems;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use serde_json::json;

use crate::connection::Connection;
use crate::systems::System;

const WORKERS: usize = 4;
/// Submits on their way while workers are measured.
const AHEAD: usize = 1_024;

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [mode, system, address, count, size, window] = words.as_slice() else {
        return Err(io::Error::other("queues submit|cycle SYSTEM ADDRESS COUNT SIZE WINDOW"));
    };
    let number = |text: &String| text.parse::<usize>().map_err(io::Error::other);
    let (count, size, window) = (number(count)?, number(size)?.max(8), number(window)?.max(1));
    let system = System::named(system)?;
    let found = match mode.as_str() {
        "submit" if window == 1 => one_by_one(system, address, count, size)?,
        "submit" => {
            let mut connection = Connection::open(address)?;
            let began = Instant::now();
            submit(system, &mut connection, count, size, window)?;
            json!({"count": count, "seconds": began.elapsed().as_secs_f64()})
        }
        "cycle" => cycle(system, address, count, size, window)?,
        _ => return Err(io::Error::other(format!("no such mode: {mode}"))),
    };
    println!("{found}");
    Ok(())
}

/// The payload of a task: its number, and filling.
fn payload(number: usize, size: usize) -> Vec<u8> {
    let mut payload = vec![b'x'; size];
    for (to, from) in payload.iter_mut().zip(format!("{number:08x}").bytes()) {
        *to = from;
    }
    payload
}

/// Submits with so many requests unanswered at the most, in writes of an eighth of them.
fn submit(system: System, connection: &mut Connection, count: usize, size: usize, window: usize) -> io::Result<()> {
    let (mut sent, mut answered) = (0, 0);
    let together = (window / 8).max(1);
    let mut bytes = Vec::new();
    while answered < count {
        while sent < count && sent - answered + together <= window {
            bytes.clear();
            for number in sent..count.min(sent + together) {
                system.submit(&payload(number, size), &mut bytes);
                sent += 1;
            }
            connection.write(&bytes)?;
        }
        system.submitted(connection)?;
        answered += 1;
    }
    Ok(())
}

/// Submits one after the other, each timed.
fn one_by_one(system: System, address: &str, count: usize, size: usize) -> io::Result<serde_json::Value> {
    let mut connection = Connection::open(address)?;
    let mut times = Vec::with_capacity(count);
    let mut bytes = Vec::new();
    let began = Instant::now();
    for number in 0..count {
        bytes.clear();
        system.submit(&payload(number, size), &mut bytes);
        let at = Instant::now();
        connection.write(&bytes)?;
        system.submitted(&mut connection)?;
        times.push(at.elapsed().as_secs_f64() * 1e6);
    }
    let seconds = began.elapsed().as_secs_f64();
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times.get(((times.len() - 1) as f64 * part) as usize).copied();
    Ok(json!({"count": count, "seconds": seconds, "p50": at(0.5), "p99": at(0.99)}))
}

/// From the first submit to the last acknowledgement.
fn cycle(system: System, address: &str, count: usize, size: usize, prefetch: usize) -> io::Result<serde_json::Value> {
    let done = Arc::new(AtomicUsize::new(0));
    let (ended, end) = mpsc::channel();
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        let mut connection = Connection::open(address)?;
        let (closer, done, ended) = (connection.closer()?, Arc::clone(&done), ended.clone());
        system.begin(number, prefetch, &mut connection)?;
        let working = thread::spawn(move || {
            // It ends when its connection is shut down.
            while system.work(number, &mut connection).is_ok() {
                if done.fetch_add(1, Ordering::Relaxed) + 1 == count {
                    // An error means that the caller stopped waiting.
                    let _ = ended.send(Instant::now());
                }
            }
        });
        workers.push((working, closer));
    }
    let mut producer = Connection::open(address)?;
    let began = Instant::now();
    submit(system, &mut producer, count, size, AHEAD)?;
    let last = end.recv().map_err(io::Error::other)?;
    for (working, closer) in workers {
        closer.close();
        working.join().map_err(|_| io::Error::other("a worker panicked"))?;
    }
    Ok(json!({"count": count, "seconds": (last - began).as_secs_f64()}))
}
