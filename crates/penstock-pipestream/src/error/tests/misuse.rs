use super::*;

#[test]
fn every_misuse_has_its_message_part_1() {
    check(
        ErrorKind::Misuse,
        [
            (ErrorCode::InternalError, Misuse::NoLayer0.into(), "there is no session without layer 0"),
            (ErrorCode::InternalError, Misuse::Layer0Offer.into(), "capabilities.layer0 must be offered"),
            (ErrorCode::InternalError, Misuse::Layer1Offer.into(), "capabilities.layer2 needs layer1"),
            (
                ErrorCode::InternalError,
                Misuse::Layer2Config.into(),
                "capabilities.layer2 needs what `layer2` configures",
            ),
            (ErrorCode::InternalError, Misuse::StatusInterval.into(), "status_interval is at least 1 ms"),
            (
                ErrorCode::InternalError,
                Misuse::MaxUnacknowledged.into(),
                "layer2.max_unacknowledged is at least 256 KiB",
            ),
            (ErrorCode::InternalError, Misuse::MaxHeader.into(), "max_header is at most 1048576"),
            (ErrorCode::InternalError, Misuse::NoSessionName.into(), "a client that offers layer 2 names the session"),
            (ErrorCode::InternalError, Misuse::NoLayer2.into(), "layer 2 is not configured"),
            (
                ErrorCode::InternalError,
                Misuse::NotNamed.into(),
                "layer 2 was not agreed on, or the session has no name yet",
            ),
            (ErrorCode::InternalError, Misuse::NotAgreed.into(), "capabilities have not been negotiated yet"),
            (ErrorCode::InternalError, Misuse::Closed.into(), "the session is closed"),
            (
                ErrorCode::InternalError,
                Misuse::NotOpen.into(),
                "entities can be announced only while the session is open",
            ),
            (ErrorCode::InternalError, Misuse::ScopeNotOpen { scope: 9 }.into(), "scope 9 is not open"),
            (
                ErrorCode::InternalError,
                Misuse::ScopeEnded { scope: 9 }.into(),
                "the announcements of scope 9 have been ended",
            ),
            (
                ErrorCode::InternalError,
                Misuse::EndedTwice { scope: 9 }.into(),
                "the announcements of scope 9 have been ended before",
            ),
            (ErrorCode::InternalError, Misuse::ParentNotOpen.into(), "the parent is not open"),
            (
                ErrorCode::InternalError,
                Misuse::WholeParent.into(),
                "the parent was not announced as dehydrated, or its children have been ended",
            ),
            (
                ErrorCode::InternalError,
                Misuse::NoChildren.into(),
                "only an open, dehydrated entity has children to end",
            ),
            (ErrorCode::InternalError, Misuse::ChildrenOpen.into(), "its children are not all terminal"),
            (
                ErrorCode::InternalError,
                Misuse::LabelLength { length: 5 }.into(),
                "a label of 5 bytes; 1024 are allowed",
            ),
            (
                ErrorCode::InternalError,
                Misuse::WholePolicy.into(),
                "a policy governs the children of a dehydrated entity",
            ),
        ],
    );
}

