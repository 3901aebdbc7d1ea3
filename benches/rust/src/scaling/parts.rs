//! The parts of the program, each with what it gives.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use penstock_pipestream::entity_id::MODULUS;
use penstock_pipestream::{EntityIdSpace, EntryKey, Manifest, ManifestLimits, Status};
use penstock_testkit::clock::FakeClock;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::pair::{Pair, Shape, now};
use crate::{Failure, cpu, heap};

/// Passes entities from the beginning to the end of a session.
pub(crate) fn pass(shape: Shape, entities: u64) -> Result<Value, Failure> {
    let before = heap();
    let mut pair = Pair::new(shape)?;
    pair.run(entities)?;
    let count = pair.announced;
    if pair.client.completed != count || pair.server.completed != count {
        return Err(format!("{count} announced, {} completed", pair.client.completed).into());
    }
    let each = count as f64;
    Ok(json!({
        "entities": count,
        "client_ns": pair.client.seconds * 1e9 / each,
        "server_ns": pair.server.seconds * 1e9 / each,
        "announce_bytes": pair.client.control_bytes as f64 / each,
        "status_bytes": pair.server.control_bytes as f64 / each,
        "header_bytes": pair.header_bytes as f64 / each,
        "simulated_seconds": pair.clock.elapsed().as_secs_f64(),
        "bytes_kept": heap() - before,
    }))
}

/// Many sessions, turn by turn: what one sink has when many executors write at once.
pub(crate) fn fleet(sessions: u64, each: u64) -> Result<Value, Failure> {
    // A few turns of the producer, so that the sessions come one after another again and again.
    const STEP: u64 = 100;
    let before = heap();
    let mut pairs = (0..sessions).map(|_| Pair::new(Shape::Flat)).collect::<Result<Vec<_>, _>>()?;
    let idle = heap() - before;
    let mut most = idle;
    for upto in (1..=each / STEP).map(|turn| turn * STEP) {
        for pair in &mut pairs {
            pair.turn(upto)?;
        }
        most = most.max(heap() - before);
    }
    for pair in &mut pairs {
        pair.run(each)?;
    }
    let entities = (sessions * each) as f64;
    let completed: u64 = pairs.iter().map(|pair| pair.client.completed).sum();
    if completed != sessions * each {
        return Err(format!("{completed} completed of {entities}").into());
    }
    Ok(json!({
        "sessions": sessions,
        "entities": completed,
        "client_ns": pairs.iter().map(|pair| pair.client.seconds).sum::<f64>() * 1e9 / entities,
        "server_ns": pairs.iter().map(|pair| pair.server.seconds).sum::<f64>() * 1e9 / entities,
        // Two ends each.
        "idle_bytes": idle as f64 / sessions as f64 / 2.0,
        "busy_bytes": most as f64 / sessions as f64 / 2.0,
    }))
}

/// Entities that stay unresolved, up to the window: the most that a slow sink can make both ends keep.
pub(crate) fn open(entities: u64) -> Result<Value, Failure> {
    let mut pair = Pair::new(Shape::Flat)?;
    pair.completes = false;
    let before = heap();
    while pair.announced < entities && !pair.blocked {
        pair.turn(entities)?;
    }
    let (client, server) = (pair.client.session.open_owned() as u64, pair.server.session.open_received() as u64);
    if client != pair.announced || server != pair.announced {
        return Err(format!("{} announced, {client} and {server} open", pair.announced).into());
    }
    let bytes = (heap() - before) as f64 / pair.announced as f64;
    Ok(json!({"open": pair.announced, "blocked": pair.blocked, "bytes_both_ends": bytes}))
}

/// Parents with children each, opened, sealed and then resolved.
pub(crate) fn manifest(parents: u32, children: u32) -> Result<Value, Failure> {
    let clock = FakeClock::new();
    let before = heap();
    let started = cpu();
    let mut manifest = Manifest::new(ManifestLimits::default());
    for entity in 1..=parents {
        let key = EntryKey { scope: 0, entity };
        manifest.open(now(&clock), key)?;
        for child in 1..=children {
            manifest.add_child(key, child, None)?;
        }
        manifest.seal(key)?;
    }
    let bytes = (heap() - before) as f64 / f64::from(parents);
    let opened = cpu() - started;
    for entity in 1..=parents {
        for child in 1..=children {
            manifest.complete_child(now(&clock), EntryKey { scope: 0, entity }, child, Status::Complete)?;
        }
    }
    let mut resolved = 0;
    while manifest.pop_resolved().is_some() {
        resolved += 1;
    }
    if resolved != parents {
        return Err(format!("{resolved} of {parents} parents are resolved").into());
    }
    let each = 1e9 / f64::from(parents);
    let seconds = cpu() - started;
    let refused = manifest_limit(&clock)?;
    Ok(json!({
        "parents": parents, "children": children, "bytes": bytes, "open_ns": opened * each, "total_ns": seconds * each,
        "refused_at": refused,
    }))
}

