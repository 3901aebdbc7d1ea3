//! The behaviour of all stores, and the contents of the disk wherever the process dies.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use penstock_io::Problem;
use penstock_io::runtime::block_on;
use penstock_log::Mismatch;
use penstock_pimp::{Batch, Code, Job, JobId, Limits, Now, Settings};
use serde_json::json;
use tempfile::TempDir;

use super::{Change, DiskStore, MemoryStore, Store};
use crate::Error;

mod damage;
mod earlier;

const TTL: u64 = 1_000;
/// The length of a segment's header, and of the seal that ends a log that was read.
const HEADER: usize = 48;
const SEAL: usize = 32;

fn id(number: u8) -> JobId {
    JobId::from_random([number; 16])
}

fn now(millis: u64) -> Now {
    Now { instant: Instant::now(), unix_micros: millis * 1_000 }
}

fn job() -> Job {
    let settings = Settings { ttl_ms: Some(TTL), read_key: None };
    Job::create(now(0), "key", settings, &Limits::default()).expect("valid")
}

/// Return a change that adds chunks to a job, as a buffer makes it.
fn change(job: &mut Job, id: JobId, indices: std::ops::Range<u32>, bytes: usize) -> Change {
    written(job, id, indices.map(|index| (index, format!("{index}:{}", "x".repeat(bytes)), false)))
}

/// Return a change that adds these chunks: an index, a value, and whether it is the final one.
fn written(job: &mut Job, id: JobId, chunks: impl IntoIterator<Item = (u32, String, bool)>) -> Change {
    let envelope = |(index, value, done)| {
        let job = id.to_string();
        json!({"jobId": job, "index": index, "value": value, "done": done, "error": null, "createdAt": 1})
    };
    let body = json!({"chunks": chunks.into_iter().map(envelope).collect::<Vec<_>>()}).to_string();
    let (limits, was) = (Limits::default(), Some(job.clone()));
    let batch = Batch::decode(body.as_bytes(), id, &limits).expect("valid");
    let written = job.handle_write(now(0), Some("key"), &batch, &limits).expect("fits");
    let chunks = written.new.into_iter().map(|place| {
        let envelope = &batch.envelopes()[place];
        let mut bytes = Vec::new();
        envelope.encode(&mut bytes).expect("memory");
        (envelope.index, Bytes::from(bytes))
    });
    Change { was, chunks: chunks.collect(), job: Some(job.clone()) }
}

fn deletion() -> Change {
    Change { was: None, job: None, chunks: Vec::new() }
}

fn commit(store: &dyn Store, id: JobId, change: Change) {
    assert!(block_on(store.commit(id, change)).expect("runs").expect("stored"));
}

fn load(store: &dyn Store, id: JobId) -> Option<Job> {
    block_on(store.load(id)).expect("runs").expect("readable")
}

fn read(store: &dyn Store, id: JobId, indices: &[u32]) -> Vec<Bytes> {
    block_on(store.read(id, indices.to_vec(), u64::MAX)).expect("runs").expect("readable")
}

fn sweep(store: &dyn Store, at: u64) {
    block_on(store.sweep(at)).expect("runs").expect("swept");
}

fn stores() -> Vec<(Arc<dyn Store>, Option<TempDir>)> {
    let folder = TempDir::new().expect("a folder");
    let disk = DiskStore::open(folder.path()).expect("fresh");
    vec![(Arc::new(MemoryStore::new()), None), (Arc::new(disk), Some(folder))]
}

#[test]
fn what_is_committed_is_read_in_the_order_asked_for() {
    for (store, _folder) in stores() {
        let (mut first, mut second) = (job(), job());
        assert_eq!(load(&*store, id(1)), None);
        let changes = [
            change(&mut first, id(1), 1..4, 10),
            change(&mut second, id(2), 1..3, 5),
            change(&mut first, id(1), 4..6, 10),
        ];
        let all: Vec<Bytes> = [&changes[0], &changes[2]]
            .iter()
            .flat_map(|each| each.chunks.iter())
            .map(|(_, bytes)| bytes.clone())
            .collect();
        for (change, id) in changes.into_iter().zip([id(1), id(2), id(1)]) {
            commit(&*store, id, change);
        }
        assert_eq!(load(&*store, id(1)), Some(first));
        assert_eq!(read(&*store, id(1), &[1, 2, 3, 4, 5]), all);
        assert_eq!(read(&*store, id(1), &[5, 1, 9, 2]), [all[4].clone(), all[0].clone()]);
        assert_eq!(read(&*store, id(1), &[9, 1]), Vec::<Bytes>::new());
        for (most, count) in [(0, 1), (all[0].len() as u64 * 2, 2)] {
            let first = block_on(store.read(id(1), vec![1, 2, 3], most)).expect("runs").expect("readable");
            assert_eq!(first, all[..count]);
        }
        assert_eq!(read(&*store, id(3), &[1]), Vec::<Bytes>::new());
        commit(&*store, id(2), deletion());
        assert_eq!((load(&*store, id(2)), read(&*store, id(2), &[1]).len()), (None, 0));
        assert_eq!(store.usage().chunk_bytes, all.iter().map(|bytes| bytes.len() as u64).sum::<u64>());
    }
}

