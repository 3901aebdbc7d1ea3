//! A limit on the memory that a server's clients may use together: a total, and a share for each address.
//!
//! Requests that hold memory while they wait for more could deadlock. The rule of [`Overdraft`]
//! prevents that: one request at a time does not wait. It exceeds the limit, completes, and then
//! returns all its memory.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::admission::network;
use crate::sync::lock;

/// The unit in which memory is counted.
const UNIT: u64 = 1 << 10;
/// How long a request waits for memory before it is told to retry.
const WAIT: Duration = Duration::from_secs(10);
/// The share of one address, as a fraction of the total: one in this many.
const SHARE: u64 = 4;
/// The number of addresses at which those that hold no memory are first removed.
const ADDRESSES: usize = 64;
/// Permits that grow beyond this size may use at most three quarters of the total, so that a few
/// large bodies that never end leave memory for small ones.
const SMALL: u64 = 1 << 20;

/// The error that there is no memory now; the request may be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy;

/// The right to exceed a limit, which one request has at a time. Without it, requests that hold memory could wait for
/// each other indefinitely.
#[derive(Debug, Clone)]
pub struct Overdraft(Arc<Semaphore>);

/// The right to exceed a limit, held until this is dropped.
#[derive(Debug)]
pub struct OverdraftPermit {
    _permit: OwnedSemaphorePermit,
}

impl Default for Overdraft {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Overdraft {
    /// Take the right if it is free.
    pub fn try_take(&self) -> Option<OverdraftPermit> {
        Arc::clone(&self.0).try_acquire_owned().ok().map(|permit| OverdraftPermit { _permit: permit })
    }

    /// Take the right as soon as it is free.
    async fn take(&self) -> Result<OverdraftPermit, Busy> {
        acquired(&self.0, 1).await.map(|permit| OverdraftPermit { _permit: permit })
    }
}

/// The memory that requests may hold together, in bytes.
///
/// Each address may use only a share, so that one client cannot take all memory. For loopback there
/// is no such limit: a connection from there may be that of a proxy for unknown clients.
#[derive(Debug)]
pub struct MemoryBudget {
    all: Arc<Semaphore>,
    /// The share of one address in units.
    share: u32,
    addresses: Mutex<Addresses>,
    large: Arc<Semaphore>,
    beyond: Overdraft,
    /// The number of bytes up to which a permit grows for free.
    free: usize,
}

/// The remaining shares of the addresses.
#[derive(Debug)]
struct Addresses {
    shares: HashMap<IpAddr, Arc<Semaphore>>,
    /// The number of addresses at which those that hold no memory are removed.
    most: usize,
}

impl Default for Addresses {
    fn default() -> Self {
        Self { shares: HashMap::new(), most: ADDRESSES }
    }
}

impl Addresses {
    /// Return the share of an address. Make a share of this many units if the address has none.
    ///
    /// There are never more entries than [`ADDRESSES`], or than twice those that hold memory if
    /// that is more. So the amortised cost of the clean-up is constant, and no server has to
    /// schedule it.
    fn share(&mut self, address: IpAddr, units: u32) -> Arc<Semaphore> {
        if self.shares.len() >= self.most && !self.shares.contains_key(&address) {
            self.shares.retain(|_, share| Arc::strong_count(share) > 1);
            self.most = self.shares.len().saturating_mul(2).max(ADDRESSES);
        }
        let fresh = || Arc::new(Semaphore::new(units as usize));
        Arc::clone(self.shares.entry(address).or_insert_with(fresh))
    }
}

/// A permit for memory. Dropping it returns the memory.
#[derive(Debug)]
pub struct MemoryPermit {
    all: OwnedSemaphorePermit,
    share: Option<OwnedSemaphorePermit>,
    /// The most units to which the permit can grow.
    most: u32,
    /// Present if this permit exceeds all limits.
    beyond: Option<OverdraftPermit>,
    last: Overdraft,
    /// For a large permit, as many units as `all` has, from the part for large permits.
    large: Option<OwnedSemaphorePermit>,
    large_budget: Arc<Semaphore>,
    free: usize,
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

async fn acquired(semaphore: &Arc<Semaphore>, units: u32) -> Result<OwnedSemaphorePermit, Busy> {
    Arc::clone(semaphore).acquire_many_owned(units).await.map_err(|_| Busy)
}

impl MemoryBudget {
    /// Make a budget of `bytes` in total, of which a single request uses at most `most`.
    pub fn new(bytes: u64, most: u64) -> Self {
        let semaphore = |units: u32| Arc::new(Semaphore::new(units as usize));
        let share = units(most.max(bytes / SHARE));
        Self {
            all: semaphore(units(bytes.max(most))),
            share,
            addresses: Mutex::default(),
            large: semaphore(units(bytes - bytes / 4).max(share)),
            beyond: Overdraft::default(),
            free: 0,
        }
    }