/// Opens parents until the manifest refuses.
fn manifest_limit(clock: &FakeClock) -> Result<u32, Failure> {
    let mut manifest = Manifest::new(ManifestLimits::default());
    for entity in 1..MODULUS {
        if let Err(error) = manifest.open(now(clock), EntryKey { scope: 0, entity }) {
            let text = error.to_string();
            return if text.contains("max_entries") { Ok(entity - 1) } else { Err(text.into()) };
        }
    }
    Err("the manifest took every ID".into())
}

/// Assigns and resolves IDs from shortly before the wrap on, a window's worth at a time and from its end, so that the
/// cursor waits for the first one and then moves at once.
pub(crate) fn ids(count: u64) -> Result<Value, Failure> {
    const WINDOW: u32 = 65_536;
    const GROUP: usize = 1_024;
    let start = MODULUS - 1 - (count / 2).min(u64::from(MODULUS) / 2) as u32;
    let mut space = EntityIdSpace::with_start(WINDOW, start, start + 1)?;
    let started = cpu();
    let (mut walked, mut wraps, mut group) = (0, 0, Vec::with_capacity(GROUP));
    while walked < count {
        while group.len() < GROUP {
            let id = space.assign().ok_or("the window is full")?;
            wraps += u32::from(id == 1);
            group.push(id);
        }
        walked += group.len() as u64;
        while let Some(id) = group.pop() {
            space.resolve(id);
        }
        if space.in_flight() != 0 || space.cursor() != space.next_id() {
            return Err(format!("the cursor is {} after {walked} IDs", space.cursor()).into());
        }
    }
    let seconds = cpu() - started;
    Ok(json!({"ids": walked, "wraps": wraps, "ns": seconds * 1e9 / walked as f64}))
}

/// What each end hashes for each byte.
pub(crate) fn hash(bytes: u64) -> Value {
    let piece = vec![0x5a; 64 << 10];
    let started = cpu();
    let mut hasher = Sha256::new();
    let pieces = bytes / piece.len() as u64;
    for _ in 0..pieces {
        hasher.update(black_box(&piece));
    }
    black_box(hasher.finalize());
    json!({"bytes": bytes, "ns": (cpu() - started) * 1e9 / (pieces * piece.len() as u64) as f64})
}

/// Files as a sink writes them: each durable by itself, and all of a batch by one call after they were written.
pub(crate) fn disk(files: u64, dir: &str) -> Result<Value, Failure> {
    let dir = Path::new(dir);
    let payload = [0x5a; 1_024];
    let write = |name: String| -> Result<File, Failure> {
        let mut file = File::create(dir.join(name))?;
        file.write_all(&payload)?;
        Ok(file)
    };
    let started = Instant::now();
    for number in 0..files {
        write(format!("one-{number}"))?.sync_data()?;
    }
    let one = started.elapsed().as_secs_f64();
    let started = Instant::now();
    for number in 0..files {
        write(format!("batch-{number}"))?;
    }
    sync_all(&File::open(dir)?)?;
    let batch = started.elapsed().as_secs_f64();
    for number in 0..files {
        fs::remove_file(dir.join(format!("one-{number}")))?;
        fs::remove_file(dir.join(format!("batch-{number}")))?;
    }
    let each = 1e6 / files as f64;
    Ok(json!({"files": files, "one_us": one * each, "batch_us": batch * each}))
}

#[cfg(target_os = "linux")]
fn sync_all(dir: &File) -> std::io::Result<()> {
    Ok(rustix::fs::syncfs(dir)?)
}

#[cfg(not(target_os = "linux"))]
fn sync_all(dir: &File) -> std::io::Result<()> {
    dir.sync_all()
}