#[test]
fn chunks_go_when_the_job_expires_and_the_job_one_life_later() {
    for (store, _folder) in stores() {
        let mut job = job();
        commit(&*store, id(1), change(&mut job, id(1), 1..4, 10));
        sweep(&*store, TTL - 1);
        assert_eq!(read(&*store, id(1), &[1, 2, 3]).len(), 3);
        sweep(&*store, TTL);
        assert_eq!(read(&*store, id(1), &[1, 2, 3]).len(), 0);
        assert_eq!(load(&*store, id(1)), Some(job));
        sweep(&*store, 2 * TTL - 1);
        assert!(load(&*store, id(1)).is_some());
        sweep(&*store, 2 * TTL);
        assert_eq!((load(&*store, id(1)), store.usage().jobs), (None, 0));
    }
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(folder)
        .expect("readable")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "chunks"))
        .collect();
    found.sort();
    found
}

fn on_disk(folder: &Path) -> u64 {
    segments(folder).iter().map(|path| path.metadata().expect("there").len()).sum()
}

#[test]
fn a_restart_finds_everything_and_a_second_process_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let (mut first, mut second) = (job(), job());
    let store = DiskStore::open(folder.path()).expect("fresh");
    commit(&store, id(1), change(&mut first, id(1), 1..4, 10));
    commit(&store, id(2), change(&mut second, id(2), 1..4, 10));
    commit(&store, id(2), deletion());
    let error = DiskStore::open(folder.path()).expect_err("taken");
    assert!(matches!(error, Error::Local(penstock_io::Error::Busy(_))), "{error}");
    let before = read(&store, id(1), &[1, 2, 3]);
    drop(store);
    let store = DiskStore::open(folder.path()).expect("free again");
    assert_eq!((load(&store, id(1)), load(&store, id(2))), (Some(first.clone()), None));
    assert_eq!(read(&store, id(1), &[1, 2, 3]), before);
    commit(&store, id(1), change(&mut first, id(1), 4..5, 10));
    drop(store);
    let store = DiskStore::open(folder.path()).expect("free again");
    assert_eq!(read(&store, id(1), &[1, 2, 3, 4]).len(), 4);
}

#[test]
fn a_segment_that_is_cut_anywhere_holds_the_changes_that_were_whole() {
    let folder = TempDir::new().expect("a folder");
    let store = DiskStore::open(folder.path()).expect("fresh");
    let mut job = job();
    let mut states = vec![(HEADER as u64, None)];
    for index in 1..5 {
        commit(&store, id(1), change(&mut job, id(1), index..index + 1, 3));
        states.push((on_disk(folder.path()), Some(job.clone())));
    }
    drop(store);
    let bytes = fs::read(&segments(folder.path())[0]).expect("readable");
    for cut in 0..=bytes.len() {
        let image = TempDir::new().expect("a folder");
        fs::write(image.path().join("00000000000000000001.chunks"), &bytes[..cut]).expect("writable");
        let store = DiskStore::open(image.path()).expect("readable");
        let expected = states.iter().rev().find(|(end, _)| *end <= cut as u64).and_then(|(_, job)| job.clone());
        let count = expected.as_ref().map_or(0, |job| job.indices().count() as usize);
        assert_eq!(load(&store, id(1)), expected, "cut at {cut}");
        assert_eq!(read(&store, id(1), &[1, 2, 3, 4]).len(), count, "cut at {cut}");
    }
}

/// Return a folder with these segments.
fn image(segments: &[&[u8]]) -> TempDir {
    let image = TempDir::new().expect("a folder");
    for (number, bytes) in (1..).zip(segments) {
        fs::write(image.path().join(format!("{number:020}.chunks")), bytes).expect("writable");
    }
    image
}

/// Return a job that is alive now, so that it can be refused only for its losses.
fn alive() -> Job {
    Job::create(crate::clock::now(), "key", Settings::default(), &Limits::default()).expect("valid")
}

fn is_lost(job: &Job) -> bool {
    let refused = job.handle_poll(crate::clock::now(), None, 0, None);
    refused.is_err_and(|error| error.code() == Code::Lost)
}

