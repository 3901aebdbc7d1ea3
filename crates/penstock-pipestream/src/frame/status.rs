//! STATUS, 0x50 (sections 6.2 and 6.5): 12 bytes, then a cursor if C, then an extension if E.
//!
//! ```text
//!  byte 0     1                 2         3   4          8          10
//!       +------+--------+-+-+---+----------+---+----------+----------+----------+
//!       | 0x50 | Stat 4 |E|C| D 3 | Flags 15   | Entity 32| Scope 16 | Rsvd 16  |
//!       +------+--------+-+-+-----+------------+----------+----------+----------+
//!  C=1:  new cursor 32
//!  E=1:  YIELDED   reason 8, token length 24, token
//!        DEFERRED  claim check ID 64, expiry 64 (Unix microseconds)
//! ```

use bytes::{Bytes, BytesMut};
use penstock_wire::{Reader, Writer};

use super::variable::to_vec;
use crate::error::{Error, Malformed, Misuse, Result};
use crate::sizes::{MAX_DEPTH, MAX_FRAME_LENGTH};
use crate::status::Status;

pub(super) const TYPE: u8 = 0x50;

const BASE_LENGTH: usize = 12;
const CURSOR_LENGTH: usize = 4;
const YIELD_HEAD: usize = 4;
const CLAIM_LENGTH: usize = 16;

/// The entity ID of a heartbeat (section 5.1): CONNECTION_LEVEL.
const HEARTBEAT_ENTITY: u32 = 0xFFFF_FFFF;

/// An entity's new status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusFrame {
    /// The status.
    pub status: Status,
    /// The entity, or CONNECTION_LEVEL in a heartbeat.
    pub entity_id: u32,
    /// The entity's scope.
    pub scope_id: u16,
    /// The scope's depth, 0 to 7.
    pub depth: u8,
    /// The scope's new cursor, if the status advances it.
    pub cursor: Option<u32>,
    /// The extension of YIELDED and DEFERRED; other statuses have none.
    pub extension: Option<Extension>,
}

/// Extension data (section 6.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extension {
    /// The extension of YIELDED.
    Yield {
        /// Why processing was paused.
        reason: YieldReason,
        /// The opaque state to continue from, at most 16,777,215 bytes.
        token: Bytes,
    },
    /// The extension of DEFERRED.
    Claim {
        /// The claim check's ID.
        claim_id: u64,
        /// When the claim check expires, in microseconds since the Unix epoch.
        expiry_micros: u64,
    },
}

/// The reason why an entity was paused (section 6.5.1.1). 0x0 and 0x06-0xFF are reserved:
/// ENTITY_INVALID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum YieldReason {
    /// 0x1: waits for an external service.
    ExternalCall = 0x1,
    /// 0x2: throttles itself.
    RateLimited = 0x2,
    /// 0x3: waits for a sibling.
    AwaitingSibling = 0x3,
    /// 0x4: waits for a person or a workflow.
    AwaitingApproval = 0x4,
    /// 0x5: waits for a semaphore or a lock.
    ResourceBusy = 0x5,
}

impl YieldReason {
    /// Every reason, in the order of the registry.
    pub const ALL: [Self; 5] =
        [Self::ExternalCall, Self::RateLimited, Self::AwaitingSibling, Self::AwaitingApproval, Self::ResourceBusy];

    /// Return the 8-bit code.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Return the registry's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ExternalCall => "EXTERNAL_CALL",
            Self::RateLimited => "RATE_LIMITED",
            Self::AwaitingSibling => "AWAITING_SIBLING",
            Self::AwaitingApproval => "AWAITING_APPROVAL",
            Self::ResourceBusy => "RESOURCE_BUSY",
        }
    }
}

impl TryFrom<u8> for YieldReason {
    type Error = Error;

    fn try_from(code: u8) -> Result<Self> {
        Self::ALL.into_iter().find(|reason| reason.code() == code).ok_or(Malformed::YieldReason(code).into())
    }
}

/// The fields in bytes 1 to 3.
struct Head {
    status: Status,
    depth: u8,
    has_cursor: bool,
    has_extension: bool,
}

impl StatusFrame {
    /// Return whether the frame is a peer's heartbeat (section 5.1.3), whatever its other fields.
    pub(crate) fn is_of_connection(&self) -> bool {
        self.entity_id == HEARTBEAT_ENTITY && self.status == Status::Unspecified && self.scope_id == 0
    }

    /// Make a status without depth, cursor and extension.
    pub const fn new(status: Status, scope_id: u16, entity_id: u32) -> Self {
        Self { status, entity_id, scope_id, depth: 0, cursor: None, extension: None }
    }

    /// Return the heartbeat of section 5.1.
    pub const fn heartbeat() -> Self {
        Self::new(Status::Unspecified, 0, HEARTBEAT_ENTITY)
    }

