//! The types and fields that records store as another type.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use prost::Message;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{AsBytes, Moment, fields_as, written_as};
use crate::error::{Error, ErrorCode, Result, StoredError};
use crate::frame::{ClaimResponse, EntityHeader, Frame, YieldReason};
use crate::manifest::{EntryKey, ResolutionState};
use crate::messages::{
    ClaimCheck, CompletionMode, CompletionPolicy, FailureAction, StoppingPointValidation, decode_message,
};
use crate::session::{EntityKey, Reason};
use crate::status::Status;

written_as! {
    Status as u8: |status: &Self| status.code(), Self::try_from;
    YieldReason as u8: |reason: &Self| reason.code(), Self::try_from;
    CompletionMode as u8: |mode: &Self| *mode as u8, |number: u8| Self::try_from(i32::from(number));
    FailureAction as u8: |action: &Self| *action as u8, |number: u8| Self::try_from(i32::from(number));
    ErrorCode as u64: |code: &Self| code.code(), |code| Ok::<_, Error>(Self::from_code(code));
    ResolutionState as u8: |state: &Self| state.code(), resolution_state;
    ClaimCheck as &[u8]: |check: &Self| AsBytes(check.encode_to_vec()), decode_message;
    CompletionPolicy as &[u8]: |policy: &Self| AsBytes(policy.encode_to_vec()), decode_message;
    StoppingPointValidation as &[u8]: |validation: &Self| AsBytes(validation.encode_to_vec()), decode_message;
    EntityHeader as &[u8]: |header: &Self| AsBytes(header.encode().split_off(Self::LENGTH_FIELD)), Self::parse;
    Frame as &[u8]: |frame: &Self| AsBytes(frame.encode_to_vec()), whole_frame;
}

pub(super) fn resolution_state(code: u8) -> Result<ResolutionState> {
    use ResolutionState::{Active, Failed, Partial, Resolved};
    let state = [Active, Resolved, Partial, Failed].into_iter().find(|state| state.code() == code);
    Ok(state.ok_or(StoredError::ResolutionState(code))?)
}

fn whole_frame(bytes: &[u8]) -> Result<Frame> {
    let whole = Frame::decode_layer2(bytes)?.filter(|(_, length)| *length == bytes.len());
    Ok(whole.map(|(frame, _)| frame).ok_or(StoredError::Frame)?)
}

/// An answer to a query about a claim check, with variants in the order of their numbers in records.
#[derive(Serialize, Deserialize)]
enum Answer {
    Refused(Reason),
    Given(ClaimResponse),
}

pub(super) type Claimed = Result<ClaimResponse, Reason>;

fn stored_answer(answer: &Claimed) -> Answer {
    answer.clone().map_or_else(Answer::Refused, Answer::Given)
}

fn restored_answer(answer: Answer) -> Claimed {
    match answer {
        Answer::Refused(reason) => Err(reason),
        Answer::Given(response) => Ok(response),
    }
}

type Token = (YieldReason, Bytes);
type Expiry = (Instant, EntryKey, u32);

fields_as! {
    deadlines: BTreeSet<(Instant, EntityKey)> as Vec<(Moment, EntityKey)>,
        |all: &BTreeSet<(Instant, EntityKey)>| all.iter().map(|(at, key)| (Moment(*at), *key)).collect::<Vec<_>>(),
        |all| all.into_iter().map(|(at, key)| (at.0, key)).collect();
    expiries: VecDeque<Expiry> as Vec<(Moment, EntryKey, u32)>,
        |all: &VecDeque<Expiry>| all.iter().map(|(at, key, child)| (Moment(*at), *key, *child)).collect::<Vec<_>>(),
        |all| all.into_iter().map(|(at, key, child)| (at.0, key, child)).collect();
    optional_token: Option<Token> as Option<(YieldReason, &[u8])>,
        |token: &Option<Token>| token.clone().map(|(reason, bytes)| (reason, AsBytes(bytes))),
        |token| token.map(|(reason, bytes)| (reason, Bytes::copy_from_slice(bytes)));
    answer: Claimed as Answer, stored_answer, restored_answer;
    optional_answer: Option<Claimed> as Option<Answer>,
        |answer: &Option<Claimed>| answer.as_ref().map(stored_answer), |answer| answer.map(restored_answer);
}