    /// Let permits grow to this many bytes for free: the limit on connections bounds the memory
    /// that they hold this way.
    pub const fn with_free(mut self, bytes: usize) -> Self {
        self.free = bytes;
        self
    }

    fn addresses(&self) -> MutexGuard<'_, Addresses> {
        lock(&self.addresses)
    }

    fn share(&self, peer: IpAddr) -> Option<Arc<Semaphore>> {
        (!peer.is_loopback()).then(|| self.addresses().share(network(peer), self.share))
    }

    /// Reserve this many bytes, or as many as one address may have. Fail with [`Busy`] if they are
    /// not available within 10 s.
    pub async fn reserve(&self, peer: IpAddr, bytes: u64) -> Result<MemoryPermit, Busy> {
        let (wanted, share) = (units(bytes).min(self.share), self.share(peer));
        let waiting = async {
            let share = match &share {
                Some(share) => Some(acquired(share, wanted).await?),
                None => None,
            };
            let all = acquired(&self.all, wanted).await?;
            let (last, large_budget) = (self.beyond.clone(), Arc::clone(&self.large));
            Ok(MemoryPermit {
                all,
                share,
                most: self.share,
                beyond: None,
                last,
                large: None,
                large_budget,
                free: self.free,
            })
        };
        timeout(WAIT, waiting).await.unwrap_or(Err(Busy))
    }

    /// Return how many bytes are free.
    pub fn free(&self) -> u64 {
        self.all.available_permits() as u64 * UNIT
    }
}

impl MemoryPermit {
    /// Return the memory that is not needed for this many bytes.
    pub fn shrink(&mut self, bytes: usize) {
        for permit in [Some(&mut self.all), self.share.as_mut(), self.large.as_mut()].into_iter().flatten() {
            drop(permit.split(permit.num_permits().saturating_sub(units(bytes as u64) as usize)));
        }
    }

    /// Grow the permit to this many bytes in total.
    ///
    /// The permit holds its memory while it waits for more, so the rule of [`Overdraft`] applies.
    /// Fail with [`Busy`] if there is no memory for 10 s.
    pub async fn grow(&mut self, bytes: usize) -> Result<(), Busy> {
        let (wanted, had) = (units(bytes as u64).min(self.most), units(self.all.num_permits() as u64 * UNIT));
        let more = wanted.saturating_sub(had);
        if more == 0 || self.beyond.is_some() || bytes <= self.free {
            return Ok(());
        }
        let is_large = bytes as u64 > SMALL;
        let had_large = self.large.as_ref().map_or(0, |large| units(large.num_permits() as u64 * UNIT));
        let both = async {
            let share = match &self.share {
                Some(share) => Some(acquired(share.semaphore(), more).await?),
                None => None,
            };
            let large = match is_large {
                true => Some(acquired(&self.large_budget, wanted.saturating_sub(had_large)).await?),
                false => None,
            };
            Ok::<_, Busy>((acquired(self.all.semaphore(), more).await?, share, large))
        };
        let (all, share, large) = tokio::select! {
            biased;
            both = both => both?,
            beyond = timeout(WAIT, self.last.take()) => {
                self.beyond = Some(beyond.unwrap_or(Err(Busy))?);
                return Ok(());
            }
        };
        self.all.merge(all);
        if let (Some(had), Some(share)) = (&mut self.share, share) {
            had.merge(share);
        }
        match (&mut self.large, large) {
            (Some(had), Some(large)) => had.merge(large),
            (had, Some(large)) => *had = Some(large),
            (_, None) => {}
        }
        Ok(())
    }

    /// Turn bytes into a [`Bytes`] that returns the memory when its last clone is dropped.
    pub fn holds(mut self, bytes: Vec<u8>) -> Bytes {
        self.shrink(bytes.capacity());
        Bytes::from_owner(PermittedBytes { bytes, _permit: self })
    }
}

struct PermittedBytes {
    bytes: Vec<u8>,
    _permit: MemoryPermit,
}

impl AsRef<[u8]> for PermittedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::block_on;

    const KIB: u64 = 1 << 10;

    fn reserve(budget: &MemoryBudget, peer: [u8; 4], bytes: u64) -> MemoryPermit {
        block_on(budget.reserve(peer.into(), bytes)).expect("runs").expect("there is room")
    }

    fn is_full(budget: &MemoryBudget, peer: [u8; 4], bytes: u64) -> bool {
        let waiting = async { timeout(Duration::from_millis(20), budget.reserve(peer.into(), bytes)).await.is_err() };
        block_on(waiting).expect("runs")
    }

