//! The control stream's frames (section 6), one file for each, with encoder, decoder and tests.
//!
//! ```text
//! 0x50-0x7F  fixed      type, fields                          size by type (STATUS: also by its flags)
//! 0x80-0xFF  variable   type, length (4 bytes), protobuf     length at most 16,777,215
//! ```
//!
//! | type | frame | | type | frame |
//! |---|---|---|---|---|
//! | 0x50 | STATUS | | 0x80 | CAPABILITIES |
//! | 0x54 | SCOPE_DIGEST | | 0x81 | CHECKPOINT |
//! | 0x55 | BARRIER | | 0xC0 | ERROR (decision 20) |
//!
//! Every other type from 0xC1 up is skipped by its length and reported; every other type below that is ENTITY_INVALID
//! at its first byte (decision 3). Once layer 2 is agreed on, 0xC1 to 0xC5 are parsed too ([`Layer2Frame`]). The
//! session decides whether a frame is allowed now, and at which layer. Entity streams carry no frames of this kind, but
//! an [`EntityHeader`] and a payload.

mod barrier;
mod capabilities;
mod checkpoint;
mod decoder;
mod entity;
mod error_frame;
mod layer2;
mod scope_digest;
mod status;
mod variable;

use bytes::{Bytes, BytesMut};

pub use self::barrier::Barrier;
pub use self::capabilities::{Agreement, Capabilities};
pub use self::checkpoint::Checkpoint;
pub use self::decoder::FrameDecoder;
pub(crate) use self::entity::{ATTEMPT, CHILD_SCOPE, DEHYDRATED, ORIGINAL_LENGTH, PARENT_SCOPE, decimal_scope};
pub use self::entity::{ChunkInfo, EntityHeader, HeaderDecoder};
pub use self::error_frame::ErrorFrame;
pub use self::layer2::{ClaimResponse, FoundClaim, Layer2Frame, SessionFrame};
pub use self::scope_digest::ScopeDigest;
pub use self::status::{Extension, StatusFrame, YieldReason};
use self::variable::{VARIABLE_HEAD, to_vec, variable_length};
use crate::entity_id::CONNECTION_LEVEL;
use crate::error::{Malformed, Result};
use crate::status::Status;

/// A frame of the control stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// 0x50.
    Status(StatusFrame),
    /// 0x54.
    ScopeDigest(ScopeDigest),
    /// 0x55.
    Barrier(Barrier),
    /// 0x80.
    Capabilities(Capabilities),
    /// 0x81.
    Checkpoint(Checkpoint),
    /// 0xC0.
    Error(ErrorFrame),
    /// 0xC1 to 0xC5 once layer 2 is agreed on.
    Layer2(Layer2Frame),
    /// 0xC1 to 0xFF otherwise, by type: its payload is skipped.
    Private(u8),
}

impl Frame {
    /// Return the heartbeat: STATUS UNSPECIFIED of the connection, which every peer ignores (section 5.1.3).
    pub const fn heartbeat() -> Self {
        Self::Status(StatusFrame {
            status: Status::Unspecified,
            entity_id: CONNECTION_LEVEL,
            scope_id: 0,
            depth: 0,
            cursor: None,
            extension: None,
        })
    }

    /// Return the frame's type byte.
    pub const fn frame_type(&self) -> u8 {
        match self {
            Self::Status(_) => status::TYPE,
            Self::ScopeDigest(_) => scope_digest::TYPE,
            Self::Barrier(_) => barrier::TYPE,
            Self::Capabilities(_) => capabilities::TYPE,
            Self::Checkpoint(_) => checkpoint::TYPE,
            Self::Error(_) => error_frame::TYPE,
            Self::Layer2(frame) => frame.frame_type(),
            Self::Private(frame_type) => *frame_type,
        }
    }

