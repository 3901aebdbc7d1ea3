//! The private-use frames of layer 2, 0xC1 to 0xC5 (decision 20). They are parsed once both ends have agreed on layer
//! 2; without it they are rejected by type.

use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::variable::encode_variable;
use crate::error::{Malformed, Result, Violation};
use crate::messages::{
    ClaimCheck, ClaimQueryMessage, ClaimRedeemMessage, ClaimResponseMessage, CompletionPolicy, EntityStatus,
    ResumeMessage, SessionMessage, decode_message,
};
use crate::session_id::SessionId;
use crate::status::Status;
use crate::stored::written_as;

const CLAIM_QUERY: u8 = 0xC1;
const CLAIM_RESPONSE: u8 = 0xC2;
const CLAIM_REDEEM: u8 = 0xC3;
const RESUME: u8 = 0xC4;
const SESSION: u8 = 0xC5;

/// A frame of layer 2.
#[derive(Debug, Clone, PartialEq)]
pub enum Layer2Frame {
    /// 0xC1: a query for the status of a claim check.
    ClaimQuery {
        /// The claim check's ID.
        claim_id: u64,
    },
    /// 0xC2: the answer to a query, or to a redemption that succeeded.
    ClaimResponse(ClaimResponse),
    /// 0xC3: the redemption of a deferred entity.
    ClaimRedeem {
        /// The claim check's ID.
        claim_id: u64,
        /// The session in which the entity was deferred.
        session: SessionId,
    },
    /// 0xC4: the return of a yield token.
    Resume {
        /// The entity's scope.
        scope_id: u16,
        /// The entity.
        entity_id: u32,
        /// The token.
        token: Bytes,
    },
    /// 0xC5: the session's name.
    Session(SessionFrame),
}

/// The session's name, and the counters with which a session survives its connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionFrame {
    /// The name.
    pub session: SessionId,
    /// How many of the peer's frames the sender has received; set if the sender can resume the
    /// session after a connection is lost.
    pub received: Option<u64>,
    /// How many frames the sender has sent; set on a later connection of the session.
    pub sent: Option<u64>,
    /// The policy of the root scopes' entities, if the session begins with one.
    pub policy: Option<CompletionPolicy>,
}

impl SessionFrame {
    /// Return a frame with the name alone: the session ends with its connection.
    pub const fn named(session: SessionId) -> Self {
        Self { session, received: None, sent: None, policy: None }
    }
}

/// The answer to a request about a claim check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimResponse {
    /// The ID in the request.
    pub claim_id: u64,
    /// The claim check; `None` if it is unknown or has expired.
    pub found: Option<FoundClaim>,
}

/// A known claim check, and the status of its entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundClaim {
    /// The claim check.
    pub check: ClaimCheck,
    /// DEFERRED until it is redeemed, then PROCESSING, then the terminal status.
    pub status: Status,
    /// The path of the payload in the sink, if the work was done without a session.
    pub file: Option<String>,
}

impl Layer2Frame {
    /// Return the frame's type byte.
    pub const fn frame_type(&self) -> u8 {
        match self {
            Self::ClaimQuery { .. } => CLAIM_QUERY,
            Self::ClaimResponse(_) => CLAIM_RESPONSE,
            Self::ClaimRedeem { .. } => CLAIM_REDEEM,
            Self::Resume { .. } => RESUME,
            Self::Session(_) => SESSION,
        }
    }

    /// Return whether a type byte belongs to layer 2.
    pub const fn has_type(frame_type: u8) -> bool {
        matches!(frame_type, CLAIM_QUERY..=SESSION)
    }