    /// Reject a frame that cannot be encoded: a depth above 7, an extension of another status, a
    /// token that is too long.
    pub fn check(&self) -> Result<()> {
        if self.depth > MAX_DEPTH {
            return Err(Misuse::StatusDepth(self.depth).into());
        }
        match (self.status, &self.extension) {
            (Status::Yielded, Some(Extension::Yield { token, .. })) if token_length(token).is_none() => {
                Err(Misuse::TokenLength { length: token.len() }.into())
            }
            (Status::Yielded, Some(Extension::Yield { .. })) | (Status::Deferred, Some(Extension::Claim { .. })) => {
                Ok(())
            }
            (Status::Yielded | Status::Deferred, _) => Err(Misuse::OtherExtension(self.status).into()),
            (_, None) => Ok(()),
            (_, Some(_)) => Err(Misuse::Extension(self.status).into()),
        }
    }

    /// Append the frame. It must pass [`check`](Self::check); a peer rejects one that does not.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut writer = Writer::new(out);
        let bits = u32::from(self.status.code()) << 20
            | u32::from(self.extension.is_some()) << 19
            | u32::from(self.cursor.is_some()) << 18
            | u32::from(self.depth & MAX_DEPTH) << 15;
        writer.u32(u32::from(TYPE) << 24 | bits);
        writer.u32(self.entity_id);
        writer.u16(self.scope_id);
        writer.u16(0);
        if let Some(cursor) = self.cursor {
            writer.u32(cursor);
        }
        match &self.extension {
            None => {}
            Some(Extension::Yield { reason, token }) => {
                // A token that is too long is left out instead of cut off, so that the frames after it stay readable.
                let (length, token) = token_length(token).map_or((0, [].as_slice()), |length| (length, token));
                writer.u32(u32::from(reason.code()) << 24 | length);
                writer.bytes(token);
            }
            Some(Extension::Claim { claim_id, expiry_micros }) => {
                writer.u64(*claim_id);
                writer.u64(*expiry_micros);
            }
        }
    }

    /// Return the bytes of the frame.
    pub fn encode_to_vec(&self) -> Vec<u8> {
        to_vec(|out| self.encode(out))
    }

    /// Return the total length of the frame; `None` while too few bytes have arrived.
    pub(super) fn measure(bytes: &[u8]) -> Result<Option<usize>> {
        let mut reader = Reader::new(bytes);
        let Ok(word) = reader.u32() else { return Ok(None) };
        let head = Head::parse(word)?;
        let before = BASE_LENGTH + if head.has_cursor { CURSOR_LENGTH } else { 0 };
        if !head.has_extension {
            return Ok(Some(before));
        }
        if head.status == Status::Deferred {
            return Ok(Some(before + CLAIM_LENGTH));
        }
        let Some(mut extension) = bytes.get(before..).map(Reader::new) else { return Ok(None) };
        let (Ok(reason), Ok(length)) = (extension.u8(), extension.u24()) else { return Ok(None) };
        YieldReason::try_from(reason)?;
        Ok(usize::try_from(length).ok().map(|length| before + YIELD_HEAD + length))
    }

    /// Return the first frame of `bytes` and its length, if it is a complete STATUS without extension.
    pub(super) fn parse_plain(bytes: &[u8]) -> Result<Option<(Self, usize)>> {
        let mut reader = Reader::new(bytes);
        if bytes.first() != Some(&TYPE) || reader.remaining() < BASE_LENGTH + CURSOR_LENGTH {
            return Ok(None);
        }
        let head = Head::parse(reader.u32()?)?;
        if head.has_extension {
            return Ok(None);
        }
        let (entity_id, scope_id) = (reader.u32()?, reader.u16()?);
        reader.u16()?;
        let cursor = if head.has_cursor { Some(reader.u32()?) } else { None };
        let length = bytes.len() - reader.remaining();
        Ok(Some((
            Self { status: head.status, entity_id, scope_id, depth: head.depth, cursor, extension: None },
            length,
        )))
    }

    /// Parse a whole frame.
    pub(super) fn parse(whole: &Bytes) -> Result<Self> {
        let mut reader = Reader::new(whole);
        let head = Head::parse(reader.u32()?)?;
        let entity_id = reader.u32()?;
        let scope_id = reader.u16()?;
        reader.u16()?;
        let cursor = if head.has_cursor { Some(reader.u32()?) } else { None };
        let extension = match (head.has_extension, head.status) {
            (false, _) => None,
            (true, Status::Deferred) => {
                Some(Extension::Claim { claim_id: reader.u64()?, expiry_micros: reader.u64()? })
            }
            (true, _) => {
                let reason = YieldReason::try_from(reader.u8()?)?;
                reader.u24()?;
                Some(Extension::Yield { reason, token: whole.slice_ref(reader.take(reader.remaining())?) })
            }
        };
        Ok(Self { status: head.status, entity_id, scope_id, depth: head.depth, cursor, extension })
    }
}

