//! Removal of objects that killed servers and drivers have left in a store.
//!
//! ```text
//!  pieces of a list ── the list is whole ───────────────────────► they are removed after [`LEFTOVER_AGE`]
//!                   ── the session is prepared ─────────────────► they stay: its transaction may still be committed
//!                   ── neither, and untouched for [`ABANDONED_AGE`] ► the list is put, {"closed":1}; they are removed
//! ```
//!
//! A server touches each of its open sessions once per [`TOUCH_INTERVAL`], so a session that is
//! untouched for much longer has no server. Its acknowledged entities remain, with a list that
//! contains them, as for any session that was cut off. Each call handles some of the objects,
//! starting at a random position, so all calls together handle all.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use futures_util::stream::TryStreamExt as _;
use object_store::{Error, ObjectStoreExt as _, Result};
use penstock_io::storage::ObjectPrefix;
use penstock_pipestream::ErrorCode;

use crate::format::{LOG, TRANSACTIONS, encode};
use crate::objects::list::{self, OPEN, Piece};
use crate::objects::listing::{age, sample};

/// Age at which leftovers of a session's end are removed; before that, the session may still be ending.
const LEFTOVER_AGE: Duration = Duration::from_secs(600);
/// Maximum time between two pieces that an open session puts; without lines the piece is empty.
pub(super) const TOUCH_INTERVAL: Duration = Duration::from_secs(24 * 3_600);
/// Age at which an untouched session is considered abandoned by its server: no store is expected to
/// be unreachable for a week.
pub(super) const ABANDONED_AGE: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Interval between a server's sweeps.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_secs(6 * 3_600);
/// Maximum number of sessions that one sweep closes.
const MAX_CLOSED: usize = 16;

