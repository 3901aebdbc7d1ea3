use std::fmt;

use super::invalid;
use super::location::cut;
use crate::error::{Error, Result};
use crate::messages::EncryptionMetadata;

/// The algorithms of section 7.3, with what their initialization vectors may have in bytes.
const ALGORITHMS: [(&str, &[usize]); 2] = [("AES-256-GCM", &[12, 16]), ("AES-256-CBC", &[16])];
/// A key of 256 bits has 32 bytes. Every approved wrapping adds to it; AES key wrap, the shortest, 8.
const SHORTEST_WRAPPED: usize = 40;
const LONGEST_WRAPPED: usize = 16 << 10;
const MAX_KEY_ID: usize = 2048;

/// The key providers that are approved, and which of their keys (section 10.9). By default there are none.
///
/// An entry is `PROVIDER`, or `PROVIDER=KEY` for one key, or for all keys below a path: `vault=transit/keys/docs`. KEY
/// stands for all of its versions, so that a key can be rotated.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KeyProviders(Vec<(String, Option<String>)>);

impl KeyProviders {
    /// Reads entries; a misuse where one is none.
    pub fn parse<S: AsRef<str>>(entries: impl IntoIterator<Item = S>) -> Result<Self> {
        let parse = |entry: S| {
            let entry = entry.as_ref();
            let (provider, key) = entry.split_once('=').map_or((entry, None), |(name, key)| (name, Some(key)));
            if provider.is_empty() || key.is_some_and(str::is_empty) {
                return Err(Error::misuse(format!("{entry:?} is no key provider: PROVIDER or PROVIDER=KEY")));
            }
            Ok((provider.to_owned(), key.map(str::to_owned)))
        };
        entries.into_iter().map(parse).collect::<Result<_>>().map(Self)
    }

    /// Refuses what section 10.9 does not allow: ENTITY_INVALID. Nothing of the key material is in the error.
    pub fn check(&self, encryption: &EncryptionMetadata) -> Result<()> {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let (provider, key_id) = (text(&encryption.key_provider), text(&encryption.key_id));
        self.check_key(&provider, &key_id)?;
        let algorithm = text(&encryption.algorithm);
        let Some((_, vectors)) = ALGORITHMS.iter().find(|(name, _)| *name == algorithm) else {
            let message = format!("the algorithm {:?} is none of AES-256-GCM and AES-256-CBC", cut(&algorithm));
            return Err(invalid(message));
        };
        if let Some(iv) = &encryption.iv
            && !vectors.contains(&iv.len())
        {
            return Err(invalid(format!("an initialization vector of {} bytes is none of {algorithm}", iv.len())));
        }
        match encryption.wrapped_key.as_ref().map(bytes::Bytes::len) {
            Some(length) if length < SHORTEST_WRAPPED => Err(invalid(format!(
                "a wrapped key of {length} bytes is not wrapped: with an approved envelope it has {SHORTEST_WRAPPED} or more"
            ))),
            Some(length) if length > LONGEST_WRAPPED => {
                Err(invalid(format!("a wrapped key of {length} bytes is above the limit of {LONGEST_WRAPPED}")))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_key(&self, provider: &str, key_id: &str) -> Result<()> {
        if !self.0.iter().any(|(name, _)| name == provider) {
            let known: Vec<_> = self.0.iter().map(|(name, _)| name.as_str()).collect();
            let known = if known.is_empty() { "none is".to_owned() } else { format!("approved: {}", known.join(", ")) };
            return Err(invalid(format!("the key provider {:?} is not approved ({known})", cut(provider))));
        }
        if key_id.is_empty() || key_id.len() > MAX_KEY_ID || key_id.chars().any(char::is_control) {
            return Err(invalid(format!("the key ID names no key of {provider}")));
        }
        if let Some(other) = provider_of(key_id).filter(|other| *other != provider) {
            return Err(invalid(format!("the key ID {:?} is one of {other}, not of {provider}", cut(key_id))));
        }
        let is_approved = |(name, key): &(String, Option<String>)| {
            name == provider && key.as_deref().is_none_or(|key| is_version_of(key_id, key))
        };
        if self.0.iter().any(is_approved) {
            return Ok(());
        }
        Err(invalid(format!("the key {:?} is not approved of {provider}", cut(key_id))))
    }
}

impl fmt::Debug for KeyProviders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// Whose key an ID is, where its form tells.
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

/// Whether `key_id` is `key`, one of its versions, or below it.
fn is_version_of(key_id: &str, key: &str) -> bool {
    let key = key.strip_suffix('/').unwrap_or(key);
    key_id.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ':', '@', '#']))
}

/// A key ID without its version, and the version where it names one: `KEY/cryptoKeyVersions/V` (GCP),
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
