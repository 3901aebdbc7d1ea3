//! A reader of a sink returns the same rows from its store and through its server, and loses none
//! if its caller gives up.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, RecordBatch};
use penstock_io::runtime::wait;
use penstock_pipestream_net::{Error, Misuse};
use penstock_pipestream_sink::SinkPlace;
use penstock_pipestream_sink::read::{PieceReader, Plan, PlanLimits, Selection, SinkReader};

use crate::reading::{KEY, open, readable, session};
use crate::support::{Pair, block};

const CLOSED: &str = "{\"closed\":0}\n";
const LIMITS: PlanLimits = PlanLimits { bytes: 250, rows: u64::MAX, pieces: usize::MAX };

fn in_place(pair: &Pair) -> SinkReader {
    SinkReader::open(SinkPlace::Folder(pair.sink())).unwrap()
}

fn entities(batch: &RecordBatch) -> Vec<i64> {
    batch.column_by_name("entity").unwrap().as_primitive::<Int64Type>().values().to_vec()
}

fn rest(rows: &PieceReader) -> Vec<RecordBatch> {
    std::iter::from_fn(|| block(rows.next()).unwrap()).collect()
}

#[test]
fn a_reader_finds_the_same_in_the_sink_and_by_its_server() {
    let pair = readable();
    session(&pair.sink(), "one", 9, 100, CLOSED);
    session(&pair.sink(), "two", 1, 0, CLOSED);
    session(&pair.sink(), "open", 1, 0, "");
    let (local, remote) = (in_place(&pair), SinkReader::from(open(&pair, KEY).unwrap()));
    let mut sessions = block(local.sessions()).unwrap();
    assert_eq!(sessions.iter().map(|session| session.rows).sum::<u64>(), 10);
    let page = block(remote.follow(0, 1)).unwrap();
    assert_eq!((page.length, page.sessions.len()), (2, 1));
    assert_eq!(page, block(local.follow(0, 1)).unwrap());
    let mut by_server = block(remote.sessions()).unwrap();
    // The journal may have sessions that end within one tick of the clock in either order.
    sessions.sort_by(|one, other| one.id.cmp(&other.id));
    by_server.sort_by(|one, other| one.id.cmp(&other.id));
    assert_eq!(by_server, sessions);
    let wanted = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<HashSet<_>>());
    for (selection, expected) in [
        (Selection::default(), (1..=9).collect::<Vec<_>>()),
        (Selection { documents: wanted(&["d2", "d3", "d8"]), names: None }, vec![2, 3, 8]),
        (Selection { documents: None, names: wanted(&["one/0/4", "two/0/1"]) }, vec![4]),
    ] {
        let plans = [&local, &remote].map(|reader| block(reader.plan("one", 0, LIMITS, selection.clone())).unwrap());
        assert_eq!(plans[0], plans[1]);
        let read = [&local, &remote].map(|reader| {
            let each = plans[0].pieces.iter();
            each.flat_map(|piece| rest(&reader.rows("one", piece.start, piece.end, Some(100), 150))).collect::<Vec<_>>()
        });
        assert_eq!(read[0], read[1]);
        assert_eq!(read[0].iter().flat_map(entities).collect::<Vec<_>>(), expected);
    }
    assert_eq!(block(local.claims()).unwrap(), block(remote.claims()).unwrap());
    let refused = remote.remove("one").unwrap_err();
    assert!(matches!(refused, Error::Misuse(Misuse::RemoteRemoval)), "{refused:?}");
    local.remove("one").unwrap();
    assert_eq!(block(local.sessions()).unwrap().len(), 1);
}

#[test]
fn a_plan_has_a_piece_at_least_and_goes_on_where_it_ended() {
    let pair = readable();
    session(&pair.sink(), "s", 9, 100, CLOSED);
    for reader in [in_place(&pair), open(&pair, KEY).unwrap().into()] {
        let (mut start, mut rows) = (Some(0), Vec::new());
        while let Some(at) = start {
            let limits = PlanLimits { rows: 2, pieces: 0, ..LIMITS };
            let Plan { pieces, next } = block(reader.plan("s", at, limits, Selection::default())).unwrap();
            assert_eq!(pieces.len(), 1);
            rows.extend(pieces.iter().map(|piece| piece.rows));
            start = next;
        }
        assert_eq!(rows, [2, 2, 2, 2, 1]);
    }
}

#[test]
fn a_payload_is_read_where_it_is_requested_and_within_the_limit() {
    let pair = readable();
    session(&pair.sink(), "s", 3, 100, CLOSED);
    let reader = in_place(&pair);
    let piece =
        block(reader.plan("s", 0, PlanLimits { bytes: u64::MAX, ..LIMITS }, Selection::default())).unwrap().pieces[0];
    for (max_content, nulls) in [(None, 3), (Some(99), 3), (Some(100), 0), (Some(u64::MAX), 0)] {
        let batches = rest(&reader.rows("s", piece.start, piece.end, max_content, 1 << 20));
        let found: usize = batches.iter().map(|batch| batch.column_by_name("content").unwrap().null_count()).sum();
        assert_eq!(found, nulls, "{max_content:?}");
    }
}

/// Return a reader of 200 rows in batches of one row.
fn one_by_one(pair: &Pair) -> PieceReader {
    session(&pair.sink(), "s", 200, 1, CLOSED);
    let reader = in_place(pair);
    let limits = PlanLimits { bytes: u64::MAX, ..LIMITS };
    let piece = block(reader.plan("s", 0, limits, Selection::default())).unwrap().pieces[0];
    reader.rows("s", piece.start, piece.end, Some(1), 1)
}

#[test]
fn a_wait_for_rows_that_is_given_up_loses_none() {
    let pair = readable();
    let rows = one_by_one(&pair);
    let (mut found, mut given_up) = (Vec::new(), 0);
    loop {
        // Poll once: most batches have not been read by then.
        match wait(rows.next(), Some(Instant::now()), &mut || Ok(())) {
            Ok(Ok(Some(batch))) => found.extend(entities(&batch)),
            Ok(Ok(None)) => break,
            Ok(Err(error)) => panic!("{error}"),
            Err(_) => given_up += 1,
        }
    }
    assert_eq!(found, (1..=200).collect::<Vec<_>>());
    assert!(given_up > 0, "no wait was given up");
}

#[test]
fn callers_that_wait_for_rows_at_the_same_time_get_each_row_once() {
    let pair = readable();
    let rows = Arc::new(one_by_one(&pair));
    let callers: Vec<_> = (0..3)
        .map(|_| {
            let rows = Arc::clone(&rows);
            std::thread::spawn(move || rest(&rows).iter().flat_map(entities).collect::<Vec<_>>())
        })
        .collect();
    let mut found: Vec<_> = callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, (1..=200).collect::<Vec<_>>());
}

#[test]
fn after_a_payload_that_cannot_be_read_there_are_no_more_rows() {
    let pair = readable();
    session(&pair.sink(), "s", 3, 10, CLOSED);
    let reader = in_place(&pair);
    let piece =
        block(reader.plan("s", 0, PlanLimits { bytes: u64::MAX, ..LIMITS }, Selection::default())).unwrap().pieces[0];
    std::fs::remove_file(pair.sink().join("s/0/2")).unwrap();
    let rows = reader.rows("s", piece.start, piece.end, Some(10), 1);
    assert_eq!(entities(&block(rows.next()).unwrap().unwrap()), [1]);
    assert!(matches!(block(rows.next()), Err(Error::Local(penstock_io::Error::Io { .. }))));
    assert!(block(rows.next()).unwrap().is_none());
}