/// Return whether a job is unchanged since it was stored like this, and has all its chunks.
fn is_whole(store: &dyn Store, id: JobId, stored: &Job) -> bool {
    let Some(found) = load(store, id) else { return false };
    let indices: Vec<u32> = stored.indices().iter_from(0).collect();
    found == *stored && read(store, id, &indices).len() == indices.len()
}

#[test]
fn a_flipped_byte_is_found_and_a_job_that_lost_something_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let store = DiskStore::open(folder.path()).expect("fresh");
    let (mut first, mut second, mut gone) = (alive(), alive(), alive());
    commit(&store, id(1), change(&mut first, id(1), 1..2, 3));
    commit(&store, id(3), change(&mut gone, id(3), 1..2, 3));
    for index in 1..3 {
        commit(&store, id(2), change(&mut second, id(2), index..index + 1, 3));
    }
    commit(&store, id(3), deletion());
    sweep(&store, 0);
    assert_eq!(store.usage().damaged, 0);
    drop(store);
    let bytes = fs::read(&segments(folder.path())[0]).expect("readable");
    flip_each(&bytes, (HEADER, SEAL), [&first, &second]);
    flip_each(&earlier::in_earlier_format(&bytes), (earlier::HEADER, earlier::SEAL), [&first, &second]);
}

/// Flip a bit of each byte of a segment with two live jobs and a deleted one.
fn flip_each(bytes: &[u8], (header, seal): (usize, usize), [first, second]: [&Job; 2]) {
    let (mut read_anyhow, mut refused) = (0, 0);
    for at in 0..bytes.len() {
        let mut broken = bytes.to_vec();
        broken[at] ^= 0x20;
        let image = image(&[&broken]);
        let store = DiskStore::open(image.path()).expect("one byte keeps no buffer from its start");
        let jobs = [(1, Some(first)), (2, Some(second)), (3, None)];
        let lost = jobs.iter().filter(|(number, stored)| match (load(&store, id(*number)), stored) {
            (None, None) => false,
            (Some(found), Some(stored)) => is_lost(&found) || !is_whole(&store, id(*number), stored),
            (Some(found), None) => {
                assert!(is_lost(&found), "byte {at}: what was deleted has come back");
                true
            }
            // The buffer answers 404 to every caller.
            (None, Some(_)) => true,
        });
        let lost = lost.count();
        for (number, stored) in [(1, first), (2, second)] {
            let told = load(&store, id(number)).is_none_or(|found| is_lost(&found));
            assert!(
                told || is_whole(&store, id(number), stored),
                "byte {at}: job {number} has lost something in silence"
            );
        }
        // The last seal belongs to no job; a damaged byte in it counts as one that was not synced.
        let in_seal = at >= bytes.len() - seal;
        assert_eq!(store.usage().damaged, u64::from(!in_seal), "byte {at}");
        assert!(lost <= usize::from(at >= header), "byte {at}: one record is one job's, and a header is nobody's");
        if lost == 0 { read_anyhow += 1 } else { refused += 1 }
    }
    assert!(read_anyhow > 100 && refused > 100, "{read_anyhow} and {refused}");
}

#[test]
fn what_was_not_synced_is_cut_off_and_what_was_is_not() {
    let folder = TempDir::new().expect("a folder");
    let mut job = alive();
    let store = DiskStore::open(folder.path()).expect("fresh");
    commit(&store, id(1), change(&mut job, id(1), 1..2, 3));
    let one = (on_disk(folder.path()) as usize, job.clone());
    commit(&store, id(1), change(&mut job, id(1), 2..3, 3));
    let two = on_disk(folder.path()) as usize;
    sweep(&store, 0);
    drop(store);
    let mut bytes = fs::read(&segments(folder.path())[0]).expect("readable");
    bytes[two - 10] ^= 1;
    // Without the seal it looks like a write that a crash has cut off.
    let cut = image(&[&bytes[..two]]);
    let store = DiskStore::open(cut.path()).expect("readable");
    assert_eq!((load(&store, id(1)), store.usage().damaged), (Some(one.1), 0));
    assert_eq!(on_disk(cut.path()) as usize, one.0 + SEAL, "it is gone from the disk as well");
    drop(store);
    let sealed = image(&[&bytes]);
    for again in 0..2 {
        let store = DiskStore::open(sealed.path()).expect("readable");
        assert!(load(&store, id(1)).is_some_and(|job| is_lost(&job)), "start {again}");
        assert_eq!(store.usage().damaged, 1);
        // The verdict stays the same when the remaining records are rewritten.
        let mut other = alive();
        commit(&store, id(2), change(&mut other, id(2), 1..2, 3));
    }
    // The header of a new segment states the length of the segment before it.
    let mut ended = fs::read(&segments(sealed.path())[0]).expect("readable");
    let next = fs::read(&segments(sealed.path())[1]).expect("readable");
    ended.truncate(one.0);
    let short = image(&[&ended, &next]);
    let store = DiskStore::open(short.path()).expect("readable");
    assert_eq!(store.usage().damaged, 1);
    assert!(load(&store, id(1)).is_some_and(|job| is_lost(&job)), "nobody knows what was there");
    assert!(load(&store, id(2)).is_some_and(|job| !is_lost(&job)), "it has a record behind");
}

