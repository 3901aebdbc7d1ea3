use std::collections::BTreeSet;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use penstock_io::runtime::block_on;
use penstock_pipestream::claims::{ClaimLimits, ClaimTerms};
use penstock_pipestream::{ErrorCode, Status};
use penstock_pipestream_net::port;

use super::*;
use crate::claims::{Claims, Details, read_claims_in};

fn session(byte: u8) -> SessionId {
    SessionId::new([byte; 16])
}

/// Return a prefix in a store in memory, and one in a store of files.
fn places() -> (Vec<ObjectPrefix>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let stores: [Arc<dyn ObjectStore>; 2] =
        [Arc::new(InMemory::new()), Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap())];
    (stores.into_iter().map(|store| ObjectPrefix::of(store, "sink")).collect(), folder)
}

fn server(place: &ObjectPrefix) -> Arc<Claims> {
    Claims::in_store(place, ClaimLimits::default()).unwrap()
}

fn issue(claims: &Arc<Claims>, entity: u32) -> u64 {
    let terms = ClaimTerms { session: session(1), scope: 2, entity, life: None, validation: None };
    let details = Details { reason: format!("part {entity}"), ..Details::default() };
    block_on(claims.issue(&terms, details)).unwrap().unwrap().id
}

fn redeem(claims: &Arc<Claims>, id: u64, by: u8) -> std::result::Result<(), Option<ErrorCode>> {
    block_on(claims.redeem(id, session(1), session(by))).unwrap().map(drop).map_err(|error| error.code())
}

fn status(claims: &Arc<Claims>, id: u64) -> Option<Status> {
    block_on(claims.query(id)).unwrap().unwrap().found.map(|found| found.status)
}

/// End the process of a server, as far as the store sees it.
fn end(claims: Arc<Claims>) {
    block_on(port::ClaimChecks::close(claims)).unwrap();
}

const REFUSED: std::result::Result<(), Option<ErrorCode>> = Err(Some(ErrorCode::ClaimNotFound));

#[test]
fn what_was_redeemed_is_refused_after_a_restart() {
    let (places, _folder) = places();
    for place in places {
        let claims = server(&place);
        let (open, redeemed, settled, gone) =
            (issue(&claims, 1), issue(&claims, 2), issue(&claims, 3), issue(&claims, 4));
        assert_eq!((redeem(&claims, redeemed, 9), redeem(&claims, settled, 9)), (Ok(()), Ok(())));
        assert_eq!(redeem(&claims, redeemed, 9), REFUSED);
        claims.settle(settled, session(9), Status::Complete);
        claims.void(gone);
        end(claims);
        let claims = server(&place);
        // The session that has redeemed the claim check is unknown, so it is over.
        assert_eq!(
            [open, redeemed, settled, gone].map(|id| status(&claims, id)),
            [Some(Status::Deferred), Some(Status::Failed), Some(Status::Complete), None]
        );
        assert_eq!([redeemed, settled, gone].map(|id| redeem(&claims, id, 8)), [REFUSED; 3]);
        assert_eq!((redeem(&claims, open, 8), redeem(&claims, open, 8)), (Ok(()), REFUSED));
        let reasons: BTreeSet<_> = read_claims_in(&place).unwrap().into_iter().map(|row| row.details.reason).collect();
        assert_eq!(reasons, BTreeSet::from(["part 1", "part 2", "part 3"].map(str::to_owned)));
    }
}

