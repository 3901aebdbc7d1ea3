//! Bodies, in both directions.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use penstock_pimp::{Code, Error};
use penstock_wire::Limit;
use tokio::time::timeout;

use super::answer::Refused;
use super::budget::Room;

/// How long a body may take (decision 3), and each part of one that is larger.
const PATIENCE: Duration = Duration::from_secs(10);
const PART: u64 = 512 << 10;

/// Why an answer has broken off: who reads it must not take it for whole.
#[derive(Debug)]
pub struct Broken(Refused);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer breaks off: {:?}", self.0)
    }
}

impl std::error::Error for Broken {}

impl From<Refused> for Broken {
    fn from(refused: Refused) -> Self {
        Self(refused)
    }
}

impl From<crate::Error> for Broken {
    fn from(error: crate::Error) -> Self {
        Self(error.into())
    }
}

/// The octets of an answer: all of them, or as the client takes them.
pub enum Octets {
    /// All of them.
    Whole(Bytes),
    /// As the client takes them.
    Stream {
        /// Them.
        pieces: BoxStream<'static, Result<Bytes, Broken>>,
        /// How many are still to come, where it is known.
        left: Option<u64>,
    },
}

impl fmt::Debug for Octets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole(_) => "Whole",
            Self::Stream { .. } => "Stream",
        })
    }
}

impl Body for Octets {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut *self {
            Self::Whole(octets) if octets.is_empty() => Poll::Ready(None),
            Self::Whole(octets) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(octets))))),
            Self::Stream { pieces, left } => pieces.as_mut().poll_next(context).map(|piece| {
                let octets = piece?;
                if let (Some(left), Ok(octets)) = (left, &octets) {
                    *left = left.saturating_sub(octets.len() as u64);
                }
                Some(octets.map(Frame::data))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(octets) => octets.is_empty(),
            Self::Stream { left, .. } => *left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(octets) => SizeHint::with_exact(octets.len() as u64),
            Self::Stream { left, .. } => left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

/// A request's body, up to its limit and in its time.
struct Coming<B> {
    body: B,
    most: Limit,
    length: u64,
    /// Of the time for this part.
    left: Duration,
}

/// What became of it.
enum Ended {
    /// It is wrong.
    Wrong(Error),
    /// It did not come in its time: that is no fault of the request.
    Late,
}

impl Ended {
    fn late() -> String {
        format!("the body took longer than {} s", PATIENCE.as_secs())
    }
}

impl<B: Body<Data = Bytes> + Unpin> Coming<B> {
    const fn new(body: B, most: Limit) -> Self {
        Self { body, most, length: 0, left: PATIENCE }
    }

    /// Its next octets. Only the time in which the client is waited for counts.
    async fn next(&mut self) -> Result<Option<Bytes>, Ended> {
        loop {
            let began = Instant::now();
            let Ok(frame) = timeout(self.left, self.body.frame()).await else { return Err(Ended::Late) };
            self.left = self.left.saturating_sub(began.elapsed());
            let Some(frame) = frame else { return Ok(None) };
            let Ok(frame) = frame else {
                return Err(Ended::Wrong(Error::new(Code::Malformed, "the body broke off")));
            };
            let Ok(octets) = frame.into_data() else { continue };
            let part = self.length / PART;
            self.length = self.length.saturating_add(octets.len() as u64);
            self.most.check(self.length).map_err(|error| Ended::Wrong(error.into()))?;
            if self.length / PART > part {
                self.left = PATIENCE;
            }
            return Ok(Some(octets));
        }
    }
}

/// Reads a request's body, up to its limit and in its time.
pub(in crate::pimp) async fn read<B>(body: B, most: Limit) -> Result<Vec<u8>, Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    let (mut coming, mut octets) = (Coming::new(body, most), Vec::new());
    let wrong = |ended| match ended {
        Ended::Wrong(error) => error,
        Ended::Late => Error::new(Code::Malformed, Ended::late()),
    };
    while let Some(more) = coming.next().await.map_err(wrong)? {
        octets.extend_from_slice(&more);
    }
    Ok(octets)
}

/// The same, in room that grows with what has come: a length that is told and does not come keeps nobody waiting.
pub(super) async fn read_within<B>(body: B, most: Limit, room: &mut Room) -> Result<Vec<u8>, Refused>
where
    B: Body<Data = Bytes> + Unpin,
{
    let (mut coming, mut octets) = (Coming::new(body, most), Vec::new());
    let refused = |ended| match ended {
        Ended::Wrong(error) => Refused::Pimp(error),
        Ended::Late => Refused::Late(Ended::late()),
    };
    while let Some(more) = coming.next().await.map_err(refused)? {
        let length = octets.len() + more.len();
        if length > octets.capacity() {
            let most = usize::try_from(coming.most.value).unwrap_or(usize::MAX);
            let capacity = (octets.capacity() * 2).min(most).max(length);
            room.grow(capacity).await?;
            octets.reserve_exact(capacity - octets.len());
        }
        octets.extend_from_slice(&more);
    }
    Ok(octets)
}
