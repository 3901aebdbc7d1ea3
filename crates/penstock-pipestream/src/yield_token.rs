//! Yield tokens (sections 6.5.1 and 10.7, decision 20).
//!
//! ```text
//!  YieldToken, protobuf                                                                    HMAC-SHA-256 (32)
//!  ├ reason
//!  ├ continuation_state: number of the yield in its session (8, big-endian), the state      over session ID (16),
//!  └ validation                                                                             scope (2), entity (4),
//!                                                                                           the message
//! ```
//!
//! The HMAC binds a token to its session and entity; it is verified, in constant time, before
//! anything is parsed. The number makes two tokens of one entity differ even if its state is the
//! same, so that each can be used once. The session enforces both that and an unchanged state: it
//! knows which token is valid.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use hmac::{Hmac, KeyInit, Mac};
use prost::Message;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::YieldReason;
use crate::error::{Error, Misuse, Result, Violation};
use crate::messages::{StoppingPointValidation, YieldToken, decode_message};
use crate::session_id::SessionId;
use crate::sizes::MAX_FRAME_LENGTH;

/// The bytes of an HMAC-SHA-256.
const MAC: usize = 32;
/// The bytes of a yield's number.
const NUMBER: usize = 8;
/// The bytes of a SHA-256 block, to which HMAC pads its key.
const BLOCK: usize = 64;

/// The key that seals an end's yield tokens: 32 bytes from a secure random source, never shown.
#[derive(Clone)]
pub struct TokenKey([u8; 32]);

impl TokenKey {
    /// Make the key of these bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    fn mac(&self, place: &Place, message: &[u8]) -> Hmac<Sha256> {
        let mut block = [0; BLOCK];
        for (byte, secret) in block.iter_mut().zip(self.0) {
            *byte = secret;
        }
        let mut mac = Hmac::new(&block.into());
        mac.update(place.session.bytes());
        mac.update(&place.scope.to_be_bytes());
        mac.update(&place.entity.to_be_bytes());
        mac.update(message);
        mac
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(..)")
    }
}

/// The session and entity to which a token is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The session.
    pub session: SessionId,
    /// The entity's scope.
    pub scope: u16,
    /// The entity.
    pub entity: u32,
}

/// The content of a token: where processing has stopped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoppingPoint {
    /// Why processing was paused.
    pub reason: YieldReason,
    /// The state for resuming; only the end that made it reads it.
    #[serde(with = "crate::stored::byte_string")]
    pub continuation: Bytes,
    /// The state for which the token is valid (section 9.6).
    pub validation: StoppingPointValidation,
}

/// Make the token of a yield. `number` must differ for every yield of a session.
///
/// # Errors
///
/// Misuse if the token would be longer than 16,777,215 bytes.
pub fn seal(key: &TokenKey, place: &Place, number: u64, point: &StoppingPoint) -> Result<Bytes> {
    let mut state = BytesMut::with_capacity(NUMBER + point.continuation.len());
    state.put_u64(number);
    state.put_slice(&point.continuation);
    let token = YieldToken {
        reason: Some(i32::from(point.reason.code())),
        continuation_state: Some(state.freeze()),
        validation: Some(point.validation.clone()),
    };
    let length = token.encoded_len() + MAC;
    if u32::try_from(length).map_or(true, |length| length > MAX_FRAME_LENGTH) {
        return Err(Misuse::TokenLength { length }.into());
    }
    let mut bytes = token.encode_to_vec();
    let tag = key.mac(place, &bytes).finalize().into_bytes();
    bytes.extend_from_slice(&tag);
    Ok(bytes.into())
}

/// Open a returned token, and return the yield's number and its content.
///
/// # Errors
///
/// CLAIM_NOT_FOUND for a token that was not made with this key for this place.
pub fn open(key: &TokenKey, place: &Place, token: &Bytes) -> Result<(u64, StoppingPoint)> {
    let refused = || Error::from(Violation::YieldToken).at(u32::from(place.scope), place.entity);
    let (message, tag) = token.len().checked_sub(MAC).and_then(|at| token.split_at_checked(at)).ok_or_else(refused)?;
    key.mac(place, message).verify_slice(tag).map_err(|_| refused())?;
    let YieldToken { reason, continuation_state, validation } = decode_message(message)?;
    let reason = reason.and_then(|reason| u8::try_from(reason).ok()).unwrap_or_default();
    let mut state = continuation_state.unwrap_or_default();
    let number = state.get(..NUMBER).and_then(|bytes| bytes.try_into().ok()).ok_or_else(refused)?;
    let continuation = state.split_off(NUMBER);
    let point = StoppingPoint {
        reason: YieldReason::try_from(reason)?,
        continuation,
        validation: validation.unwrap_or_default(),
    };
    Ok((u64::from_be_bytes(number), point))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    fn place() -> Place {
        Place { session: SessionId::new([7; 16]), scope: 2, entity: 9 }
    }

    fn point() -> StoppingPoint {
        StoppingPoint {
            reason: YieldReason::AwaitingApproval,
            continuation: Bytes::from_static(b"page 3"),
            validation: StoppingPointValidation {
                state_checksum: Some(Bytes::from_static(&[5; 32])),
                bytes_processed: Some(4_096),
                is_resumable: Some(true),
                ..StoppingPointValidation::default()
            },
        }
    }

    #[test]
    fn a_token_comes_back_for_its_own_place_and_key_only() {
        let key = TokenKey::new([1; 32]);
        let token = seal(&key, &place(), 4, &point()).expect("short");
        assert_eq!(open(&key, &place(), &token), Ok((4, point())));
        let others = [
            Place { session: SessionId::new([8; 16]), ..place() },
            Place { scope: 4, ..place() },
            Place { entity: 10, ..place() },
        ];
        for other in others {
            assert_eq!(open(&key, &other, &token).expect_err("elsewhere").code(), ErrorCode::ClaimNotFound);
        }
        assert!(open(&TokenKey::new([2; 32]), &place(), &token).is_err());
    }

    #[test]
    fn a_token_with_any_bit_changed_or_any_byte_missing_is_refused() {
        let key = TokenKey::new([1; 32]);
        let token = seal(&key, &place(), 4, &point()).expect("short");
        for bit in 0..token.len() * 8 {
            let mut changed = token.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&key, &place(), &changed.into()).is_err(), "bit {bit}");
        }
        for length in 0..token.len() {
            assert!(open(&key, &place(), &token.slice(..length)).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn two_yields_of_the_same_state_have_different_tokens() {
        let key = TokenKey::new([1; 32]);
        let token = |number| seal(&key, &place(), number, &point()).expect("short");
        assert_ne!(token(1), token(2));
        assert_eq!(format!("{key:?}"), "TokenKey(..)", "a key is never shown");
    }

    #[test]
    fn a_token_that_no_frame_can_carry_is_misuse() {
        let state = Bytes::from(vec![0; MAX_FRAME_LENGTH as usize]);
        let error = seal(&TokenKey::new([1; 32]), &place(), 1, &StoppingPoint { continuation: state, ..point() });
        assert_eq!(error.expect_err("too long").kind(), penstock_wire::ErrorKind::Misuse);
    }
}
