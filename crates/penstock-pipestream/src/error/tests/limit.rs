use super::*;

#[test]
fn every_limit_has_its_message_and_its_code_part_1() {
    check(
        ErrorKind::Limit,
        [
            (
                ErrorCode::WindowExceeded,
                LimitError::ManifestEntries { count: 5 }.into(),
                "the manifest holds 5 entries, which is max_entries",
            ),
            (
                ErrorCode::WindowExceeded,
                LimitError::Orphans { count: 5 }.into(),
                "5 completions wait for their parents, which is max_orphans",
            ),
            (
                ErrorCode::WindowExceeded,
                LimitError::ClaimChecks { count: 5 }.into(),
                "5 claim checks are known, which is max_claims",
            ),
            (ErrorCode::WindowExceeded, LimitError::SentClaimRequests { limit: 5 }.into(), "5 claim requests are open"),
            (
                ErrorCode::WindowExceeded,
                LimitError::ReceivedClaimRequests { limit: 5 }.into(),
                "more than 5 claim requests are open",
            ),
            (
                ErrorCode::WindowExceeded,
                LimitError::Checkpoints { limit: 5 }.into(),
                "more than 5 checkpoints are open",
            ),
            (
                ErrorCode::WindowExceeded,
                LimitError::Window { window: 7, cursor: 7 }.into(),
                "PENDING outside the window of 7 from cursor 7",
            ),
            (
                ErrorCode::WindowExceeded,
                LimitError::ScopeEntities { limit: 7 }.into(),
                "more than 7 entities in a scope",
            ),
            (
                ErrorCode::WindowExceeded,
                LimitError::OwnScopeEntities { scope: 9, announced: 11 }.into(),
                "scope 9 has had 11 entities, all it may have",
            ),
            (
                ErrorCode::WindowExceeded,
                LimitError::OpenEntities { limit: 5 }.into(),
                "more than 5 entities without a terminal status",
            ),
            (
                ErrorCode::WindowExceeded,
                LimitError::OwnChildren { window: 7 }.into(),
                "the parent has more children than the window of 7",
            ),
            (
                ErrorCode::WindowExceeded,
                LimitError::HeldHeaders { bytes: 5 }.into(),
                "headers of more than 5 bytes wait for their PENDING",
            ),
            (
                ErrorCode::WindowExceeded,
                LimitError::Unacknowledged { bytes: 5 }.into(),
                "the peer has not acknowledged 5 bytes of stream 0",
            ),
            (
                ErrorCode::WindowExceeded,
                LimitError::EarlyBytes.into(),
                "too many bytes arrived before the session was resumed",
            ),
            (ErrorCode::WindowExceeded, LimitError::Heap.into(), "the heap holds 4294967295 items and takes no more"),
            (
                ErrorCode::DepthExceeded,
                LimitError::Depth { depth: 3, limit: 3 }.into(),
                "DEHYDRATING at depth 3; the limit is 3",
            ),
            (
                ErrorCode::DepthExceeded,
                LimitError::HeaderDepth { depth: 3, limit: 3 }.into(),
                "a dehydrated entity at depth 3; the limit is 3",
            ),
            (
                ErrorCode::DepthExceeded,
                LimitError::OwnDepth { depth: 3, limit: 3 }.into(),
                "an entity at depth 3 cannot be dehydrated; the limit is 3",
            ),
            (
                ErrorCode::LayerUnsupported,
                LimitError::OneLevel.into(),
                "layer 0 has one level: an entity with a parent stays whole",
            ),
            (
                ErrorCode::EntityTooLarge,
                LimitError::FrameLength { frame_type: 3, length: 7 }.into(),
                "frame 0x03 has a length of 7, above the limit of 16777215",
            ),
            (
                ErrorCode::EntityTooLarge,
                LimitError::HeaderLength { length: 7, limit: 7 }.into(),
                "a header of 7 bytes is above the limit of 7",
            ),
            (
                ErrorCode::EntityTooLarge,
                LimitError::SealedHeaderLength { length: 5 }.into(),
                "a sealed header of 5 bytes is above the limit of 1048576",
            ),
        ],
    );
}

#[test]
fn every_limit_has_its_message_and_its_code_part_2() {
    check(
        ErrorKind::Limit,
        [
            (
                ErrorCode::EntityTooLarge,
                LimitError::Metadata { bytes: 5, limit: 5 }.into(),
                "metadata of 5 bytes is above the limit of 5",
            ),
            (
                ErrorCode::EntityTooLarge,
                LimitError::PayloadLength { length: 11, limit: 11 }.into(),
                "a payload of 11 bytes is above the limit of 11",
            ),
            (
                ErrorCode::EntityTooLarge,
                LimitError::ReferenceLength { length: 5 }.into(),
                "a FileStorageReference of 5 bytes is above the limit of 65536",
            ),
            (
                ErrorCode::EntityTooLarge,
                LimitError::ReferencePayload.into(),
                "a FileStorageReference is above the limit of 65536 bytes",
            ),
            (
                ErrorCode::EntityTooLarge,
                LimitError::ObjectLength { name: "x".to_owned(), length: 11, limit: 11 }.into(),
                "the object x has 11 bytes; the limit is 11",
            ),
            (
                ErrorCode::WindowExceeded,
                LimitError::EarlyHeaders { bytes: 5 }.into(),
                "headers of more than 5 bytes came before the session had its ID",
            ),
            (
                ErrorCode::WindowExceeded,
                LimitError::ClaimDetails { bytes: 5 }.into(),
                "what claim checks stand for takes 5 bytes, which is the limit",
            ),
            (ErrorCode::EntityInvalid, LimitError::SessionFolder { reason: "x".to_owned() }.into(), "x"),
            (ErrorCode::InternalError, LimitError::KeyDerivation.into(), "a header key cannot be derived"),
        ],
    );
}

#[test]
fn every_deadline_has_its_message_and_its_code() {
    check(
        ErrorKind::Deadline,
        [
            (ErrorCode::IdleTimeout, Deadline::Silence.into(), "nothing came on stream 0"),
            (
                ErrorCode::ClaimExpired,
                Deadline::ClaimExpired { id: 11 }.into(),
                "claim check 000000000000000b has expired",
            ),
        ],
    );
}