#[test]
fn every_misuse_has_its_message_part_2() {
    check(
        ErrorKind::Misuse,
        [
            (ErrorCode::InternalError, Misuse::NotReceiving.into(), "only an entity that is being received can wait"),
            (ErrorCode::InternalError, Misuse::NotFailed.into(), "the entity has not failed, or was given up"),
            (
                ErrorCode::InternalError,
                Misuse::NotOwner.into(),
                "an entity is abandoned by its owner; a receiver fails it with IDLE_TIMEOUT",
            ),
            (ErrorCode::InternalError, Misuse::NotOurs.into(), "the entity is not an open one of ours"),
            (ErrorCode::InternalError, Misuse::ClaimRequest(11).into(), "claim request 11 is not open"),
            (ErrorCode::InternalError, Misuse::ClaimStatus(Status::Complete).into(), "COMPLETE settles no claim check"),
            (
                ErrorCode::InternalError,
                Misuse::NotSuspended.into(),
                "only a client's session that is suspended reconnects",
            ),
            (ErrorCode::InternalError, Misuse::VerifiedTwice.into(), "verified already"),
            (
                ErrorCode::InternalError,
                Misuse::NotNamedByPeer.into(),
                "the peer of the new connection has not named a session to resume",
            ),
            (
                ErrorCode::InternalError,
                Misuse::NotSuspendedHere.into(),
                "only a named session that a server has suspended can be resumed",
            ),
            (
                ErrorCode::InternalError,
                Misuse::NotStored.into(),
                "a session is restored under a configuration that stores it",
            ),
            (ErrorCode::InternalError, Misuse::OtherRole.into(), "the session was that of the other end"),
            (
                ErrorCode::InternalError,
                Misuse::OtherName.into(),
                "the stored session has another name than the configured one",
            ),
            (ErrorCode::InternalError, Misuse::SessionEnded.into(), "the stored session has ended"),
            (ErrorCode::InternalError, Misuse::EntryTwice.into(), "the manifest has an entry for this parent already"),
            (ErrorCode::InternalError, Misuse::EntrySealed.into(), "the entry is sealed and takes no more children"),
            (ErrorCode::InternalError, Misuse::NoEntry.into(), "the manifest has no entry for this parent"),
            (ErrorCode::InternalError, Misuse::ChildStatus(Status::Complete).into(), "COMPLETE completes no child"),
            (
                ErrorCode::InternalError,
                Misuse::ReservedChild(7).into(),
                "entity ID 7 is reserved and cannot be a child's",
            ),
            (ErrorCode::InternalError, Misuse::ReservedOrphan.into(), "a reserved ID cannot be a child's"),
            (
                ErrorCode::InternalError,
                Misuse::Pseudonym { length: 5 }.into(),
                "a key for pseudonyms has 16 bytes or more, not 5",
            ),
            (ErrorCode::InternalError, Misuse::Payload.into(), "what comes after a header is payload"),
        ],
    );
}

#[test]
fn every_misuse_has_its_message_part_3() {
    check(
        ErrorKind::Misuse,
        [
            (ErrorCode::InternalError, Misuse::StatusDepth(3).into(), "depth 3 is above 7"),
            (
                ErrorCode::InternalError,
                Misuse::TokenLength { length: 5 }.into(),
                "a yield token of 5 bytes is above 16777215",
            ),
            (
                ErrorCode::InternalError,
                Misuse::OtherExtension(Status::Complete).into(),
                "COMPLETE goes with an extension of its own",
            ),
            (ErrorCode::InternalError, Misuse::Extension(Status::Complete).into(), "COMPLETE has no extension"),
            (ErrorCode::InternalError, Misuse::NoChunk.into(), "the header has no chunk_info"),
            (ErrorCode::InternalError, Misuse::ChunkNotOpen { index: 7 }.into(), "chunk 7 is not open"),
            (
                ErrorCode::InternalError,
                Misuse::CursorStart { cursor: 7, last: 7 }.into(),
                "cursor 7 or last ID 7 is not assignable",
            ),
            (
                ErrorCode::InternalError,
                Misuse::WindowStart { cursor: 7, last: 7, window: 7 }.into(),
                "cursor 7 and last ID 7 are further apart than the window 7",
            ),
            (ErrorCode::InternalError, Misuse::PathSegment.into(), "a path segment is longer than 4294967295 bytes"),
            (ErrorCode::InternalError, Misuse::StaleHandle.into(), "the heap's handle is stale"),
            (ErrorCode::InternalError, Misuse::HigherKey.into(), "a key in the heap can only be lowered"),
            (
                ErrorCode::InternalError,
                Misuse::HeaderKeyLine { line: 5 }.into(),
                "line 5 of the header key is not 64 hex digits",
            ),
            (
                ErrorCode::InternalError,
                Misuse::HeaderKeyCount { count: 5 }.into(),
                "the header key has 5 lines; it has 1 to 16",
            ),
            (ErrorCode::InternalError, Misuse::NoHeaderKey.into(), "no header key"),
            (ErrorCode::InternalError, Misuse::HeaderLength.into(), "a header is too long to be sealed"),
            (
                ErrorCode::InternalError,
                Misuse::KeyProvider("x".to_owned()).into(),
                "\"x\" is no key provider: PROVIDER or PROVIDER=KEY",
            ),
        ],
    );
}