#[test]
fn a_chunk_that_flips_under_a_store_that_is_open_is_not_given() {
    let folder = TempDir::new().expect("a folder");
    let mut job = alive();
    let store = DiskStore::open(folder.path()).expect("fresh");
    commit(&store, id(1), change(&mut job, id(1), 1..2, 30));
    drop(store);
    let store = DiskStore::open(folder.path()).expect("free again");
    let segment = &segments(folder.path())[0];
    let mut bytes = fs::read(segment).expect("readable");
    let end = bytes.len();
    bytes[end - SEAL - 20] ^= 1;
    fs::write(segment, &bytes).expect("writable");
    let error = block_on(store.read(id(1), vec![1], u64::MAX)).expect("runs").expect_err("damaged");
    assert!(error.to_string().contains("damaged"), "{error}");
}

#[test]
fn a_file_that_is_no_segment_is_refused_by_its_name() {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("00000000000000000001.chunks"), [b'x'; 40]).expect("writable");
    let error = DiskStore::open(folder.path()).expect_err("not ours");
    let Error::Local(penstock_io::Error::Content { place, problem: Problem::Log(mismatch) }) = &error else {
        panic!("{error}")
    };
    assert!(place.ends_with("00000000000000000001.chunks"), "{error}");
    assert!(matches!(mismatch, Mismatch::Unknown { number: 1, .. }), "{error}");
    fs::write(folder.path().join("00000000000000000001.chunks"), b"PIMPLOG1\0\0\0\0\0\0\0\x01with more")
        .expect("writable");
    assert!(DiskStore::open(folder.path()).is_err(), "its version is another");
    let other = TempDir::new().expect("a folder");
    let store = DiskStore::open(other.path()).expect("fresh");
    commit(&store, id(1), change(&mut job(), id(1), 1..2, 3));
    fs::copy(&segments(other.path())[0], folder.path().join("00000000000000000002.chunks")).expect("writable");
    fs::remove_file(folder.path().join("00000000000000000001.chunks")).expect("there");
    let error = DiskStore::open(folder.path()).expect_err("its name and its number differ");
    assert!(matches!(error, Error::Local(penstock_io::Error::Content { .. })), "{error}");
}

#[test]
fn a_last_segment_that_became_zeros_is_refused_and_kept_and_one_whose_header_did_is_read() {
    let folder = TempDir::new().expect("a folder");
    let store = DiskStore::open(folder.path()).expect("fresh");
    let mut job = alive();
    commit(&store, id(1), change(&mut job, id(1), 1..2, 30));
    drop(store);
    let segment = &segments(folder.path())[0];
    let whole = fs::read(segment).expect("readable");
    let mut bytes = whole.clone();
    bytes[..HEADER].fill(0);
    let headless = image(&[&bytes]);
    let store = DiskStore::open(headless.path()).expect("its records are whole");
    assert!(is_whole(&store, id(1), &job));
    assert_eq!(store.usage().damaged, 1);
    bytes.fill(0);
    fs::write(segment, &bytes).expect("writable");
    let error = DiskStore::open(folder.path()).expect_err("damaged");
    assert!(matches!(error, Error::Local(penstock_io::Error::Content { .. })), "{error}");
    assert_eq!(fs::read(segment).expect("it is there"), bytes);
    // A header that did not reach the disk has nothing after it.
    for begun in [&whole[..0], &whole[..9], &[0; 28], &[0; HEADER], &b"PIMPLOG2\0\0"[..]] {
        fs::write(segment, begun).expect("writable");
        drop(DiskStore::open(folder.path()).expect("just made"));
        assert!(!segment.exists());
    }
}

