//! The right to write a spool in an object store, which belongs to the process that opened it last.
//!
//! ```text
//! PREFIX/writer-00000000000000000001    a claim; it holds for as long as the object exists
//! ```
//!
//! A dead receiver looks like a slow one, so a receiver that opens a spool takes it over: it creates
//! a claim under the next number, removes all earlier claims, and only then reads the spool. A writer
//! checks its claim before each segment, because readers may be past the number that it would use. It
//! checks again before anything in the segment is acknowledged: if the claim still exists then, the
//! next owner finds the segment.

use std::sync::atomic::{AtomicBool, Ordering};

use penstock_io::storage::ObjectPrefix;
use penstock_io::{Busy, DriverError as _};

use crate::requests::{create, get, list, remove};
use crate::{Error, Result};

const PREFIX: &str = "writer-";
/// The most attempts; each one fails because another process is faster.
const TRIES: usize = 16;

/// The right to write a spool.
#[derive(Debug)]
pub(super) struct Claim {
    place: ObjectPrefix,
    name: String,
    /// The object's content: if all claims were removed, another process may have a claim of the
    /// same number.
    content: String,
    is_lost: AtomicBool,
}

fn name_of(number: u64) -> String {
    format!("{PREFIX}{number:020}")
}

fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX).filter(|digits| digits.len() == 20)?.parse().ok()
}

/// Return the numbers of all claims, in ascending order.
fn numbers(place: &ObjectPrefix) -> Result<Vec<u64>> {
    let found = list(place, PREFIX)?;
    let mut numbers: Vec<u64> =
        found.iter().filter_map(|object| object.location.filename().and_then(number_of)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

impl Claim {
    /// Take over a spool. Blocks.
    pub(super) fn take(place: &ObjectPrefix) -> Result<Self> {
        let content = format!("{:032x}", fastrand::u128(..));
        for _ in 0..TRIES {
            let number = numbers(place)?.last().map_or(1, |last| last + 1);
            let name = name_of(number);
            if !create(place, &name, content.as_bytes().to_vec())? {
                continue;
            }
            // A slow process may create a claim below a number that exists already. The highest
            // number counts.
            let claims = numbers(place)?;
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
        Err(Error::busy(Busy::Conflict { what: format!("the spool {}", place.uri()), tries: TRIES }))
    }

    /// Check the claim. Fails as busy where another receiver has taken the spool over. Blocks.
    pub(super) fn check(&self) -> Result<()> {
        if !self.is_lost.load(Ordering::SeqCst)
            && get(&self.place, &self.name)?.as_deref() == Some(self.content.as_bytes())
        {
            return Ok(());
        }
        self.is_lost.store(true, Ordering::SeqCst);
        let successor = "another receiver has opened this spool";
        Err(Error::busy(Busy::TakenOver { place: self.place.uri().to_owned(), successor }))
    }
}
