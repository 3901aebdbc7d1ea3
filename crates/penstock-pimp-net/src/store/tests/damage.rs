//! Damage on the disk, abandoned segments, and failed writes: the store reports them, and keeps the rest.

use super::*;

/// Damage the byte of a file that is this far before its end.
fn break_at(path: &Path, before_end: usize) {
    let mut bytes = fs::read(path).expect("readable");
    let at = bytes.len() - before_end;
    bytes[at] ^= 0x20;
    fs::write(path, bytes).expect("writable");
}

#[test]
fn what_breaks_after_a_log_was_read_is_damage_and_no_write_that_was_cut() {
    let folder = TempDir::new().expect("a folder");
    let store = DiskStore::open(folder.path()).expect("fresh");
    let mut job = alive();
    for index in 1..3 {
        commit(&store, id(1), change(&mut job, id(1), index..index + 1, 30));
    }
    drop(store);
    let before = on_disk(folder.path());
    for start in 0..2 {
        drop(DiskStore::open(folder.path()).expect("free again"));
        assert_eq!(on_disk(folder.path()), before + SEAL as u64, "start {start}: it is sealed once");
    }
    break_at(&segments(folder.path())[0], SEAL + 20);
    let store = DiskStore::open(folder.path()).expect("free again");
    assert_eq!(store.usage().damaged, 1);
    assert!(load(&store, id(1)).is_some_and(|job| is_lost(&job)), "it has lost a chunk that was answered for");
}

#[test]
fn a_segment_that_is_the_last_one_again_was_sealed_when_the_next_began() {
    let folder = TempDir::new().expect("a folder");
    let store = DiskStore::with_segments(folder.path(), 3_000_000).expect("fresh");
    let (mut first, mut expired) = (alive(), job());
    commit(&store, id(1), change(&mut first, id(1), 1..9, 200_000));
    commit(&store, id(1), change(&mut first, id(1), 9..10, 30));
    commit(&store, id(2), change(&mut expired, id(2), 1..9, 200_000));
    assert_eq!(segments(folder.path()).len(), 2);
    sweep(&store, 2 * TTL);
    assert_eq!(segments(folder.path()).len(), 1, "nothing of the second one counts any more");
    drop(store);
    break_at(&segments(folder.path())[0], SEAL + 20);
    let store = DiskStore::open(folder.path()).expect("free again");
    assert_eq!(store.usage().damaged, 1);
    assert!(load(&store, id(1)).is_some_and(|job| is_lost(&job)), "it has lost a chunk that was answered for");
}

