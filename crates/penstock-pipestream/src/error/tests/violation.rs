use super::*;

#[test]
fn every_violation_has_its_message_and_its_code_part_1() {
    check(
        ErrorKind::Violation,
        [
            (ErrorCode::LayerUnsupported, Violation::NoLayer0.into(), "the peer does not have layer 0"),
            (
                ErrorCode::EntityInvalid,
                Violation::BeforeCapabilities { frame_type: 3 }.into(),
                "frame type 0x03 came before CAPABILITIES",
            ),
            (ErrorCode::EntityInvalid, Violation::SecondCapabilities.into(), "a second CAPABILITIES came"),
            (ErrorCode::EntityInvalid, Violation::EarlyStream.into(), "an entity stream came before CAPABILITIES"),
            (
                ErrorCode::EntityInvalid,
                Violation::BidirectionalStream.into(),
                "a bidirectional stream other than stream 0",
            ),
            (ErrorCode::ControlReset, Violation::ControlEnd { how: StreamEnd::Reset }.into(), "stream 0 was reset"),
            (
                ErrorCode::LayerUnsupported,
                Violation::Layer2Status { status: Status::Complete }.into(),
                "STATUS COMPLETE without layer 2",
            ),
            (
                ErrorCode::LayerUnsupported,
                Violation::Layer1Status { depth: 3, scope: 9 }.into(),
                "STATUS with depth 3 in scope 9 at layer 0",
            ),
            (
                ErrorCode::LayerUnsupported,
                Violation::Layer1Frame { frame: "f", scope: 9 }.into(),
                "f for scope 9 at layer 0",
            ),
            (
                ErrorCode::LayerUnsupported,
                Violation::Layer1Checkpoint { scope: 7 }.into(),
                "CHECKPOINT for scope 7 at layer 0",
            ),
            (ErrorCode::LayerUnsupported, Violation::Layer1Stream { scope: 9 }.into(), "scope 9 at layer 0"),
            (
                ErrorCode::LayerUnsupported,
                Violation::Layer1Parent.into(),
                "DEHYDRATING of an entity with a parent at layer 0",
            ),
            (
                ErrorCode::LayerUnsupported,
                Violation::Layer2Frame { frame_type: 3 }.into(),
                "frame type 0x03 without layer 2",
            ),
            (ErrorCode::EntityInvalid, Violation::ReservedEntity.into(), "a reserved entity ID"),
            (ErrorCode::ScopeInvalid, Violation::UnknownScope { scope: 9 }.into(), "scope 9 is not known"),
            (ErrorCode::ScopeInvalid, Violation::UnopenedScope { scope: 9 }.into(), "scope 9 has not been opened"),
            (
                ErrorCode::ScopeInvalid,
                Violation::ForeignStatus { status: Status::Complete, scope: 9 }.into(),
                "STATUS COMPLETE in scope 9, which is not the sender's",
            ),
            (ErrorCode::EntityInvalid, Violation::OwnComplete.into(), "COMPLETE by the entity's own owner"),
            (
                ErrorCode::EntityInvalid,
                Violation::OwnStatus { status: Status::Complete }.into(),
                "STATUS COMPLETE by the entity's own owner",
            ),
            (
                ErrorCode::EntityInvalid,
                Violation::Depth { depth: 3, expected: 3 }.into(),
                "depth 3 for a scope at depth 3",
            ),
            (
                ErrorCode::EntityInvalid,
                Violation::Cursor { cursor: 7, first: 7, next: 7 }.into(),
                "cursor 7 does not lie from 7 to 7",
            ),
            (
                ErrorCode::EntityInvalid,
                Violation::CursorRange { cursor: 7, first: 7, next: 7 }.into(),
                "cursor 7 is not within 7 to 7",
            ),
        ],
    );
}