#[test]
fn two_servers_of_a_sink_redeem_a_claim_check_once_between_them() {
    let (places, _folder) = places();
    for place in places {
        let servers = [server(&place), server(&place)];
        let ids: Vec<u64> = (1..=20).map(|entity| issue(&servers[(entity % 2) as usize], entity)).collect();
        for (index, id) in ids.into_iter().enumerate() {
            let both = |(at, claims): (usize, &Arc<Claims>)| {
                let (claims, by) = (Arc::clone(claims), session(10 + at as u8));
                async move { claims.redeem(id, session(1), by).await.is_ok() }
            };
            let answers: Vec<bool> =
                block_on(futures_util::future::join_all(servers.iter().enumerate().map(both))).unwrap();
            assert_eq!(answers.iter().filter(|answer| **answer).count(), 1, "claim check {index}: {answers:?}");
            // The server that was too late knows about the redemption.
            let (winner, by) = if answers[0] { (0, session(10)) } else { (1, session(11)) };
            assert_eq!(status(&servers[1 - winner], id), Some(Status::Processing));
            servers[winner].settle(id, by, Status::Complete);
        }
        for claims in servers {
            end(claims);
        }
        let rows = read_claims_in(&place).unwrap();
        assert_eq!(rows.iter().filter(|row| row.check.status == Status::Complete).count(), 20);
    }
}

#[test]
fn what_one_server_settles_without_a_session_no_other_gives_away() {
    let place = ObjectPrefix::of(Arc::new(InMemory::new()), "sink");
    let (one, other) = (server(&place), server(&place));
    let id = issue(&one, 1);
    block_on(other.settle_here(id, Status::Complete)).unwrap().unwrap();
    block_on(other.settle_here(id, Status::Complete)).unwrap().unwrap();
    assert_eq!((redeem(&one, id, 3), status(&one, id)), (REFUSED, Some(Status::Complete)));
}

#[test]
fn a_redemption_counts_though_its_server_was_killed_before_it_had_written_so() {
    let place = ObjectPrefix::of(Arc::new(InMemory::new()), "sink");
    let claims = server(&place);
    let id = issue(&claims, 1);
    end(claims);
    block_on(SharedClaims::new(place.clone()).unwrap().redeem(id, session(7))).unwrap().unwrap().unwrap();
    assert_eq!(read_claims_in(&place).unwrap()[0].check.status, Status::Processing);
    let running = server(&place);
    assert_eq!((redeem(&running, id, 8), redeem(&server(&place), id, 8)), (REFUSED, REFUSED));
}

/// Return the line of an entity for which a claim check was redeemed.
fn line(entity: u32, id: u64) -> String {
    let claim = format!("{id:016x}");
    format!(
        "{{\"scope\":0,\"entity\":{entity},\"parent\":null,\"layer\":0,\"content_type\":\"a/b\",\"bytes\":1,\
         \"sha256\":null,\"metadata\":{{\"pipestream.claim\":\"{claim}\"}},\"status\":\"COMPLETE\",\"reason\":null,\
         \"file\":null}}\n"
    )
}

fn put(place: &ObjectPrefix, name: &str, text: String) {
    block_on(async { place.store().put(&place.path(name), PutPayload::from(text.into_bytes())).await })
        .unwrap()
        .unwrap();
}

#[test]
fn what_the_list_of_the_session_says_that_redeemed_stands() {
    let place = ObjectPrefix::of(Arc::new(InMemory::new()), "sink");
    let claims = server(&place);
    let ids: Vec<u64> = (1..=3).map(|entity| issue(&claims, entity)).collect();
    for (id, by) in ids.iter().zip([5, 5, 6]) {
        redeem(&claims, *id, by).unwrap();
    }
    end(claims);
    put(&place, &format!("{}/entities.jsonl", session(5)), format!("{}{{\"closed\":1}}\n", line(1, ids[0])));
    // This session may still continue.
    put(&place, &format!(".open/{}/0000000000-0000000000.jsonl", session(6)), String::new());
    let claims = server(&place);
    assert_eq!(
        [0, 1, 2].map(|index| status(&claims, ids[index])),
        [Some(Status::Complete), Some(Status::Failed), Some(Status::Processing)]
    );
}

