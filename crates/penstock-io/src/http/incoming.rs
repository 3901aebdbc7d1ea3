//! Bodies of requests, with a maximum length, a minimum rate and a total time. Their memory grows
//! with the bytes that have arrived, and all bodies of a server share one budget.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;
use penstock_wire::{Limit, LimitExceeded};
use tokio::time::{Instant, timeout};

use crate::memory::{Busy, MemoryBudget, MemoryPermit};

/// How long each part of a body may take, so that the minimum rate is 51 KiB a second.
const PART_TIMEOUT: Duration = Duration::from_secs(10);
const PART: u64 = 512 << 10;
/// How long a body may take in total, whatever its rate.
const TOTAL: Duration = Duration::from_secs(900);
/// The number of largest bodies that fit into a server's memory for bodies.
const BODIES: u64 = 4;

/// Why a body was not read to its end.
#[derive(Debug)]
pub enum BodyError {
    /// The body is longer than allowed.
    TooLarge(LimitExceeded),
    /// The client closed the connection.
    Broken,
    /// The body arrived too slowly; the text names the allowed time.
    Late(String),
    /// There was no memory for the body.
    Busy,
}

impl From<Busy> for BodyError {
    fn from(_: Busy) -> Self {
        Self::Busy
    }
}

/// A body that is arriving. Only the time spent waiting for the client counts.
struct IncomingBody<B> {
    body: B,
    most: Limit,
    length: u64,
    /// The time allowed for a part.
    part_timeout: Duration,
    /// The time left for this part.
    part_remaining: Duration,
    /// The time left for the whole body.
    total_remaining: Duration,
}

impl<B: Body<Data = Bytes> + Unpin> IncomingBody<B> {
    const fn new(body: B, most: Limit) -> Self {
        Self { body, most, length: 0, part_timeout: PART_TIMEOUT, part_remaining: PART_TIMEOUT, total_remaining: TOTAL }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            let began = Instant::now();
            let Ok(frame) = timeout(self.part_remaining.min(self.total_remaining), self.body.frame()).await else {
                return Err(BodyError::Late(self.late()));
            };
            let waited = began.elapsed();
            (self.part_remaining, self.total_remaining) =
                (self.part_remaining.saturating_sub(waited), self.total_remaining.saturating_sub(waited));
            let Some(frame) = frame else { return Ok(None) };
            let Ok(frame) = frame else { return Err(BodyError::Broken) };
            let Ok(bytes) = frame.into_data() else { continue };
            let part = self.length / PART;
            self.length = self.length.saturating_add(bytes.len() as u64);
            self.most.check(self.length).map_err(BodyError::TooLarge)?;
            if self.length / PART > part {
                self.part_remaining = self.part_timeout;
            }
            return Ok(Some(bytes));
        }
    }

    fn late(&self) -> String {
        let limit = if self.total_remaining < self.part_remaining { TOTAL } else { PART_TIMEOUT };
        format!("the body took longer than {} s", limit.as_secs())
    }
}

/// The memory that the bodies of a server's requests may use together.
#[derive(Debug)]
pub struct BodyBudget {
    memory: MemoryBudget,
}

impl BodyBudget {
    /// Make the budget of a server whose largest body has `most` bytes: the memory of [`BODIES`] such bodies.
    ///
    /// Bodies of up to `free` bytes do not count: the limit on connections bounds their memory.
    pub fn new(most: u64, free: usize) -> Self {
        Self { memory: MemoryBudget::new(most.saturating_mul(BODIES), most).with_free(free) }
    }