#[test]
fn a_header_that_is_damaged_costs_no_chunk() {
    let folder = TempDir::new().expect("a folder");
    let mut job = alive();
    for index in 1..4 {
        let store = DiskStore::open(folder.path()).expect("free");
        commit(&store, id(1), change(&mut job, id(1), index..index + 1, 30));
    }
    for at in [0, 7, 12, 20, 26] {
        let files: Vec<Vec<u8>> =
            segments(folder.path()).iter().map(|path| fs::read(path).expect("readable")).collect();
        for broken in 0..3 {
            let mut files = files.clone();
            files[broken][at] ^= 1;
            let image = image(&files.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let store = DiskStore::open(image.path()).expect("its records are whole");
            assert_eq!(store.usage().damaged, 1, "segment {broken}, at {at}");
            assert!(is_whole(&store, id(1), &job), "segment {broken}, at {at}");
        }
    }
}

#[test]
fn a_discarded_segment_makes_the_jobs_lost_that_may_have_had_something_in_it() {
    let folder = TempDir::new().expect("a folder");
    let (mut open, mut ended, mut gone, mut later) = (alive(), alive(), alive(), alive());
    let store = DiskStore::open(folder.path()).expect("fresh");
    commit(&store, id(1), change(&mut open, id(1), 1..2, 30));
    let metadata = r#"{"contentType":"text/plain","contentEncoding":"identity"}"#.to_owned();
    commit(&store, id(2), written(&mut ended, id(2), [(0, metadata, false), (1, "end".to_owned(), true)]));
    commit(&store, id(4), change(&mut later, id(4), 1..2, 30));
    drop(store);
    let store = DiskStore::open(folder.path()).expect("free again");
    commit(&store, id(1), change(&mut open, id(1), 2..3, 30));
    commit(&store, id(3), change(&mut gone, id(3), 1..2, 30));
    drop(store);
    let second = segments(folder.path())[1].clone();
    let mut bytes = fs::read(&second).expect("readable");
    bytes.fill(0);
    fs::write(&second, bytes).expect("writable");
    let refused = DiskStore::open(folder.path()).expect_err("nobody knows what it is");
    let Error::Local(penstock_io::Error::Content { problem: Problem::Log(mismatch), .. }) = &refused else {
        panic!("{refused}")
    };
    assert!(matches!(mismatch, Mismatch::Unknown { number: 2, .. }), "{refused}");
    fs::rename(&second, second.with_extension("damaged")).expect("as it was told");
    for start in 0..2 {
        let store = DiskStore::open(folder.path()).expect("free again");
        assert_eq!(store.usage().damaged, 1, "start {start}");
        assert!(load(&store, id(1)).is_some_and(|job| is_lost(&job)), "start {start}: it has lost a chunk");
        assert!(is_whole(&store, id(2), &ended), "start {start}: it had ended");
        assert_eq!(load(&store, id(3)), None);
        if start == 0 {
            assert!(load(&store, id(4)).is_some_and(|job| is_lost(&job)), "it may have lost one");
            let mut new = alive();
            commit(&store, id(5), change(&mut new, id(5), 1..2, 30));
        } else {
            assert!(load(&store, id(5)).is_some_and(|job| !is_lost(&job)), "it is newer");
        }
    }
    let last = segments(folder.path()).pop().expect("three");
    assert!(last.ends_with("00000000000000000003.chunks"), "no number comes twice: {}", last.display());
}

#[test]
fn a_job_that_has_its_final_chunk_may_lose_one_below_it() {
    let folder = TempDir::new().expect("a folder");
    let store = DiskStore::open(folder.path()).expect("fresh");
    let mut job = alive();
    commit(&store, id(1), written(&mut job, id(1), [(3, "end".to_owned(), true)]));
    let record = on_disk(folder.path()) as usize;
    commit(&store, id(1), change(&mut job, id(1), 2..3, 30));
    sweep(&store, 0);
    drop(store);
    // With both head and body damaged, nothing identifies the job.
    let length = on_disk(folder.path()) as usize;
    for at in [record + 5, record + 6, length - SEAL - 20] {
        break_at(&segments(folder.path())[0], length - at);
    }
    let store = DiskStore::open(folder.path()).expect("free again");
    assert_eq!(store.usage().damaged, 1);
    assert!(load(&store, id(1)).is_some_and(|job| is_lost(&job)));
}

#[test]
fn a_store_that_cannot_be_written_to_says_why_until_it_can() {
    let parent = TempDir::new().expect("a folder");
    let (folder, away) = (parent.path().join("store"), parent.path().join("away"));
    let store = DiskStore::open(&folder).expect("fresh");
    let mut first = job();
    assert_eq!(store.failing(), None);
    fs::rename(&folder, &away).expect("moved");
    let refused = block_on(store.commit(id(1), change(&mut first.clone(), id(1), 1..2, 30))).expect("runs");
    let refused = refused.expect_err("there is no folder").to_string();
    for _ in 0..2 {
        assert_eq!(store.failing().as_deref(), Some(refused.as_str()));
        sweep(&store, 0);
    }
    fs::rename(&away, &folder).expect("moved");
    // The sweep tests the store without any request.
    sweep(&store, 0);
    assert_eq!(store.failing(), None);
    assert_eq!(segments(&folder).len() + 1, fs::read_dir(&folder).expect("readable").count(), "and what locks it");
    commit(&store, id(1), change(&mut first, id(1), 1..2, 30));
    assert_eq!(read(&store, id(1), &[1]).len(), 1);
}
