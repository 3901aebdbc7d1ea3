use std::collections::BTreeMap;

use super::location::cut;
use crate::error::{ReferenceError, Result};

/// Reject metadata with an unwrapped data encryption key (section 10.9): an entry whose name indicates one and whose
/// value has the form of a 256-bit key, as the approved algorithms use, in hex or base64; and any private key in PEM.
///
/// `place` is the kind of entries that the error names; the error does not contain the value.
pub fn check_no_data_key(place: &'static str, entries: &BTreeMap<String, String>) -> Result<()> {
    match entries.iter().find(|(name, value)| is_private_key(value) || (has_key_form(value) && names_data_key(name))) {
        None => Ok(()),
        Some((name, _)) => Err(ReferenceError::DataKey { place, name: cut(name).to_owned() }.into()),
    }
}

fn is_private_key(value: &str) -> bool {
    value.contains("PRIVATE KEY-----")
}

/// Return whether the value is 32 bytes in hex, or in base64 of either alphabet, padded or not.
fn has_key_form(value: &str) -> bool {
    let value = value.trim();
    let digits = value.bytes().all(|byte| byte.is_ascii_hexdigit());
    let base = value.trim_end_matches('=');
    let letters = base.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte));
    (digits && value.len() == 64) || (letters && base.len() == 43)
}

/// Return whether a name indicates a data key, and not a wrapped key or a key's name.
fn names_data_key(name: &str) -> bool {
    let words = words(name);
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let harmless = ["wrapped", "encrypted", "sealed", "id", "version", "provider", "arn", "uri", "url", "name", "hash"];
    if words.iter().any(|each| harmless.contains(&each.as_str())) {
        return false;
    }
    let kinds = ["data", "plaintext", "unwrapped", "encryption", "secret"];
    let alone = ["dek", "cek", "datakey", "plaintextkey", "unwrappedkey", "encryptionkey", "secretkey"];
    (0..words.len())
        .any(|at| alone.contains(&word(at)) || (word(at) == "key" && at > 0 && kinds.contains(&word(at - 1))))
}

/// Return the words of `dataKey`, `data-key` and `data.key`, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower = false;
    for character in name.chars() {
        if !character.is_ascii_alphanumeric() || (character.is_ascii_uppercase() && lower) {
            words.push(String::new());
        }
        if character.is_ascii_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.push(character.to_ascii_lowercase());
        }
        lower = character.is_ascii_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}
