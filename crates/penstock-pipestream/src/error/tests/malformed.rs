use super::*;

#[test]
fn every_malformed_frame_has_its_message_and_its_code() {
    check(
        ErrorKind::Malformed,
        [
            (
                ErrorCode::EntityInvalid,
                Malformed::EnumValue { field: "f", value: 6 }.into(),
                "unknown enum value 6 in f",
            ),
            (ErrorCode::EntityInvalid, Malformed::FrameType(3).into(), "0x03 is no frame type"),
            (ErrorCode::EntityInvalid, Malformed::ReservedType(3).into(), "frame type 0x03 is reserved"),
            (ErrorCode::EntityInvalid, Malformed::NoFrame(Some(3)).into(), "no frame of type Some(3)"),
            (ErrorCode::EntityInvalid, Malformed::Status(3).into(), "status code 0x3 is reserved"),
            (ErrorCode::EntityInvalid, Malformed::YieldReason(3).into(), "yield reason 0x03 is reserved"),
            (
                ErrorCode::EntityInvalid,
                Malformed::UnexpectedExtension(Status::Complete).into(),
                "STATUS COMPLETE with E=1, but it has no extension",
            ),
            (
                ErrorCode::EntityInvalid,
                Malformed::MissingExtension(Status::Complete).into(),
                "STATUS COMPLETE with E=0, but it needs its extension",
            ),
            (ErrorCode::EntityInvalid, Malformed::Layer2Type(3).into(), "0x03 is no frame of layer 2"),
            (
                ErrorCode::EntityInvalid,
                Malformed::NoReceived.into(),
                "a SESSION that resumes does not state what was received",
            ),
            (
                ErrorCode::EntityInvalid,
                Malformed::NoClaimCheck.into(),
                "a CLAIM_RESPONSE has found a claim check and does not carry it",
            ),
            (
                ErrorCode::EntityInvalid,
                Malformed::UnexpectedClaimCheck.into(),
                "a CLAIM_RESPONSE carries a claim check that it has not found",
            ),
            (
                ErrorCode::EntityInvalid,
                Malformed::SessionId { length: 5 }.into(),
                "a session ID of 5 bytes is not 32 digits of lower-case hex",
            ),
            (
                ErrorCode::EntityInvalid,
                Malformed::ControlEnd { how: StreamEnd::Reset }.into(),
                "stream 0 was reset inside a frame",
            ),
            (ErrorCode::EntityInvalid, Malformed::HeaderEnd.into(), "a stream ended inside its header"),
        ],
    );
}

#[test]
fn every_malformed_uri_has_its_message_and_its_code() {
    check(
        ErrorKind::Malformed,
        [
            (
                ErrorCode::EntityInvalid,
                UriError::ScopePath.into(),
                "not a pipestream URI: a scope path has at most 8 scope IDs, each of them 0 to 65535",
            ),
            (
                ErrorCode::EntityInvalid,
                UriError::ReservedEntity.into(),
                "not a pipestream URI: the entity ID is reserved",
            ),
            (ErrorCode::EntityInvalid, UriError::Length.into(), "not a pipestream URI: it is longer than 1024 bytes"),
            (
                ErrorCode::EntityInvalid,
                UriError::Scheme.into(),
                "not a pipestream URI: it does not begin with pipestream://",
            ),
            (ErrorCode::EntityInvalid, UriError::NoSession.into(), "not a pipestream URI: it names no session"),
            (
                ErrorCode::EntityInvalid,
                UriError::ScopeText.into(),
                "not a pipestream URI: a scope path is 1 to 8 decimal scope IDs, 0 to 65535, with dots",
            ),
            (
                ErrorCode::EntityInvalid,
                UriError::Trailing.into(),
                "not a pipestream URI: nothing follows the entity ID",
            ),
            (ErrorCode::EntityInvalid, UriError::Bracket.into(), "not a pipestream URI: a bracket is not closed"),
            (
                ErrorCode::EntityInvalid,
                UriError::Address.into(),
                "not a pipestream URI: what is in brackets is no IPv6 address",
            ),
            (
                ErrorCode::EntityInvalid,
                UriError::AddressEnd.into(),
                "not a pipestream URI: only a port may follow the address in brackets",
            ),
            (
                ErrorCode::EntityInvalid,
                UriError::Host.into(),
                "not a pipestream URI: the host is neither a DNS name nor an address",
            ),
            (ErrorCode::EntityInvalid, UriError::Port.into(), "not a pipestream URI: a port is 1 to 65535"),
            (
                ErrorCode::EntityInvalid,
                UriError::SessionId.into(),
                "not a pipestream URI: a session ID is 1 to 128 letters, digits, '-', '.', '_' or '~'",
            ),
            (
                ErrorCode::EntityInvalid,
                UriError::EntityId.into(),
                "not a pipestream URI: an entity ID is 1 to 8 hex digits",
            ),
        ],
    );
}

#[test]
fn every_malformed_claim_record_has_its_message_and_its_code() {
    check(
        ErrorKind::Malformed,
        [
            (ErrorCode::EntityInvalid, ClaimRecordError::Kind(3).into(), "3 is no kind of claim record"),
            (ErrorCode::EntityInvalid, ClaimRecordError::Trailing { bytes: 5 }.into(), "5 bytes after a claim record"),
            (ErrorCode::EntityInvalid, ClaimRecordError::State(3).into(), "3 is no state of a claim check"),
            (ErrorCode::EntityInvalid, ClaimRecordError::SessionId.into(), "a session ID is cut off"),
            (
                ErrorCode::EntityInvalid,
                ClaimRecordError::Status(Status::Complete).into(),
                "COMPLETE settles no claim check",
            ),
            (ErrorCode::EntityInvalid, ClaimRecordError::Validation(3).into(), "marker 3 before a validation"),
        ],
    );
}

#[test]
fn every_malformed_record_of_a_session_has_its_message_and_its_code() {
    check(
        ErrorKind::Malformed,
        [
            (
                ErrorCode::InternalError,
                StoredError::Encoding(postcard::Error::DeserializeUnexpectedEnd).into(),
                "a stored session: Hit the end of buffer, expected more data",
            ),
            (ErrorCode::InternalError, StoredError::Empty.into(), "a stored session: no record"),
            (
                ErrorCode::InternalError,
                StoredError::NoSnapshot.into(),
                "a stored session: inputs without a snapshot before",
            ),
            (
                ErrorCode::InternalError,
                StoredError::Version { found: 3, expected: 2 }.into(),
                "a stored session: a record of version 3, not 2",
            ),
            (ErrorCode::InternalError, StoredError::Kind(3).into(), "a stored session: 3 is no kind of record"),
            (ErrorCode::InternalError, StoredError::Trailing.into(), "a stored session: bytes after a snapshot"),
            (ErrorCode::InternalError, StoredError::Scopes.into(), "a stored session: its scopes do not add up"),
            (
                ErrorCode::InternalError,
                StoredError::ResolutionState(9).into(),
                "a stored session: 9 is no state of a parent",
            ),
            (ErrorCode::InternalError, StoredError::Frame.into(), "a stored session: a frame that is not whole"),
            (ErrorCode::InternalError, StoredError::ReservedInput.into(), "a stored session: 0 is no input"),
            (ErrorCode::InternalError, StoredError::Moment.into(), "a stored session: a moment that is too far away"),
            (
                ErrorCode::InternalError,
                StoredError::Announcement.into(),
                "a stored session: an announcement that does not fit",
            ),
        ],
    );
}