#[test]
fn what_a_session_says_whose_id_was_used_before_stands_as_well() {
    let place = ObjectPrefix::of(Arc::new(InMemory::new()), "sink");
    let claims = server(&place);
    let ids: Vec<u64> = (1..=4).map(|entity| issue(&claims, entity)).collect();
    for (id, by) in ids.iter().zip([5, 5, 6, 7]) {
        redeem(&claims, *id, by).unwrap();
    }
    end(claims);
    let closed = "{\"closed\":0}\n".to_owned();
    for by in [5, 6, 7] {
        put(&place, &format!("{}/entities.jsonl", session(by)), closed.clone());
    }
    put(&place, &format!("{}.1/entities.jsonl", session(5)), format!("{}{closed}", line(1, ids[0])));
    // These two sessions may still continue; the list of one contains its entity.
    put(&place, &format!(".open/{}.1/0000000000-0000000000.jsonl", session(6)), String::new());
    put(&place, &format!(".open/{}.1/0000000000-0000000000.jsonl", session(7)), line(1, ids[3]));
    let claims = server(&place);
    assert_eq!(
        [0, 1, 2, 3].map(|index| status(&claims, ids[index])),
        [Some(Status::Complete), Some(Status::Failed), Some(Status::Processing), Some(Status::Complete)]
    );
}

#[test]
fn batches_are_put_together_and_go_when_they_are_old() {
    let (places, _folder) = places();
    for place in places {
        let claims = server(&place);
        let ids: Vec<u64> =
            (0..u32::try_from(2 * BATCHES).unwrap() + 10).map(|entity| issue(&claims, entity + 1)).collect();
        redeem(&claims, ids[0], 2).unwrap();
        end(claims);
        let count = || block_on(list(&place, LOG)).unwrap().unwrap().len();
        assert!(count() < BATCHES, "{} objects", count());
        let again = server(&place);
        assert_eq!(port::ClaimChecks::count(&*again), ids.len() as u64);
        end(again);
        let (now, kept) = (SystemTime::now(), kept(ClaimLimits::default()));
        block_on(sweep(&place, kept, now + kept / 2)).unwrap().unwrap();
        assert_eq!(read_claims_in(&place).unwrap().len(), ids.len());
        block_on(sweep(&place, kept, now + kept * 2)).unwrap().unwrap();
        assert_eq!((count(), block_on(list(&place, REDEEMED)).unwrap().unwrap().len()), (0, 0));
    }
}

#[test]
fn records_of_claim_checks_that_may_still_be_redeemed_are_not_removed() {
    let (places, folder) = places();
    let hours = |count: u64| Duration::from_secs(count * 3_600);
    let limits = ClaimLimits { life: hours(48), ..ClaimLimits::default() };
    let start = || Claims::in_store(&places[1], limits).unwrap();
    let claims = start();
    let id = issue(&claims, 1);
    redeem(&claims, id, 2).unwrap();
    end(claims);
    for below in [LOG, REDEEMED] {
        for entry in std::fs::read_dir(folder.path().join("sink").join(FOLDER).join(below)).unwrap() {
            let object = std::fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
            object.set_modified(SystemTime::now() - hours(30)).unwrap();
        }
    }
    // The first record of a server makes it remove old objects.
    let claims = start();
    issue(&claims, 2);
    end(claims);
    let claims = start();
    assert_eq!((port::ClaimChecks::count(&*claims), redeem(&claims, id, 3)), (2, REFUSED));
    assert_eq!(block_on(list(&places[1], REDEEMED)).unwrap().unwrap().len(), 1);
}

#[test]
fn nothing_is_issued_that_the_store_did_not_take_and_nothing_redeemed() {
    let place = ObjectPrefix::of(Arc::new(InMemory::new()), "sink");
    let claims = server(&place);
    let id = issue(&claims, 1);
    let store = LocalFileSystem::new_with_prefix("/proc/self").unwrap();
    let broken = Arc::new(Claims::of(
        crate::claims::Home::Objects(SharedClaims::new(ObjectPrefix::of(Arc::new(store), "sink")).unwrap()),
        ClaimLimits::default(),
    ));
    let terms = ClaimTerms { session: session(1), scope: 2, entity: 1, life: None, validation: None };
    assert!(block_on(broken.issue(&terms, Details::default())).unwrap().is_err());
    assert_eq!((port::ClaimChecks::count(&*broken), port::ClaimChecks::count(&*claims)), (0, 1));
    assert_eq!(redeem(&claims, id, 4), Ok(()));
}
