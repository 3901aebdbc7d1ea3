use std::fmt;

use super::location::cut;
use crate::error::{Misuse, ReferenceError, Result};
use crate::messages::EncryptionMetadata;
use crate::sizes::{LONGEST_WRAPPED, SHORTEST_WRAPPED};

/// The algorithms of section 7.3, with the allowed lengths of their initialization vectors in bytes.
const ALGORITHMS: [(&str, &[usize]); 2] = [("AES-256-GCM", &[12, 16]), ("AES-256-CBC", &[16])];
const MAX_KEY_ID: usize = 2048;

/// The approved key providers and their approved keys (section 10.9). By default there are none.
///
/// An entry is `PROVIDER`, or `PROVIDER=KEY` for one key, or for all keys below a path: `vault=transit/keys/docs`. KEY
/// includes all of its versions, so that a key can be rotated.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KeyProviders(Vec<(String, Option<String>)>);

impl KeyProviders {
    /// Parse entries; an invalid one is a misuse.
    pub fn parse<S: AsRef<str>>(entries: impl IntoIterator<Item = S>) -> Result<Self> {
        let parse = |entry: S| {
            let entry = entry.as_ref();
            let (provider, key) = entry.split_once('=').map_or((entry, None), |(name, key)| (name, Some(key)));
            if provider.is_empty() || key.is_some_and(str::is_empty) {
                return Err(Misuse::KeyProvider(entry.to_owned()).into());
            }
            Ok((provider.to_owned(), key.map(str::to_owned)))
        };
        entries.into_iter().map(parse).collect::<Result<_>>().map(Self)
    }

    /// Reject an encryption that section 10.9 does not allow: ENTITY_INVALID. The error contains no
    /// key material.
    pub fn check(&self, encryption: &EncryptionMetadata) -> Result<()> {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let (provider, key_id) = (text(&encryption.key_provider), text(&encryption.key_id));
        self.check_key(&provider, &key_id)?;
        let algorithm = text(&encryption.algorithm);
        let Some((_, vectors)) = ALGORITHMS.iter().find(|(name, _)| *name == algorithm) else {
            return Err(ReferenceError::Algorithm(cut(&algorithm).to_owned()).into());
        };
        if let Some(iv) = &encryption.iv
            && !vectors.contains(&iv.len())
        {
            return Err(ReferenceError::Vector { length: iv.len(), algorithm }.into());
        }
        match encryption.wrapped_key.as_ref().map(bytes::Bytes::len) {
            Some(length) if length < SHORTEST_WRAPPED => Err(ReferenceError::BareKey { length }.into()),
            Some(length) if length > LONGEST_WRAPPED => Err(ReferenceError::WrappedLength { length }.into()),
            Some(_) | None => Ok(()),
        }
    }

    fn check_key(&self, provider: &str, key_id: &str) -> Result<()> {
        if !self.0.iter().any(|(name, _)| name == provider) {
            let known: Vec<_> = self.0.iter().map(|(name, _)| name.as_str()).collect();
            let approved =
                if known.is_empty() { "none is".to_owned() } else { format!("approved: {}", known.join(", ")) };
            return Err(ReferenceError::KeyProvider { name: cut(provider).to_owned(), approved }.into());
        }
        if key_id.is_empty() || key_id.len() > MAX_KEY_ID || key_id.chars().any(char::is_control) {
            return Err(ReferenceError::KeyId { provider: provider.to_owned() }.into());
        }
        if let Some(other) = provider_of(key_id).filter(|other| *other != provider) {
            return {
                let (key, provider) = (cut(key_id).to_owned(), provider.to_owned());
                Err(ReferenceError::OtherProvider { key, other, provider }.into())
            };
        }
        let is_approved = |(name, key): &(String, Option<String>)| {
            name == provider && key.as_deref().is_none_or(|key| is_version_of(key_id, key))
        };
        if self.0.iter().any(is_approved) {
            return Ok(());
        }
        Err(ReferenceError::Key { key: cut(key_id).to_owned(), provider: provider.to_owned() }.into())
    }
}

impl fmt::Debug for KeyProviders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// Return the provider of a key ID, if its form shows it.
fn provider_of(key_id: &str) -> Option<&'static str> {
    let host = key_id.strip_prefix("https://").map(|rest| rest.split(['/', ':']).next().unwrap_or_default());
    match key_id {
        _ if key_id.starts_with("arn:") => {
            Some(if key_id.split(':').nth(2) == Some("kms") { "aws-kms" } else { "aws" })
        }
        _ if key_id.starts_with("projects/") && key_id.contains("/cryptoKeys/") => Some("gcp-kms"),
        _ if host.is_some_and(|host| host.ends_with(".vault.azure.net")) => Some("azure-keyvault"),
        _ => None,
    }
}

/// Return whether `key_id` is `key`, a version of it, or below it.
fn is_version_of(key_id: &str, key: &str) -> bool {
    let key = key.strip_suffix('/').unwrap_or(key);
    key_id.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ':', '@', '#']))
}

/// Split a key ID into the ID without its version, and the version if it has one: `KEY/cryptoKeyVersions/V` (GCP),
/// `https://VAULT.vault.azure.net/keys/KEY/V` (Azure), `KEY#V`, `KEY@V` or `KEY:vN`.
pub fn split_key_id(key_id: &str) -> (&str, Option<&str>) {
    let found = key_id.rsplit_once("/cryptoKeyVersions/").or_else(|| {
        let azure = provider_of(key_id) == Some("azure-keyvault");
        let (key, version) = key_id.rsplit_once('/').filter(|_| azure)?;
        key.rsplit_once('/').is_some_and(|(keys, _)| keys.ends_with("/keys")).then_some((key, version))
    });
    let found = found.or_else(|| key_id.rsplit_once(['#', '@']));
    let found = found.or_else(|| {
        let digits = |version: &str| {
            version.strip_prefix('v').is_some_and(|n| !n.is_empty() && n.bytes().all(|digit| digit.is_ascii_digit()))
        };
        key_id.rsplit_once(':').filter(|(_, version)| digits(version))
    });
    match found {
        Some((key, version)) if !key.is_empty() && !version.is_empty() => (key, Some(version)),
        Some(_) | None => (key_id, None),
    }
}