impl Head {
    /// Reject a reserved Stat, and an E bit that contradicts its Stat (decision 3).
    fn parse(word: u32) -> Result<Self> {
        let [_, high, low, _] = word.to_be_bytes();
        let status = Status::try_from(high >> 4)?;
        let has_extension = high & 0b1000 != 0;
        let has_cursor = high & 0b0100 != 0;
        let depth = (high & 0b0011) << 1 | low >> 7;
        let wants_extension = matches!(status, Status::Yielded | Status::Deferred);
        match (has_extension, wants_extension) {
            (true, false) => Err(Malformed::UnexpectedExtension(status).into()),
            (false, true) => Err(Malformed::MissingExtension(status).into()),
            (true, true) | (false, false) => Ok(Self { status, depth, has_cursor, has_extension }),
        }
    }
}

/// Return the length of a token, if it fits into its field.
fn token_length(token: &Bytes) -> Option<u32> {
    u32::try_from(token.len()).ok().filter(|length| *length <= MAX_FRAME_LENGTH)
}

impl TryFrom<u8> for Status {
    type Error = Error;

    /// Convert a code; 0xD to 0xF are reserved: ENTITY_INVALID (decision 3).
    fn try_from(code: u8) -> Result<Self, Error> {
        Self::ALL.get(usize::from(code)).copied().ok_or(Malformed::Status(code).into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Frame;
    use super::*;
    use crate::error::ErrorCode;

    fn decoded(bytes: &[u8]) -> Result<Option<(Frame, usize)>> {
        Frame::decode(bytes)
    }

    #[test]
    fn codes_are_the_registrys_and_the_rest_is_reserved() {
        for code in 0..=0xC {
            assert_eq!(Status::try_from(code).expect("assigned").code(), code);
        }
        for code in 0xD..=0xF {
            assert_eq!(Status::try_from(code).expect_err("reserved").code(), ErrorCode::EntityInvalid);
        }
    }

    #[test]
    fn bits_lie_where_the_diagram_says() {
        let frame = StatusFrame { depth: 5, cursor: Some(0x0A0B_0C0D), ..StatusFrame::new(Status::Complete, 2, 7) };
        let bytes = frame.encode_to_vec();
        assert_eq!(bytes, [0x50, 0x36, 0x80, 0, 0, 0, 0, 7, 0, 2, 0, 0, 0x0A, 0x0B, 0x0C, 0x0D]);
        assert_eq!(decoded(&bytes), Ok(Some((Frame::Status(frame), 16))));
    }

    #[test]
    fn flags_and_reserved_bits_are_ignored() {
        let bytes = [0x50, 0x10, 0x7F, 0xFF, 0, 0, 0, 7, 0, 0, 0xFF, 0xFF];
        assert_eq!(decoded(&bytes), Ok(Some((Frame::Status(StatusFrame::new(Status::Pending, 0, 7)), 12))));
    }

    #[test]
    fn an_extension_goes_with_its_status_only() {
        for (head, malformed) in [
            ([0x38, 0], Malformed::UnexpectedExtension(Status::Complete)),
            ([0x80, 0], Malformed::MissingExtension(Status::Yielded)),
            ([0x94, 0], Malformed::MissingExtension(Status::Deferred)),
            ([0xD0, 0], Malformed::Status(0xD)),
        ] {
            assert_eq!(decoded(&[0x50, head[0], head[1], 0]), Err(malformed.into()));
        }
    }

    #[test]
    fn a_reserved_yield_reason_is_refused_before_its_token_comes() {
        let mut bytes = vec![0x50, 0x88, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        bytes.extend([6, 0xFF, 0xFF, 0xFF]);
        assert_eq!(decoded(&bytes), Err(Malformed::YieldReason(6).into()));
    }

    #[test]
    fn a_frame_that_the_wire_cannot_say_is_misuse() {
        let token = Bytes::from(vec![0; 0x100_0000]);
        let yielded = |reason, token| Some(Extension::Yield { reason, token });
        let base = StatusFrame::new(Status::Yielded, 0, 1);
        let bad = [
            StatusFrame { depth: 8, ..StatusFrame::new(Status::Pending, 0, 1) },
            base.clone(),
            StatusFrame { extension: yielded(YieldReason::RateLimited, token), ..base.clone() },
            StatusFrame { extension: Some(Extension::Claim { claim_id: 1, expiry_micros: 2 }), ..base.clone() },
            StatusFrame { status: Status::Failed, extension: yielded(YieldReason::RateLimited, Bytes::new()), ..base },
        ];
        for frame in bad {
            assert_eq!(frame.check().expect_err("misuse").kind(), penstock_wire::ErrorKind::Misuse);
        }
        assert_eq!(StatusFrame::heartbeat().check(), Ok(()));
    }
}
