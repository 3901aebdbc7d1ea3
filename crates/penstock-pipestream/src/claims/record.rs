//! The stored records of claim checks.
//!
//! ```text
//!  ISSUED    1   id 8   session 16   scope 2   entity 4   expiry 8   state   validation (protobuf, to the end)
//!  REDEEMED  2   id 8   by 16
//!  SETTLED   3   id 8   by 16   status 1
//!  VOIDED    4   id 8
//!
//!  state     0                          open
//!            1   by 16                  redeemed
//!            2   by 16   status 1       settled
//! ```
//!
//! Integers are big-endian. A validation is optional and follows a byte 1. The store adds length
//! and checksum.

use bytes::BytesMut;
use penstock_wire::{Reader, Writer};
use prost::Message;

use super::claim::{Claim, ClaimState};
use crate::error::{ClaimRecordError, Result};
use crate::messages::{StoppingPointValidation, decode_message};
use crate::session_id::SessionId;
use crate::status::Status;

const ISSUED: u8 = 1;
const REDEEMED: u8 = 2;
const SETTLED: u8 = 3;
const VOIDED: u8 = 4;

/// A change to a claim check.
#[derive(Debug, Clone, PartialEq)]
pub enum ClaimRecord {
    /// The claim check was issued, or is carried over into a new file.
    Issued(Claim),
    /// The claim check was redeemed.
    Redeemed {
        /// The claim check's ID.
        id: u64,
        /// The session that redeemed it.
        by: SessionId,
    },
    /// The entity of the claim check has ended.
    Settled {
        /// The claim check's ID.
        id: u64,
        /// The session that redeemed it.
        by: SessionId,
        /// The terminal status.
        status: Status,
    },
    /// The claim check was voided before it was announced.
    Voided {
        /// The claim check's ID.
        id: u64,
    },
}

impl ClaimRecord {
    /// Return the bytes to be stored.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = BytesMut::new();
        let mut writer = Writer::new(&mut out);
        match self {
            Self::Issued(claim) => {
                writer.u8(ISSUED);
                writer.u64(claim.id);
                writer.bytes(claim.session.bytes());
                writer.u16(claim.scope);
                writer.u32(claim.entity);
                writer.u64(claim.expiry_micros);
                write_state(&mut writer, claim.state);
                if let Some(validation) = &claim.validation {
                    // The byte 1 distinguishes a validation without fields from no validation.
                    writer.u8(1);
                    writer.bytes(&validation.encode_to_vec());
                }
            }
            Self::Redeemed { id, by } => {
                writer.u8(REDEEMED);
                writer.u64(*id);
                writer.bytes(by.bytes());
            }
            Self::Settled { id, by, status } => {
                writer.u8(SETTLED);
                writer.u64(*id);
                writer.bytes(by.bytes());
                writer.u8(status.code());
            }
            Self::Voided { id } => {
                writer.u8(VOIDED);
                writer.u64(*id);
            }
        }
        out.into()
    }

    /// Parse a whole record.
    ///
    /// # Errors
    ///
    /// ENTITY_INVALID for invalid bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        let id = reader.u64()?;
        let record = match kind {
            ISSUED => Self::Issued(Claim {
                id,
                session: session(&mut reader)?,
                scope: reader.u16()?,
                entity: reader.u32()?,
                expiry_micros: reader.u64()?,
                state: state(&mut reader)?,
                validation: validation(&mut reader)?,
            }),
            REDEEMED => Self::Redeemed { id, by: session(&mut reader)? },
            SETTLED => Self::Settled { id, by: session(&mut reader)?, status: terminal(&mut reader)? },
            VOIDED => Self::Voided { id },
            other => return Err(ClaimRecordError::Kind(other).into()),
        };
        match reader.remaining() {
            0 => Ok(record),
            bytes => Err(ClaimRecordError::Trailing { bytes }.into()),
        }
    }
}

fn write_state(writer: &mut Writer<&mut BytesMut>, state: ClaimState) {
    match state {
        ClaimState::Open => writer.u8(0),
        ClaimState::Redeemed { by } => {
            writer.u8(1);
            writer.bytes(by.bytes());
        }
        ClaimState::Settled { by, status } => {
            writer.u8(2);
            writer.bytes(by.bytes());
            writer.u8(status.code());
        }
    }
}

fn state(reader: &mut Reader<'_>) -> Result<ClaimState> {
    match reader.u8()? {
        0 => Ok(ClaimState::Open),
        1 => Ok(ClaimState::Redeemed { by: session(reader)? }),
        2 => Ok(ClaimState::Settled { by: session(reader)?, status: terminal(reader)? }),
        other => Err(ClaimRecordError::State(other).into()),
    }
}

fn session(reader: &mut Reader<'_>) -> Result<SessionId> {
    let bytes = reader.take(16)?;
    bytes.try_into().map(SessionId::new).map_err(|_| ClaimRecordError::SessionId.into())
}

fn terminal(reader: &mut Reader<'_>) -> Result<Status> {
    let status = Status::try_from(reader.u8()?)?;
    if status.is_terminal() { Ok(status) } else { Err(ClaimRecordError::Status(status).into()) }
}

fn validation(reader: &mut Reader<'_>) -> Result<Option<Box<StoppingPointValidation>>> {
    if reader.remaining() == 0 {
        return Ok(None);
    }
    match reader.u8()? {
        1 => decode_message(reader.take(reader.remaining())?).map(|validation| Some(Box::new(validation))),
        other => Err(ClaimRecordError::Validation(other).into()),
    }
}
