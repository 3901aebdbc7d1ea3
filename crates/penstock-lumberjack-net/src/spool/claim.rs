//! Who may write a spool in an object store: who opened it last.
//!
//! ```text
//! PREFIX/writer-00000000000000000001    a claim; it holds as long as it is there
//! ```
//!
//! Nobody can tell a receiver that has died from one that is slow, so who opens a spool takes it over: it puts a claim
//! under the next number, only where there is none, removes all earlier ones, and reads what the spool has after that. A
//! writer looks for its claim before each segment, as readers may have left behind the number that it would use. It looks
//! once more before anything in the segment is acknowledged: if the claim is there then, whoever takes over finds the
//! segment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::stream::TryStreamExt as _;
use object_store::{Error as StoreError, ObjectStoreExt as _, PutMode, PutOptions, PutPayload};

use super::objects::{failed, get};
use crate::{Error, Result};
use penstock_io::DriverError as _;
use penstock_io::runtime::block_on;
use penstock_io::storage::ObjectPrefix;

const PREFIX: &str = "writer-";
/// Others that may be faster, one after another, before it is given up.
const TRIES: usize = 16;

/// The right to write a spool.
#[derive(Debug)]
pub(super) struct Claim {
    place: ObjectPrefix,
    name: String,
    /// What is in the object: somebody may have removed all claims, and another one has the same number.
    content: String,
    is_lost: AtomicBool,
}

fn name_of(number: u64) -> String {
    format!("{PREFIX}{number:020}")
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX).filter(|digits| digits.len() == 20)?.parse().ok()
}

/// The numbers of all claims, in their order.
fn list(place: &ObjectPrefix) -> Result<Vec<u64>> {
    let (store, offset) = (Arc::clone(place.store()), place.path(PREFIX));
    let listed: object_store::Result<Vec<_>> =
        block_on(async { store.list_with_offset(Some(&place.path("")), &offset).try_collect().await })?;
    let found = listed.map_err(|error| failed(place, "list", "", &error))?;
    let mut numbers: Vec<u64> =
        found.iter().filter_map(|object| object.location.filename().and_then(number_of)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Puts a claim; false where there is one of that number.
fn put(place: &ObjectPrefix, name: &str, content: &str) -> Result<bool> {
    let (store, path) = (Arc::clone(place.store()), place.path(name));
    let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    let payload = PutPayload::from(content.as_bytes().to_vec());
    match block_on(async { store.put_opts(&path, payload, options).await })? {
        Ok(_) => Ok(true),
        Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(false),
        Err(error) => Err(failed(place, "write", name, &error)),
    }
}

fn remove(place: &ObjectPrefix, name: &str) -> Result<()> {
    let (store, path) = (Arc::clone(place.store()), place.path(name));
    match block_on(async { store.delete(&path).await })? {
        Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
        Err(error) => Err(failed(place, "remove", name, &error)),
    }
}

impl Claim {
    /// Takes a spool over. Blocks.
    pub(super) fn take(place: &ObjectPrefix) -> Result<Self> {
        let content = format!("{:032x}", fastrand::u128(..));
        for _ in 0..TRIES {
            let number = list(place)?.last().map_or(1, |last| last + 1);
            let name = name_of(number);
            if !put(place, &name, &content)? {
                continue;
            }
            // Whoever was slow may have put a claim under a number below one that is there already: the highest one counts.
            let claims = list(place)?;
            if claims.last().is_some_and(|last| *last > number) {
                remove(place, &name)?;
                continue;
            }
            for earlier in claims.into_iter().filter(|earlier| *earlier < number) {
                remove(place, &name_of(earlier))?;
            }
            let claim = Self { place: place.clone(), name, content, is_lost: AtomicBool::new(false) };
            claim.check()?;
            return Ok(claim);
        }
        Err(Error::busy(format!("{}: other receivers open this spool again and again", place.uri())))
    }

    /// Fails as a misuse where another receiver has taken the spool over. Blocks.
    pub(super) fn check(&self) -> Result<()> {
        if !self.is_lost.load(Ordering::SeqCst)
            && get(&self.place, &self.name)?.as_deref() == Some(self.content.as_bytes())
        {
            return Ok(());
        }
        self.is_lost.store(true, Ordering::SeqCst);
        let uri = self.place.uri();
        Err(Error::busy(format!(
            "{uri}: another receiver has opened this spool since, and this one writes nothing more"
        )))
    }
}