    /// Append the frame, from its type byte on. A private frame is written without a payload.
    pub fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Status(frame) => frame.encode(out),
            Self::ScopeDigest(frame) => frame.encode(out),
            Self::Barrier(frame) => frame.encode(out),
            Self::Capabilities(frame) => frame.encode(out),
            Self::Checkpoint(frame) => frame.encode(out),
            Self::Error(frame) => frame.encode(out),
            Self::Layer2(frame) => frame.encode(out),
            Self::Private(frame_type) => out.extend_from_slice(&[*frame_type, 0, 0, 0, 0]),
        }
    }

    /// Return the bytes of the frame.
    pub fn encode_to_vec(&self) -> Vec<u8> {
        to_vec(|out| self.encode(out))
    }

    /// Return the first frame of `bytes` and its length; `None` while it is incomplete.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>> {
        Self::decode_at(bytes, Layers::UpTo1)
    }

    /// Decode like [`decode`](Self::decode), with layer 2 agreed on: 0xC1 to 0xC5 are parsed.
    pub fn decode_layer2(bytes: &[u8]) -> Result<Option<(Self, usize)>> {
        Self::decode_at(bytes, Layers::UpTo2)
    }

    fn decode_at(bytes: &[u8], layers: Layers) -> Result<Option<(Self, usize)>> {
        let Some(extent) = measure(bytes, layers)? else { return Ok(None) };
        match extent {
            Extent::Whole(length) => match bytes.get(..length) {
                Some(whole) => Ok(Some((parse(&Bytes::copy_from_slice(whole))?, length))),
                None => Ok(None),
            },
            Extent::Skipped { frame_type, payload } => {
                let length = VARIABLE_HEAD.saturating_add(payload);
                Ok((bytes.len() >= length).then_some((Self::Private(frame_type), length)))
            }
        }
    }
}

/// The layers whose frames are parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Layers {
    #[default]
    UpTo1,
    UpTo2,
}

/// The extent of a frame, as its first bytes state it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// The frame has this many bytes, including the type.
    Whole(usize),
    /// After the head there are `payload` bytes to skip.
    Skipped { frame_type: u8, payload: usize },
}

/// Return the length of the first frame of `bytes`; `None` while too few bytes have arrived. A
/// frame with an invalid head is rejected here, before its payload is buffered.
fn measure(bytes: &[u8], layers: Layers) -> Result<Option<Extent>> {
    let Some(frame_type) = bytes.first().copied() else { return Ok(None) };
    let whole = |payload: usize| Extent::Whole(VARIABLE_HEAD.saturating_add(payload));
    match frame_type {
        status::TYPE => Ok(StatusFrame::measure(bytes)?.map(Extent::Whole)),
        scope_digest::TYPE => Ok(Some(Extent::Whole(scope_digest::LENGTH))),
        barrier::TYPE => Ok(Some(Extent::Whole(barrier::LENGTH))),
        capabilities::TYPE | checkpoint::TYPE | error_frame::TYPE => Ok(variable_length(bytes)?.map(whole)),
        _ if layers == Layers::UpTo2 && Layer2Frame::has_type(frame_type) => Ok(variable_length(bytes)?.map(whole)),
        0xC1..=0xFF => Ok(variable_length(bytes)?.map(|payload| Extent::Skipped { frame_type, payload })),
        0x00..=0x4F => Err(Malformed::FrameType(frame_type).into()),
        0x51..=0x53 | 0x56..=0x7F | 0x82..=0xBF => Err(Malformed::ReservedType(frame_type).into()),
    }
}

/// Parse a whole frame, as cut out by [`measure`].
fn parse(whole: &Bytes) -> Result<Frame> {
    let payload = || whole.get(VARIABLE_HEAD..).unwrap_or_default();
    match whole.first().copied() {
        Some(status::TYPE) => StatusFrame::parse(whole).map(Frame::Status),
        Some(scope_digest::TYPE) => ScopeDigest::parse(whole).map(Frame::ScopeDigest),
        Some(barrier::TYPE) => Barrier::parse(whole).map(Frame::Barrier),
        Some(capabilities::TYPE) => Capabilities::parse(payload()).map(Frame::Capabilities),
        Some(checkpoint::TYPE) => Checkpoint::parse(payload()).map(Frame::Checkpoint),
        Some(error_frame::TYPE) => ErrorFrame::parse(payload()).map(Frame::Error),
        Some(frame_type) if Layer2Frame::has_type(frame_type) => {
            Layer2Frame::parse(frame_type, payload()).map(Frame::Layer2)
        }
        other => Err(Malformed::NoFrame(other).into()),
    }
}
