//! Who may write a spool in an object store: who opened it last.
//!
//! ```text
//! PREFIX/writer-00000000000000000001    a claim; it holds as long as it is there
//! ```
//!
//! Nobody can tell a receiver that has died from one that is slow, so who opens a spool takes it over: it puts a claim
//! under the next number, only where there is none, removes all earlier ones, and reads what the spool has after that. A
//! writer looks for its claim before each segment, as readers may have left behind the number that it would use. It looks
//! once more before anything in the segment is acknowledged: if the claim is there then, the next owner finds the
//! segment.

use std::sync::atomic::{AtomicBool, Ordering};

use penstock_io::storage::ObjectPrefix;
use penstock_io::{Busy, DriverError as _};

use crate::requests::{create, get, list, remove};
use crate::{Error, Result};

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
            // Whoever was slow may have put a claim under a number below one that is there already: the highest one counts.
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

    /// Fails as busy where another receiver has taken the spool over. Blocks.
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