#[test]
fn every_violation_has_its_message_and_its_code_part_2() {
    check(
        ErrorKind::Violation,
        [
            (
                ErrorCode::EntityInvalid,
                Violation::NotAnnounced.into(),
                "STATUS about an entity that was never announced",
            ),
            (ErrorCode::EntityInvalid, Violation::AnnouncedTwice.into(), "an entity ID was announced twice"),
            (ErrorCode::EntityInvalid, Violation::LateChild.into(), "a child was announced after its scope's BARRIER"),
            (ErrorCode::EntityInvalid, Violation::NextEntity { next: 7 }.into(), "the next entity ID is 7"),
            (
                ErrorCode::EntityInvalid,
                Violation::LateDehydrating.into(),
                "DEHYDRATING came after the stream of an entity whose header does not say so",
            ),
            (
                ErrorCode::EntityInvalid,
                Violation::ForeignRetrying.into(),
                "RETRYING by another than the entity's owner",
            ),
            (ErrorCode::EntityInvalid, Violation::NotSetAside.into(), "RETRYING of an entity that was not set aside"),
            (
                ErrorCode::EntityInvalid,
                Violation::IncompleteChildren.into(),
                "COMPLETE for a parent whose children are not",
            ),
            (
                ErrorCode::EntityInvalid,
                Violation::EarlyComplete.into(),
                "COMPLETE for a dehydrated entity before its barrier",
            ),
            (
                ErrorCode::EntityInvalid,
                Violation::NoSuchChild { parent: 7 }.into(),
                "the sealed entry of entity 7 has no such child",
            ),
            (
                ErrorCode::ScopeInvalid,
                Violation::ChildScope { scope: 9 }.into(),
                "scope 9 cannot be a child scope of the peer's",
            ),
            (
                ErrorCode::ScopeInvalid,
                Violation::ParentBound { bound: 9, scope: 9 }.into(),
                "the parent is bound to scope 9, not to 9",
            ),
            (
                ErrorCode::ScopeInvalid,
                Violation::ScopeReused { scope: 9 }.into(),
                "scope 9 was released and is used again before the IDs have wrapped",
            ),
            (
                ErrorCode::ScopeInvalid,
                Violation::ScopeBound { scope: 9, entity: 7 }.into(),
                "scope 9 is bound to entity 7 already",
            ),
            (
                ErrorCode::EntityInvalid,
                Violation::ScopeDepth { scope: 9, depth: 3 }.into(),
                "STATUS frames put scope 9 at another depth than 3",
            ),
            (
                ErrorCode::ScopeInvalid,
                Violation::NoParent { id: Some(7) }.into(),
                "no open entity 7 that is DEHYDRATING is without a scope of its own",
            ),
            (
                ErrorCode::EntityInvalid,
                Violation::ParentDepth.into(),
                "STATUS frames put the scope at a depth at which no entity can be its parent",
            ),
            (
                ErrorCode::ScopeInvalid,
                Violation::NoParents.into(),
                "the depths that STATUS frames name and the parents that BARRIERs name leave a scope without a parent",
            ),
            (ErrorCode::EntityInvalid, Violation::SecondBarrier.into(), "a second BARRIER for a scope"),
            (
                ErrorCode::ScopeInvalid,
                Violation::LateBarrier { scope: 9 }.into(),
                "BARRIER for scope 9, which was released",
            ),
            (
                ErrorCode::ScopeInvalid,
                Violation::BarrierParent { entity: 7, scope: 9 }.into(),
                "BARRIER names entity 7 as the parent of scope 9",
            ),
            (
                ErrorCode::ScopeInvalid,
                Violation::ForeignBarrier.into(),
                "BARRIER S=0 for a scope that is not the sender's",
            ),
        ],
    );
}

#[test]
fn every_violation_has_its_message_and_its_code_part_3() {
    check(
        ErrorKind::Violation,
        [
            (ErrorCode::EntityInvalid, Violation::OwnRelease.into(), "BARRIER S=1 by the scope's own owner"),
            (
                ErrorCode::ScopeInvalid,
                Violation::ReleasedScope { scope: 9 }.into(),
                "BARRIER S=1 for scope 9, which is not open",
            ),
            (ErrorCode::ScopeInvalid, Violation::ReleasedParent.into(), "BARRIER S=1 names another parent"),
            (ErrorCode::EntityInvalid, Violation::EarlyRelease.into(), "BARRIER S=1 before the scope's SCOPE_DIGEST"),
            (
                ErrorCode::ScopeInvalid,
                Violation::DigestScope { scope: 9 }.into(),
                "SCOPE_DIGEST for scope 9, which is not open",
            ),
            (
                ErrorCode::EntityInvalid,
                Violation::EarlyDigest.into(),
                "SCOPE_DIGEST before every entity of the scope is terminal",
            ),
            (
                ErrorCode::IntegrityError,
                Violation::Digest { scope: 9 }.into(),
                "the digest of scope 9 differs from ours",
            ),
            (
                ErrorCode::ScopeInvalid,
                Violation::CheckpointScope { scope: 7 }.into(),
                "CHECKPOINT for scope 7, which is not open",
            ),
            (ErrorCode::ScopeInvalid, Violation::HeaderScope { scope: 7 }.into(), "scope 7 is above 65535"),
            (ErrorCode::ScopeInvalid, Violation::ForeignStream { scope: 9 }.into(), "scope 9 is not the sender's"),
            (
                ErrorCode::WindowExceeded,
                Violation::NewScopeWindow.into(),
                "an entity stream outside the window of a new scope",
            ),
            (
                ErrorCode::WindowExceeded,
                Violation::StreamWindow.into(),
                "an entity stream whose PENDING can no longer arrive",
            ),
            (
                ErrorCode::EntityInvalid,
                Violation::StreamBehindEnd.into(),
                "an entity stream whose PENDING can no longer arrive",
            ),
            (
                ErrorCode::EntityInvalid,
                Violation::SecondStream.into(),
                "a second stream for an entity without chunk_info",
            ),
            (
                ErrorCode::ScopeInvalid,
                Violation::HeaderParent { parent: 7, bound: 7 }.into(),
                "parent 7 in the header, 7 by the binding of the scope",
            ),
            (
                ErrorCode::ScopeInvalid,
                Violation::ParentScope { scope: 9 }.into(),
                "pipestream.parent-scope does not name scope 9",
            ),
            (ErrorCode::ScopeInvalid, Violation::ChildScopeName.into(), "pipestream.child-scope is malformed"),
            (ErrorCode::ScopeInvalid, Violation::NoChildScope.into(), "pipestream.child-scope is missing"),
            (ErrorCode::EntityInvalid, Violation::UnknownParent.into(), "the parent was never announced"),
            (ErrorCode::EntityInvalid, Violation::WholeParent.into(), "the parent is not being dehydrated"),
            (
                ErrorCode::EntityInvalid,
                Violation::Attempt { named: "x".to_owned(), next: 7 }.into(),
                "pipestream.attempt is \"x\"; the next attempt is 7",
            ),
            (
                ErrorCode::EntityInvalid,
                Violation::BeforeSession { what: Early::Frame(0x55) }.into(),
                "frame type 0x55 came before SESSION",
            ),
        ],
    );
}