/// Remove leftovers once, as far as one listing shows them.
pub(super) async fn sweep(place: &ObjectPrefix, now: SystemTime) -> Result<()> {
    let mut abandoned = Vec::new();
    for OldPieces { session, pieces, untouched } in old_pieces(place, now).await? {
        match place.store().head(&place.path(&format!("{session}/{LOG}"))).await {
            Ok(_) => list::remove(place, &session, pieces).await,
            Err(Error::NotFound { .. }) if untouched >= ABANDONED_AGE => abandoned.push(session),
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    fastrand::shuffle(&mut abandoned);
    abandoned.truncate(MAX_CLOSED);
    let prepared = prepared(place, &abandoned).await?;
    for session in abandoned.into_iter().filter(|session| !prepared.contains(session)) {
        // The first listing may have contained only some of its pieces.
        let pieces: Vec<_> = place.store().list(Some(&place.path(&format!("{OPEN}/{session}")))).try_collect().await?;
        if pieces.iter().all(|piece| age(piece, now) >= ABANDONED_AGE) {
            tracing::info!(session, "no server has this session open any more: its list is closed");
            list::close_abandoned(place, &session, encode::closed(ErrorCode::InternalError)).await?;
        }
    }
    Ok(())
}

/// The old pieces of a session, as far as a listing shows them, and the age of the newest of them.
struct OldPieces {
    session: String,
    pieces: Vec<Piece>,
    untouched: Duration,
}

async fn old_pieces(place: &ObjectPrefix, now: SystemTime) -> Result<Vec<OldPieces>> {
    let mut sessions: Vec<OldPieces> = Vec::new();
    for object in sample(place, OPEN).await? {
        let mut names = object.location.as_ref().rsplit('/');
        let (Some(piece), Some(session)) = (names.next().and_then(Piece::parse), names.next()) else { continue };
        let age = age(&object, now);
        if age < LEFTOVER_AGE {
            continue;
        }
        match sessions.last_mut() {
            Some(last) if last.session == session => {
                last.pieces.push(piece);
                last.untouched = last.untouched.min(age);
            }
            Some(_) | None => {
                sessions.push(OldPieces { session: session.to_owned(), pieces: vec![piece], untouched: age });
            }
        }
    }
    Ok(sessions)
}

/// Return those of the sessions that are prepared and wait for their transaction.
async fn prepared(place: &ObjectPrefix, sessions: &[String]) -> Result<HashSet<String>> {
    let mut found = HashSet::new();
    if sessions.is_empty() {
        return Ok(found);
    }
    let mut all = place.store().list(Some(&place.path(TRANSACTIONS)));
    while let Some(object) = all.try_next().await? {
        found.extend(object.location.filename().filter(|name| sessions.iter().any(|it| it == name)).map(str::to_owned));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::encode::closed;
    use crate::objects::list::tests::{names, place, wait};
    use crate::objects::transactions;
    use crate::transactions::owner::Owner;
    use crate::transactions::{Transaction, TransactionAction, TransactionCommand};

    fn job() -> Transaction {
        Transaction { key: "job".into(), owner: Owner::Token([7; 32]) }
    }

    // Sweeps start at random positions, and one that starts after a session does not see it. These
    // IDs sort near the end, so that at least one of 100 sweeps sees them.
    const ONE: &str = "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee";
    const TWO: &str = "ffffffffffffffffffffffffffffffff";

    /// Sweep often enough to handle everything: each sweep starts at a random position.
    async fn look_everywhere(place: &ObjectPrefix, later: Duration) {
        for _ in 0..100 {
            sweep(place, SystemTime::now() + later).await.unwrap();
        }
    }

    /// Create sessions whose servers were killed.
    async fn killed(place: &ObjectPrefix, sessions: &[&str]) {
        for session in sessions {
            let mut list = list::List::new(place.clone(), (*session).into());
            list.append(b"{\"scope\":0}\n".to_vec()).await.unwrap();
        }
    }

    async fn list_of(place: &ObjectPrefix, session: &str) -> String {
        let bytes = place.store().get(&place.path(&format!("{session}/{LOG}"))).await.unwrap().bytes().await.unwrap();
        String::from_utf8(bytes.into()).unwrap()
    }

    const FIRST: Piece = Piece { first: 0, last: 0 };

    #[test]
    fn leftovers_of_a_closed_session_are_removed_once_no_server_can_use_them() {
        let place = place();
        wait(async {
            killed(&place, &[ONE, TWO]).await;
            // The server of the first was killed after it had put the list.
            list::whole(&place, ONE, &[FIRST], closed(ErrorCode::NoError)).await.unwrap();
            look_everywhere(&place, Duration::ZERO).await;
            assert_eq!(names(&place).await.len(), 3);
            look_everywhere(&place, LEFTOVER_AGE * 2).await;
            let piece = format!("sink/.open/{TWO}/{}", FIRST.name());
            assert_eq!(names(&place).await, [piece, format!("sink/{ONE}/entities.jsonl")]);
        });
    }

    #[test]
    fn a_session_without_a_server_is_closed_and_one_that_may_still_be_committed_never() {
        let place = place();
        wait(async {
            killed(&place, &[ONE, TWO]).await;
            transactions::prepare(&place, &job(), TWO).await.unwrap();
            look_everywhere(&place, ABANDONED_AGE - TOUCH_INTERVAL).await;
            assert_eq!(names(&place).await.iter().filter(|name| name.contains("/.open/")).count(), 2);
            look_everywhere(&place, ABANDONED_AGE + TOUCH_INTERVAL).await;
            assert_eq!(list_of(&place, ONE).await, "{\"scope\":0}\n{\"closed\":1}\n");
            let open: Vec<_> = names(&place).await.into_iter().filter(|name| name.contains("/.open/")).collect();
            assert_eq!(open, [format!("sink/.open/{TWO}/{}", FIRST.name())]);
            let order = TransactionCommand {
                of: job(),
                act: TransactionAction::Commit { sessions: vec![TWO.into()], exclusive: false },
            };
            transactions::carry_out(&place, &order).await.unwrap();
            assert_eq!(list_of(&place, TWO).await, "{\"scope\":0}\n{\"closed\":0}\n");
        });
    }
}