    /// Append the frame.
    pub fn encode(&self, out: &mut BytesMut) {
        let frame_type = self.frame_type();
        match self {
            Self::ClaimQuery { claim_id } => {
                encode_variable(frame_type, &ClaimQueryMessage { claim_id: Some(*claim_id) }, out);
            }
            Self::ClaimResponse(response) => {
                let found = response.found.clone();
                let message = ClaimResponseMessage {
                    claim_id: Some(response.claim_id),
                    found: Some(found.is_some()),
                    status: found.as_ref().map(|found| i32::from(found.status.code())),
                    file: found.as_ref().and_then(|found| found.file.clone()),
                    claim_check: found.map(|found| found.check),
                };
                encode_variable(frame_type, &message, out);
            }
            Self::ClaimRedeem { claim_id, session } => {
                let message = ClaimRedeemMessage { claim_id: Some(*claim_id), session_id: Some(session.to_string()) };
                encode_variable(frame_type, &message, out);
            }
            Self::Resume { scope_id, entity_id, token } => {
                let message = ResumeMessage {
                    scope_id: Some(u32::from(*scope_id)),
                    entity_id: Some(*entity_id),
                    yield_token: Some(token.clone()),
                };
                encode_variable(frame_type, &message, out);
            }
            Self::Session(SessionFrame { session, received, sent, policy }) => {
                let (received, sent, completion_policy) = (*received, *sent, *policy);
                let message =
                    SessionMessage { session_id: Some(session.to_string()), received, sent, completion_policy };
                encode_variable(frame_type, &message, out);
            }
        }
    }

    /// Parse a payload.
    pub(super) fn parse(frame_type: u8, payload: &[u8]) -> Result<Self> {
        match frame_type {
            CLAIM_QUERY => {
                let message: ClaimQueryMessage = decode_message(payload)?;
                Ok(Self::ClaimQuery { claim_id: message.claim_id.unwrap_or_default() })
            }
            CLAIM_RESPONSE => ClaimResponse::parse(payload).map(Self::ClaimResponse),
            CLAIM_REDEEM => {
                let message: ClaimRedeemMessage = decode_message(payload)?;
                let session = SessionId::parse(message.session_id.as_deref().unwrap_or_default())?;
                Ok(Self::ClaimRedeem { claim_id: message.claim_id.unwrap_or_default(), session })
            }
            RESUME => {
                let message: ResumeMessage = decode_message(payload)?;
                let scope = message.scope_id.unwrap_or_default();
                let scope_id = u16::try_from(scope).map_err(|_| Violation::ResumeScopeId { scope })?;
                Ok(Self::Resume {
                    scope_id,
                    entity_id: message.entity_id.unwrap_or_default(),
                    token: message.yield_token.unwrap_or_default(),
                })
            }
            SESSION => {
                let message: SessionMessage = decode_message(payload)?;
                let session = SessionId::parse(message.session_id.as_deref().unwrap_or_default())?;
                let (received, sent) = (message.received, message.sent);
                if sent.is_some() && received.is_none() {
                    return Err(Malformed::NoReceived.into());
                }
                Ok(Self::Session(SessionFrame { session, received, sent, policy: message.completion_policy }))
            }
            other => Err(Malformed::Layer2Type(other).into()),
        }
    }
}

impl ClaimResponse {
    fn parse(payload: &[u8]) -> Result<Self> {
        let message: ClaimResponseMessage = decode_message(payload)?;
        let status = Status::from(message.status());
        let found = match (message.found.unwrap_or_default(), message.claim_check) {
            (false, None) => None,
            (true, Some(check)) => Some(FoundClaim { check, status, file: message.file }),
            (true, None) => return Err(Malformed::NoClaimCheck.into()),
            (false, Some(_)) => return Err(Malformed::UnexpectedClaimCheck.into()),
        };
        Ok(Self { claim_id: message.claim_id.unwrap_or_default(), found })
    }
}

