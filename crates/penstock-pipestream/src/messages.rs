//! The protobuf messages of appendix A and of decision 20, as prost made them from `/proto`
//! (`scripts/regenerate-proto.sh`), and the rule that prost does not keep: enums are closed, an unknown value is
//! ENTITY_INVALID (decisions 3 and 5).

use bytes::Buf;
use prost::Message;

use crate::error::{Malformed, Result};

pub use self::penstock::pipestream::v1::{
    ClaimQuery as ClaimQueryMessage, ClaimRedeem as ClaimRedeemMessage, ClaimResponse as ClaimResponseMessage,
    Error as ErrorMessage, Resume as ResumeMessage, Session as SessionMessage,
};
pub use self::pipestream::protocol::v1::{
    AssemblyManifestEntry, Capabilities as CapabilitiesMessage, CheckpointFrame as CheckpointMessage, ChunkInfo,
    ClaimCheck, CompletionMode, CompletionPolicy, EncryptionMetadata, EntityHeader as EntityHeaderMessage,
    EntityStatus, FailureAction, FileStorageReference, OwnershipContext as OwnershipContextMessage,
    PipeDoc as PipeDocMessage, ResolutionState, ScopeDigest as ScopeDigestMessage, StatusFrame as StatusMessage,
    StoppingPointValidation, YieldReason, YieldToken,
};

// The modules are nested as the packages are, because the generated code names its neighbours by such paths.
mod pipestream {
    pub(super) mod protocol {
        #[allow(clippy::all, missing_docs, unreachable_pub)]
        pub(in crate::messages) mod v1 {
            include!("generated/pipestream.protocol.v1.rs");
        }
    }
}
mod penstock {
    pub(super) mod pipestream {
        #[allow(clippy::all, missing_docs, unreachable_pub)]
        pub(in crate::messages) mod v1 {
            include!("generated/penstock.pipestream.v1.rs");
        }
    }
}

/// A message whose enums are closed.
pub trait ClosedEnums {
    /// Refuse an unknown enum value, here or in a message within.
    fn validate(&self) -> Result<()> {
        Ok(())
    }
}

/// Parse a message and refuse unknown enum values: ENTITY_INVALID either way.
pub fn decode_message<M: Message + Default + ClosedEnums>(bytes: impl Buf) -> Result<M> {
    let message = M::decode(bytes).map_err(Malformed::Protobuf)?;
    message.validate()?;
    Ok(message)
}

impl ClosedEnums for CapabilitiesMessage {}
impl ClosedEnums for CheckpointMessage {}
impl ClosedEnums for ClaimCheck {}
impl ClosedEnums for ClaimQueryMessage {}
impl ClosedEnums for ClaimRedeemMessage {}
impl ClosedEnums for ErrorMessage {}
impl ClosedEnums for ResumeMessage {}
impl ClosedEnums for FileStorageReference {}
impl ClosedEnums for PipeDocMessage {}
impl ClosedEnums for ScopeDigestMessage {}
impl ClosedEnums for StoppingPointValidation {}

impl ClosedEnums for SessionMessage {
    fn validate(&self) -> Result<()> {
        self.completion_policy.as_ref().map_or(Ok(()), ClosedEnums::validate)
    }
}

impl ClosedEnums for EntityHeaderMessage {
    fn validate(&self) -> Result<()> {
        self.completion_policy.as_ref().map_or(Ok(()), ClosedEnums::validate)
    }
}

impl ClosedEnums for CompletionPolicy {
    fn validate(&self) -> Result<()> {
        known::<CompletionMode>("CompletionPolicy.mode", self.mode)?;
        known::<FailureAction>("CompletionPolicy.on_timeout", self.on_timeout)?;
        known::<FailureAction>("CompletionPolicy.on_failure", self.on_failure)
    }
}

impl ClosedEnums for ClaimResponseMessage {
    fn validate(&self) -> Result<()> {
        known::<EntityStatus>("ClaimResponse.status", self.status)
    }
}

impl ClosedEnums for StatusMessage {
    fn validate(&self) -> Result<()> {
        known::<EntityStatus>("StatusFrame.status", self.status)
    }
}

impl ClosedEnums for AssemblyManifestEntry {
    fn validate(&self) -> Result<()> {
        known::<EntityStatus>("AssemblyManifestEntry.children_status", self.children_status.iter().copied())?;
        known::<ResolutionState>("AssemblyManifestEntry.state", self.state)?;
        self.policy.as_ref().map_or(Ok(()), ClosedEnums::validate)
    }
}

impl ClosedEnums for YieldToken {
    fn validate(&self) -> Result<()> {
        known::<YieldReason>("YieldToken.reason", self.reason)
    }
}

fn known<E: TryFrom<i32>>(field: &'static str, values: impl IntoIterator<Item = i32>) -> Result<()> {
    match values.into_iter().find(|value| E::try_from(*value).is_err()) {
        None => Ok(()),
        Some(value) => Err(Malformed::EnumValue { field, value }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn refused(message: &(impl Message + Clone), decode: fn(&[u8]) -> Result<()>, name: &str) {
        let error = decode(&message.encode_to_vec()).expect_err("an unknown value");
        assert!(
            matches!(error, Error::Malformed(Malformed::EnumValue { field, .. }, None) if field == name),
            "{error}"
        );
    }

    fn decode<M: Message + Default + ClosedEnums>(bytes: &[u8]) -> Result<()> {
        decode_message::<M>(bytes).map(drop)
    }

    #[test]
    fn an_unknown_enum_value_is_refused_in_every_field_that_holds_one() {
        let policy =
            |mode, on_timeout, on_failure| CompletionPolicy { mode, on_timeout, on_failure, ..Default::default() };
        let header = |policy| EntityHeaderMessage { completion_policy: Some(policy), ..Default::default() };
        let entry = AssemblyManifestEntry::default;
        refused(&header(policy(Some(5), None, None)), decode::<EntityHeaderMessage>, "CompletionPolicy.mode");
        refused(&header(policy(None, Some(-1), None)), decode::<EntityHeaderMessage>, "CompletionPolicy.on_timeout");
        refused(&header(policy(None, None, Some(5))), decode::<EntityHeaderMessage>, "CompletionPolicy.on_failure");
        refused(
            &StatusMessage { status: Some(13), ..Default::default() },
            decode::<StatusMessage>,
            "StatusFrame.status",
        );
        refused(
            &AssemblyManifestEntry { children_status: vec![3, 13, 3], ..entry() },
            decode::<AssemblyManifestEntry>,
            "AssemblyManifestEntry.children_status",
        );
        refused(
            &AssemblyManifestEntry { state: Some(5), ..entry() },
            decode::<AssemblyManifestEntry>,
            "AssemblyManifestEntry.state",
        );
        refused(
            &AssemblyManifestEntry { policy: Some(policy(Some(9), None, None)), ..entry() },
            decode::<AssemblyManifestEntry>,
            "CompletionPolicy.mode",
        );
        refused(
            &ClaimResponseMessage { status: Some(13), ..Default::default() },
            decode::<ClaimResponseMessage>,
            "ClaimResponse.status",
        );
        refused(&YieldToken { reason: Some(6), ..Default::default() }, decode::<YieldToken>, "YieldToken.reason");
    }

    #[test]
    fn every_known_value_is_accepted() {
        for value in 0..=12 {
            let entry = AssemblyManifestEntry { children_status: vec![value], ..Default::default() };
            assert_eq!(decode_message::<AssemblyManifestEntry>(entry.encode_to_vec().as_slice()), Ok(entry));
        }
    }
}