#[test]
fn a_chunk_that_is_damaged_keeps_no_segment_of_dead_ones() {
    let folder = TempDir::new().expect("a folder");
    let store = DiskStore::open(folder.path()).expect("fresh");
    let settings = Settings { ttl_ms: Some(100 * TTL), read_key: None };
    let mut long = Job::create(now(0), "key", settings, &Limits::default()).expect("valid");
    commit(&store, id(1), change(&mut long, id(1), 1..2, 100));
    let mut short = job();
    commit(&store, id(2), change(&mut short, id(2), 1..9, 200_000));
    // Each start begins a new segment.
    drop(store);
    let store = DiskStore::open(folder.path()).expect("free again");
    let mut short = job();
    commit(&store, id(3), change(&mut short, id(3), 1..9, 200_000));
    drop(store);
    let store = DiskStore::open(folder.path()).expect("free again");
    commit(&store, id(1), change(&mut long, id(1), 2..3, 100));
    let files = segments(folder.path());
    let mut bytes = fs::read(&files[0]).expect("readable");
    let text = bytes.windows(40).position(|window| window.iter().all(|byte| *byte == window[0])).expect("a chunk");
    bytes[text] ^= 1;
    fs::write(&files[0], &bytes).expect("writable");
    // The jobs expire, and are forgotten one lifetime later.
    for at in [2 * TTL, 3 * TTL] {
        block_on(store.sweep(at)).expect("runs").expect_err("the chunk of a job that lives is damaged");
    }
    assert!(files[0].exists() && !files[1].exists(), "{files:?}");
}

#[test]
fn the_disk_is_free_when_jobs_have_expired_though_others_live_on() {
    let folder = TempDir::new().expect("a folder");
    let store = DiskStore::open(folder.path()).expect("fresh");
    let settings = Settings { ttl_ms: Some(100 * TTL), read_key: None };
    let mut long = Job::create(now(0), "key", settings, &Limits::default()).expect("valid");
    commit(&store, id(1), change(&mut long, id(1), 1..3, 100));
    let kept = read(&store, id(1), &[1, 2]);
    for number in 2..6 {
        let mut job = job();
        commit(&store, id(number), change(&mut job, id(number), 1..9, 200_000));
    }
    assert!(on_disk(folder.path()) > 6_000_000);
    sweep(&store, TTL);
    assert!(on_disk(folder.path()) < 10_000, "{}", on_disk(folder.path()));
    assert_eq!(store.usage().disk_bytes, on_disk(folder.path()));
    assert_eq!(read(&store, id(1), &[1, 2]), kept);
    commit(&store, id(1), change(&mut long, id(1), 3..4, 100));
    drop(store);
    let store = DiskStore::open(folder.path()).expect("free again");
    assert_eq!((read(&store, id(1), &[1, 2]), load(&store, id(1))), (kept, Some(long)));
    assert!(load(&store, id(2)).is_some(), "it is still known as expired");
    sweep(&store, 200 * TTL);
    sweep(&store, 200 * TTL);
    assert_eq!(on_disk(folder.path()), 0);
}

#[test]
fn what_was_deleted_does_not_come_back_when_segments_go() {
    let folder = TempDir::new().expect("a folder");
    let store = DiskStore::open(folder.path()).expect("fresh");
    let (mut deleted, mut other) = (job(), job());
    commit(&store, id(1), change(&mut deleted, id(1), 1..3, 100));
    commit(&store, id(2), change(&mut other, id(2), 1..9, 200_000));
    drop(store);
    // The record of the deletion is in a later segment, most of which dies.
    let store = DiskStore::open(folder.path()).expect("free again");
    commit(&store, id(1), deletion());
    let mut third = job();
    commit(&store, id(3), change(&mut third, id(3), 1..9, 200_000));
    commit(&store, id(3), deletion());
    sweep(&store, 1);
    assert_eq!(segments(folder.path()).len(), 2, "the second one went, and what counted of it is in the third");
    drop(store);
    let store = DiskStore::open(folder.path()).expect("free again");
    assert_eq!((load(&store, id(1)), load(&store, id(3))), (None, None));
    assert_eq!(read(&store, id(2), &[1, 8]).len(), 2);
}

#[test]
fn changes_that_wait_together_are_all_there() {
    let folder = TempDir::new().expect("a folder");
    let store = Arc::new(DiskStore::open(folder.path()).expect("fresh"));
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || {
                let mut job = job();
                for index in 1..20 {
                    commit(&*store, id(number), change(&mut job, id(number), index..index + 1, 10));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("stored"));
    drop(store);
    let store = DiskStore::open(folder.path()).expect("free again");
    for number in 0..8 {
        assert_eq!(load(&store, id(number)).map(|job| job.indices().count()), Some(19));
        assert_eq!(read(&store, id(number), &(1..20).collect::<Vec<_>>()).len(), 19);
    }
}