    #[test]
    fn an_address_has_its_share_and_gives_it_back_with_the_bytes() {
        let budget = MemoryBudget::new(8 * KIB, KIB);
        let one = reserve(&budget, [192, 0, 2, 1], 2 * KIB);
        assert!(is_full(&budget, [192, 0, 2, 1], 1), "a quarter is its share");
        let two = reserve(&budget, [192, 0, 2, 2], 2 * KIB);
        let here = reserve(&budget, [127, 0, 0, 1], 2 * KIB);
        let _more = reserve(&budget, [127, 0, 0, 1], 2 * KIB);
        assert!(is_full(&budget, [192, 0, 2, 3], 1));
        let bytes = one.holds(Vec::with_capacity(1_024));
        assert_eq!(budget.free(), KIB);
        drop((bytes, two, here));
        assert_eq!(budget.free(), 6 * KIB);
    }

    #[test]
    fn addresses_that_hold_nothing_are_forgotten_and_those_that_hold_something_are_not() {
        let budget = MemoryBudget::new(1 << 20, KIB);
        let of = |number: u32| (0xC000_0200 + number).to_be_bytes();
        let held: Vec<_> = (0..100).map(|number| reserve(&budget, of(number), KIB)).collect();
        for number in 100..10_000 {
            drop(reserve(&budget, of(number), KIB));
            let known = budget.addresses().shares.len();
            assert!(known <= 200, "{known} addresses");
        }
        assert!(held.len() == 100 && (0..100).all(|number| budget.addresses().shares.contains_key(&of(number).into())));
    }

    #[test]
    fn an_ipv6_network_has_one_share() {
        let budget = MemoryBudget::new(8 * KIB, KIB);
        let of = |last| IpAddr::from([0x2001, 0xdb8, 0, 7, 1, 2, 3, last]);
        let _held = block_on(budget.reserve(of(1), 2 * KIB)).expect("runs").expect("there is room");
        let next = async { timeout(Duration::from_millis(20), budget.reserve(of(2), 1)).await.is_err() };
        assert!(block_on(next).expect("runs"), "another address of the same network");
        let other = IpAddr::from([0x2001, 0xdb8, 0, 8, 1, 2, 3, 1]);
        assert!(block_on(budget.reserve(other, KIB)).expect("runs").is_ok());
    }

    #[test]
    fn large_ones_that_do_not_end_leave_room_for_small_ones_and_the_smallest_need_none() {
        const MIB: usize = 1 << 20;
        let budget = MemoryBudget::new(16 * MIB as u64, 4 * MIB as u64).with_free(64 << 10);
        let grown = async {
            let mut held = Vec::new();
            // The fourth permit exceeds the limit, which no other permit may do.
            for _ in 0..4 {
                let mut permit = budget.reserve([127, 0, 0, 1].into(), 0).await?;
                permit.grow(MIB).await?;
                permit.grow(4 * MIB).await?;
                held.push(permit);
            }
            let mut large = budget.reserve([127, 0, 0, 1].into(), 0).await?;
            let waits = timeout(Duration::from_millis(20), large.grow(2 * MIB)).await.is_err();
            let mut small = budget.reserve([127, 0, 0, 1].into(), 0).await?;
            small.grow(MIB).await?;
            let left = budget.free();
            small.grow(64 << 10).await?;
            let mut smallest = budget.reserve([127, 0, 0, 1].into(), 0).await?;
            smallest.grow(64 << 10).await?;
            assert_eq!(budget.free(), left, "64 KiB are free");
            held.clear();
            large.grow(4 * MIB).await.map(|()| waits)
        };
        assert_eq!(block_on(grown).expect("runs"), Ok(true));
        assert_eq!(budget.free(), 16 * MIB as u64);
    }

    #[test]
    fn permits_that_grow_do_not_deadlock() {
        let budget = MemoryBudget::new(4 * KIB, 4 * KIB);
        let (mut one, mut two) = (reserve(&budget, [127, 0, 0, 1], KIB), reserve(&budget, [127, 0, 0, 1], KIB));
        let grown = async {
            one.grow(2_048).await?;
            two.grow(2_048).await?;
            one.grow(4_096).await
        };
        assert!(block_on(grown).expect("runs").is_ok());
        let waiting = async { timeout(Duration::from_millis(20), two.grow(4_096)).await.is_err() };
        assert!(block_on(waiting).expect("runs"), "one at a time goes beyond");
        drop(one);
        assert!(block_on(two.grow(4_096)).expect("runs").is_ok());
    }
}