impl From<EntityStatus> for Status {
    fn from(status: EntityStatus) -> Self {
        match status {
            EntityStatus::Unspecified => Self::Unspecified,
            EntityStatus::Pending => Self::Pending,
            EntityStatus::Processing => Self::Processing,
            EntityStatus::Complete => Self::Complete,
            EntityStatus::Failed => Self::Failed,
            EntityStatus::Checkpoint => Self::Checkpoint,
            EntityStatus::Dehydrating => Self::Dehydrating,
            EntityStatus::Rehydrating => Self::Rehydrating,
            EntityStatus::Yielded => Self::Yielded,
            EntityStatus::Deferred => Self::Deferred,
            EntityStatus::Retrying => Self::Retrying,
            EntityStatus::Skipped => Self::Skipped,
            EntityStatus::Abandoned => Self::Abandoned,
        }
    }
}

/// The stored form of an answer. The variant for answers with a file is separate because it was
/// added later.
#[derive(Serialize, Deserialize)]
enum StoredClaim {
    NotFound,
    Found(ClaimCheck, Status),
    FoundWithFile(ClaimCheck, Status, String),
}

impl ClaimResponse {
    fn stored(&self) -> (u64, StoredClaim) {
        let found = match self.found.clone() {
            None => StoredClaim::NotFound,
            Some(FoundClaim { check, status, file: None }) => StoredClaim::Found(check, status),
            Some(FoundClaim { check, status, file: Some(file) }) => StoredClaim::FoundWithFile(check, status, file),
        };
        (self.claim_id, found)
    }

    fn restored((claim_id, found): (u64, StoredClaim)) -> Self {
        let found = match found {
            StoredClaim::NotFound => None,
            StoredClaim::Found(check, status) => Some(FoundClaim { check, status, file: None }),
            StoredClaim::FoundWithFile(check, status, file) => Some(FoundClaim { check, status, file: Some(file) }),
        };
        Self { claim_id, found }
    }
}

written_as! {
    ClaimResponse as (u64, StoredClaim): Self::stored, |stored| Ok::<_, Infallible>(Self::restored(stored));
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use prost::Message;

    use super::*;
    use crate::stored::{RecordReader, RecordWriter};

    fn stored(value: &impl Serialize) -> Vec<u8> {
        let mut record = RecordWriter { bytes: Vec::new(), epoch: Instant::now() };
        record.put(value);
        record.bytes
    }

    fn restored(bytes: &[u8]) -> Result<ClaimResponse> {
        RecordReader { bytes, epoch: Instant::now() }.take()
    }

    #[test]
    fn a_journal_gives_an_answer_back_and_reads_those_from_before_there_were_files() {
        let check = ClaimCheck { claim_id: Some(7), entity_id: Some(3), ..ClaimCheck::default() };
        let found = |file| Some(FoundClaim { check: check.clone(), status: Status::Complete, file });
        for found in [None, found(None), found(Some("ab/2/3".to_owned()))] {
            let response = ClaimResponse { claim_id: 7, found };
            assert_eq!(restored(&stored(&response)), Ok(response));
        }
        let before = stored(&(7_u64, Some((check.clone(), Status::Complete))));
        assert_eq!(restored(&before), Ok(ClaimResponse { claim_id: 7, found: found(None) }));
        assert!(restored(&[7, 3]).is_err(), "no such tag");
    }

    #[test]
    fn a_claim_checks_status_is_one_of_the_registry() {
        let parse = |status: Option<i32>| {
            let (found, claim_check) = (Some(true), Some(ClaimCheck::default()));
            let message = ClaimResponseMessage { found, claim_check, status, ..ClaimResponseMessage::default() };
            ClaimResponse::parse(&message.encode_to_vec()).map(|response| response.found.map(|found| found.status))
        };
        for status in Status::ALL {
            assert_eq!(parse(Some(status.code().into())), Ok(Some(status)));
        }
        assert_eq!(parse(None), Ok(Some(Status::Unspecified)));
        for value in [-1, 13, 256 + 3] {
            let unknown = Malformed::EnumValue { field: "ClaimResponse.status", value };
            assert_eq!(parse(Some(value)), Err(unknown.into()));
        }
    }
}