    /// Read a body of up to `most` bytes. The permit stands for its memory: hold it as long as the
    /// body, or data made from it, is in memory.
    ///
    /// A longer body is refused before any of it is read, if the request states its length. The
    /// memory grows with the bytes that have arrived: a client that states a length and does not
    /// send the body delays no other request.
    pub async fn read<B>(&self, body: B, most: Limit, peer: IpAddr) -> Result<(Vec<u8>, MemoryPermit), BodyError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let stated = body.size_hint().exact();
        most.check(stated.unwrap_or(0)).map_err(BodyError::TooLarge)?;
        // No more memory is taken than the stated length needs.
        let most = Limit { value: stated.unwrap_or(most.value), ..most };
        let largest = usize::try_from(most.value).unwrap_or(usize::MAX);
        let mut permit = self.memory.reserve(peer, 0).await?;
        let (mut arrival, mut bytes) = (IncomingBody::new(body, most), Vec::new());
        while let Some(more) = arrival.next().await? {
            let length = bytes.len().saturating_add(more.len());
            if length > bytes.capacity() {
                let capacity = bytes.capacity().saturating_mul(2).min(largest).max(length);
                permit.grow(capacity).await?;
                bytes.reserve_exact(capacity.saturating_sub(bytes.len()));
            }
            bytes.extend_from_slice(&more);
        }
        Ok((bytes, permit))
    }

    /// Return how many bytes are free.
    pub fn free(&self) -> u64 {
        self.memory.free()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use futures_util::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use tokio::time::sleep;

    use super::*;
    use crate::runtime::{block_on, spawn};

    const MOST: Limit = Limit { name: "body", value: 8 << 20 };

    /// Return a body that yields this many bytes after each pause.
    fn dripping(bytes: usize, pause: Duration) -> impl Body<Data = Bytes, Error = Infallible> + Send + Unpin {
        let (near, mut far) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            while near.send(Ok(Frame::data(Bytes::from(vec![7; bytes])))).await.is_ok() {
                sleep(pause).await;
            }
        });
        StreamBody::new(stream::poll_fn(move |context| far.poll_recv(context)))
    }

    /// Read until the end; return why it ended, and how many bytes were read.
    fn ended(bytes: usize, part_timeout: Duration, total_remaining: Duration) -> (String, u64) {
        let reading = async move {
            let body = dripping(bytes, Duration::from_millis(10));
            let mut arrival = IncomingBody {
                part_timeout,
                part_remaining: part_timeout,
                total_remaining,
                ..IncomingBody::new(body, MOST)
            };
            loop {
                match arrival.next().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return ("whole".to_owned(), arrival.length),
                    Err(BodyError::Late(why)) => return (why, arrival.length),
                    Err(other) => return (format!("{other:?}"), arrival.length),
                }
            }
        };
        block_on(spawn(reading).expect("runs")).expect("waited").expect("ended")
    }

    #[test]
    fn a_drip_below_the_least_rate_is_ended_though_something_comes_all_the_time() {
        let (why, length) = ended(16, Duration::from_millis(200), TOTAL);
        assert!(why.contains("longer than 10 s") && (16..PART).contains(&length), "{why} after {length}");
    }

    #[test]
    fn a_body_at_a_good_rate_is_ended_when_its_total_time_is_over() {
        let part_timeout = Duration::from_secs(10);
        let (why, length) = ended(64 << 10, part_timeout, Duration::from_millis(300));
        assert!(why.contains("longer than 900 s") && length > 64 << 10, "{why} after {length}");
        // Without the total time only the length limits the body.
        assert!(ended(512 << 10, part_timeout, TOTAL).0.contains("TooLarge"));
    }

    /// Return a body of this many bytes, in pieces.
    fn whole(bytes: u64) -> impl Body<Data = Bytes, Error = Infallible> + Send + Unpin {
        let pieces = (0..bytes.div_ceil(64 << 10)).map(|_| Ok(Frame::data(Bytes::from(vec![7; 64 << 10]))));
        StreamBody::new(stream::iter(pieces))
    }

    #[test]
    fn bodies_that_come_at_once_wait_for_memory_until_earlier_ones_are_answered() {
        const BODY: u64 = 2 << 20;
        let budget = Arc::new(BodyBudget::new(BODY, 0));
        let (all, limit) = (budget.free(), Limit::new("body", BODY));
        let (sender, mut read) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..32 {
            let (budget, sender) = (Arc::clone(&budget), sender.clone());
            let reading = async move {
                let read = budget.read(whole(BODY), limit, [127, 0, 0, 1].into()).await;
                sender.send(read.expect("there is room in time")).expect("awaited");
            };
            drop(spawn(reading).expect("runs"));
        }
        drop(sender);
        let answering = async {
            let mut answered = 0;
            let mut held = Vec::new();
            loop {
                match timeout(Duration::from_millis(50), read.recv()).await {
                    Ok(Some(body)) => held.push(body),
                    Ok(None) => return answered + held.len(),
                    // No other body fits: answer one.
                    Err(_) => answered += usize::from(held.pop().is_some()),
                }
                // Four bodies, and the one that may exceed the limit.
                assert!(held.len() <= 5, "{} bodies are in memory", held.len());
            }
        };
        assert_eq!(block_on(answering).expect("runs"), 32);
        assert_eq!(budget.free(), all);
    }

    #[test]
    fn a_body_that_states_a_length_beyond_its_limit_is_not_read() {
        let budget = BodyBudget::new(1 << 10, 0);
        let body = http_body_util::Full::new(Bytes::from(vec![7; 1_025]));
        let read = block_on(budget.read(body, Limit::new("body", 1 << 10), [127, 0, 0, 1].into())).expect("runs");
        assert!(matches!(read, Err(BodyError::TooLarge(LimitExceeded { limit: 1_024, actual: 1_025, .. }))));
    }
}
