//! The entities behind claim checks, and their descriptions.

use std::time::Duration;

use penstock_io::duration;
use penstock_pipestream::claims::Claim;
use penstock_pipestream::messages::StoppingPointValidation;
use penstock_pipestream::{EntityHeader, FoundClaim, Reason, SessionId, Status};
use serde::{Deserialize, Serialize};

use crate::types::in_words;
use crate::{Misuse, Result};

/// Metadata key that marks an entity as padding.
pub const PADDING: &str = "penstock.padding";
/// Maximum length of a peer's text that is stored with a claim check.
const MAX_TEXT: usize = 4 << 10;

/// Description of the entity behind a claim check, as far as this end knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Details {
    /// The reason for which the entity was deferred.
    pub reason: String,
    /// The document that the entity is a part of, if its sender named one.
    pub document: Option<String>,
    /// The entity's place in the document, a JSON list, if its sender named one.
    pub path: Option<String>,
    /// The content type of the payload.
    pub content_type: Option<String>,
    /// The length of the payload, if it was verified.
    pub bytes: Option<u64>,
    /// The SHA-256 of the payload in hex, if it was verified.
    pub sha256: Option<String>,
    /// The payload's name below the sink, if it was stored.
    pub file: Option<String>,
}

impl Details {
    /// Return the details that a header contains.
    pub fn of(header: &EntityHeader, reason: &Reason) -> Self {
        let short = |text: &&String| text.len() <= MAX_TEXT;
        Self {
            document: header.metadata.get("penstock.document").filter(short).cloned(),
            path: header.metadata.get("penstock.path").filter(short).cloned(),
            content_type: Some(&header.content_type).filter(short).cloned(),
            ..Self::why(reason)
        }
    }

    /// Return the details of an entity without a header: only the reason.
    pub fn why(reason: &Reason) -> Self {
        let mut reason = in_words(reason);
        reason.truncate(reason.floor_char_boundary(MAX_TEXT));
        Self { reason, ..Self::default() }
    }

    /// Return approximately how many bytes the details take.
    pub fn weight(&self) -> usize {
        let Self { reason, document, path, content_type, sha256, file, bytes: _ } = self;
        let texts = [document, path, content_type, sha256, file].into_iter().flatten();
        texts.fold(reason.len() + 256, |sum, text| sum.saturating_add(text.len()))
    }
}

/// A claim check as its holder knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimCheck {
    /// The claim check's ID.
    pub id: u64,
    /// The session in which the entity was deferred. The answer to a peer omits it, because the
    /// peer knows it.
    pub session: Option<SessionId>,
    /// The entity's scope.
    pub scope: u16,
    /// The entity.
    pub entity: u32,
    /// Unix microseconds from which the claim check is refused.
    pub expiry_micros: u64,
    /// State of the entity: DEFERRED, PROCESSING, or its terminal status.
    pub status: Status,
    /// Point at which processing stopped (section 9.6); a list of claim checks omits it.
    pub validation: Option<StoppingPointValidation>,
    /// Path of the payload in the sink, if the work was done without a session; in a [`ClaimRow`]
    /// the details have it instead.
    pub file: Option<String>,
}

impl From<&Claim> for ClaimCheck {
    fn from(claim: &Claim) -> Self {
        Self {
            id: claim.id,
            session: Some(claim.session),
            scope: claim.scope,
            entity: claim.entity,
            expiry_micros: claim.expiry_micros,
            status: claim.status(),
            validation: claim.check().validation,
            file: None,
        }
    }
}

impl ClaimCheck {
    /// Return a claim check from a peer's answer.
    pub(crate) fn found(id: u64, found: FoundClaim) -> Self {
        let FoundClaim { check, status, file } = found;
        Self {
            id,
            session: None,
            scope: check.scope_id.and_then(|scope| u16::try_from(scope).ok()).unwrap_or_default(),
            entity: check.entity_id.unwrap_or_default(),
            expiry_micros: check.expiry_timestamp.unwrap_or_default(),
            status,
            validation: check.validation,
            file,
        }
    }
}

/// A claim check and the description of its entity.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimRow {
    /// The claim check.
    pub check: ClaimCheck,
    /// The description of its entity.
    pub details: Details,
}

impl ClaimRow {
    /// Return approximately how many bytes the row takes.
    pub fn weight(&self) -> usize {
        self.details.weight()
    }
}

/// The content types that are deferred, such as `image/png` and `image/*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeferTypes(Vec<String>);

impl DeferTypes {
    /// Check the patterns: each is a type and a subtype, which may be `*`.
    pub fn new(patterns: impl IntoIterator<Item = String>) -> Result<Self> {
        let checked = patterns.into_iter().map(|pattern| {
            let parts = pattern.split_once('/').filter(|(kind, sub)| {
                !kind.is_empty() && !sub.is_empty() && *kind != "*" && (*sub == "*" || !sub.contains('*'))
            });
            match parts {
                Some(_) => Ok(pattern.to_ascii_lowercase()),
                None => Err(Misuse::DeferType { pattern }.into()),
            }
        });
        checked.collect::<Result<_>>().map(Self)
    }

    /// Return whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Return whether an entity with this header is deferred. Padding is never deferred, because it is no work.
    pub fn matches(&self, header: &EntityHeader) -> bool {
        header.metadata.get(PADDING).is_none_or(|padding| padding != "1") && self.has(&header.content_type)
    }

    fn has(&self, content_type: &str) -> bool {
        let found = content_type.split(';').next().unwrap_or_default().trim();
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(kind) => found.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind)),
            None => found.eq_ignore_ascii_case(pattern),
        })
    }
}

/// Return the lifetime of a claim check from a number of seconds.
pub fn life(seconds: f64) -> Result<Duration> {
    Ok(duration::seconds("life", seconds)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_to_defer_are_whole_or_end_with_a_star() {
        let types = DeferTypes::new(["image/*", "application/PDF"].map(str::to_owned)).unwrap();
        for (content_type, expected) in [
            ("image/png", true),
            ("Image/TIFF; page=1", true),
            ("application/pdf", true),
            ("application/pdf;x=y", true),
            ("application/pdfx", false),
            ("imag", false),
            ("", false),
        ] {
            assert_eq!(types.has(content_type), expected, "{content_type}");
        }
        for wrong in ["", "image", "/*", "*/*", "image/", "image/p*"] {
            assert!(DeferTypes::new([wrong.to_owned()]).is_err(), "{wrong}");
        }
    }
}
