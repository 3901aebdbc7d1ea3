//! The files under `tests/vectors`, which pytest reads too.
//!
//! Every file is a JSON array. A golden vector has its bytes in hex, the same bytes field by field under `explained`,
//! and their meaning; an invalid one has the code that the receiver answers with:
//!
//! ```json
//! {"name": "...", "hex": "5501 ...", "explained": [{"hex": "55", "field": "type", "value": "BARRIER"}], "frame": {}}
//! {"name": "...", "hex": "00", "code": "ENTITY_INVALID"}
//! ```

use std::path::PathBuf;
use std::{fmt, fs};

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};

/// Bytes, written in hex.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Hex(pub Vec<u8>);

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits: Option<Vec<u8>> = text
            .chars()
            .filter(|character| *character != ' ')
            .map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
            .collect();
        let (pairs, odd) = digits.as_deref().ok_or_else(|| D::Error::custom("not hex"))?.as_chunks();
        if !odd.is_empty() {
            return Err(D::Error::custom("an odd number of hex digits"));
        }
        Ok(Self(pairs.iter().map(|[high, low]| high << 4 | low).collect()))
    }
}

impl fmt::Debug for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Bytes of a golden vector and their meaning.
#[derive(Debug, Clone, Deserialize)]
pub struct Explained {
    /// The bytes.
    pub hex: Hex,
    /// The specification's name for them.
    pub field: String,
    /// Their value, for people.
    pub value: serde_json::Value,
}

/// Valid bytes and their meaning: a `T`.
#[derive(Debug, Clone, Deserialize)]
pub struct Golden<T> {
    /// What the vector shows.
    pub name: String,
    /// The bytes.
    pub hex: Hex,
    /// The same bytes, field by field.
    pub explained: Vec<Explained>,
    /// Their meaning. A file may name this field `header`.
    #[serde(alias = "header")]
    pub frame: T,
    /// Whether our sender would write other bytes for it (reserved bits that are set, fields that are left out).
    #[serde(default)]
    pub decode_only: bool,
}

impl<T> Golden<T> {
    /// Return whether the explained bytes, put together, are the vector's.
    pub fn is_explained(&self) -> bool {
        self.explained.iter().flat_map(|part| &part.hex.0).eq(&self.hex.0)
    }
}

/// Invalid bytes.
#[derive(Debug, Clone, Deserialize)]
pub struct Invalid {
    /// What is wrong.
    pub name: String,
    /// The bytes.
    pub hex: Hex,
    /// The registry's name for the error.
    pub code: String,
    /// Whether the bytes are the beginning of valid input, so that the error is the end of the stream.
    #[serde(default)]
    pub truncated: bool,
    /// Whether only the entity fails and the connection stays open.
    #[serde(default)]
    pub entity_only: bool,
}

/// The reason why a file of vectors cannot be used.
#[derive(Debug)]
pub struct Unusable(String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unusable {}

/// Return the vectors of `tests/vectors/PROTOCOL/NAME.json`.
pub fn load<T: DeserializeOwned>(protocol: &str, name: &str) -> Result<Vec<T>, Unusable> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/vectors")
        .join(protocol)
        .join(name)
        .with_extension("json");
    let unusable = |why: &dyn fmt::Display| Unusable(format!("{}: {why}", path.display()));
    let text = fs::read_to_string(&path).map_err(|error| unusable(&error))?;
    serde_json::from_str(&text).map_err(|error| unusable(&error))
}

/// Return several ways in which a stream may deliver the bytes: whole, in two pieces cut at every position, and one by
/// one.
pub fn splits(bytes: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    let in_two = (0..=bytes.len()).filter_map(|at| bytes.split_at_checked(at)).map(|(a, b)| vec![a, b]);
    std::iter::once(vec![bytes]).chain(in_two).chain(std::iter::once(bytes.chunks(1).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_may_have_spaces_and_must_be_whole_bytes() {
        let parse = |text: &str| serde_json::from_str::<Hex>(text).map(|hex| hex.0).ok();
        assert_eq!(parse("\"50 0aFF\""), Some(vec![0x50, 0x0A, 0xFF]));
        assert_eq!(parse("\"\""), Some(Vec::new()));
        assert_eq!(parse("\"5\""), None);
        assert_eq!(parse("\"5x\""), None);
    }

    #[test]
    fn a_vector_is_explained_when_its_parts_are_the_whole() {
        let parse = |part: &str| {
            let text = format!(
                r#"{{"name": "n", "hex": "0102", "explained": [{{"hex": "01", "field": "a", "value": 1}},
                {{"hex": "{part}", "field": "b", "value": 2}}], "frame": 3}}"#
            );
            serde_json::from_str::<Golden<u8>>(&text).expect("valid")
        };
        assert!(parse("02").is_explained());
        assert!(!parse("03").is_explained() && !parse("").is_explained());
    }

    #[test]
    fn splits_are_whole_in_two_at_every_place_and_one_by_one() {
        let splits: Vec<_> = splits(b"abc").collect();
        assert_eq!(splits.len(), 6);
        assert!(splits.iter().all(|pieces| pieces.concat() == b"abc"));
        assert_eq!(splits.last().map(Vec::len), Some(3));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = load::<Hex>("pipestream", "nothing").expect_err("no such file");
        assert!(error.to_string().contains("nothing.json"), "{error}");
    }
}