#[test]
fn every_violation_has_its_message_and_its_code_part_4() {
    check(
        ErrorKind::Violation,
        [
            (ErrorCode::EntityInvalid, Violation::SecondSession.into(), "a second SESSION came"),
            (ErrorCode::EntityInvalid, Violation::OtherSession.into(), "SESSION names another session than ours"),
            (ErrorCode::EntityInvalid, Violation::EarlyResumption.into(), "SESSION resumes a session that begins"),
            (ErrorCode::EntityInvalid, Violation::SessionPolicy.into(), "SESSION has another policy than ours"),
            (ErrorCode::EntityInvalid, Violation::NoResumption.into(), "SESSION does not resume the session"),
            (
                ErrorCode::EntityInvalid,
                Violation::LateResumption.into(),
                "SESSION resumes a session after other frames",
            ),
            (
                ErrorCode::EntityInvalid,
                Violation::SessionReceived { received: 11, sent: 11, acknowledged: 11 }.into(),
                "SESSION has received 11 frames; 11 were sent, and 11 acknowledged",
            ),
            (
                ErrorCode::EntityInvalid,
                Violation::SessionSent { sent: 11, received: 11 }.into(),
                "SESSION has sent 11 frames, of which 11 have come before",
            ),
            (
                ErrorCode::EntityInvalid,
                Violation::BeforeResumption { frame_type: 3 }.into(),
                "frame type 0x03 came before the session was resumed",
            ),
            (
                ErrorCode::LayerUnsupported,
                Violation::Capabilities.into(),
                "the session's first connection agreed on other capabilities than this one",
            ),
            (
                ErrorCode::ClaimNotFound,
                Violation::UnknownSession(SESSION).into(),
                "session abababababababababababababababab is not known here",
            ),
            (
                ErrorCode::ClaimNotFound,
                Violation::ShortSession(SESSION).into(),
                "session abababababababababababababababab is not known here: sessions end with their connections",
            ),
            (
                ErrorCode::ScopeInvalid,
                Violation::ResumeScopeId { scope: 7 }.into(),
                "scope 7 of a RESUME is above 65535",
            ),
            (ErrorCode::ScopeInvalid, Violation::ResumeScope.into(), "RESUME in a scope that is not the sender's"),
            (
                ErrorCode::ClaimNotFound,
                Violation::YieldToken.into(),
                "the yield token is not one of this entity in this session",
            ),
            (ErrorCode::ClaimNotFound, Violation::SpentToken.into(), "the yield token was used before, or is void"),
            (
                ErrorCode::EntityInvalid,
                Violation::UnexpectedClaimResponse { id: 11 }.into(),
                "a CLAIM_RESPONSE for 000000000000000b, which answers no request",
            ),
            (
                ErrorCode::ClaimNotFound,
                Violation::UnknownClaim { id: 11 }.into(),
                "claim check 000000000000000b is not known",
            ),
            (
                ErrorCode::ClaimNotFound,
                Violation::RedeemedClaim { id: 11 }.into(),
                "claim check 000000000000000b was redeemed before",
            ),
            (
                ErrorCode::ClaimNotFound,
                Violation::ForeignClaim { id: 11 }.into(),
                "claim check 000000000000000b is not this session's",
            ),
            (
                ErrorCode::EntityInvalid,
                Violation::Quorum { ratio: "x".to_owned() }.into(),
                "QUORUM needs a min_success_ratio from 0 to 1, not x",
            ),
            (
                ErrorCode::DepthExceeded,
                Violation::StreamReset(ErrorCode::DepthExceeded).into(),
                "the peer reset the entity's stream",
            ),
        ],
    );
}

#[test]
fn every_violation_has_its_message_and_its_code_part_5() {
    check(
        ErrorKind::Violation,
        [(
            ErrorCode::DepthExceeded,
            Violation::StreamStopped(ErrorCode::DepthExceeded).into(),
            "the entity has failed meanwhile",
        )],
    );
}
