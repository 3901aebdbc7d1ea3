//! The key that a reader needs to read rows from a server.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::{Misuse, Result};

/// The fewest bytes of a read key: a shorter one could be guessed.
pub const MIN_KEY: usize = 16;

/// The secret that a reader must present. Only its hash is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct ReadKey([u8; 32]);

impl fmt::Debug for ReadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadKey")
    }
}

impl ReadKey {
    /// Make a read key; fail if it is too short.
    pub fn new(key: &str) -> Result<Self> {
        if key.len() < MIN_KEY {
            return Err(Misuse::ReadKeyLength { length: key.len(), minimum: MIN_KEY }.into());
        }
        Ok(Self(Sha256::digest(key).into()))
    }

    /// Compare the keys in a time that does not reveal where they differ.
    pub fn matches(&self, key: &str) -> bool {
        let found: [u8; 32] = Sha256::digest(key).into();
        let difference = self.0.iter().zip(found).fold(0, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn a_key_must_be_long_and_only_the_same_one_matches() {
        let refused = ReadKey::new("fifteen bytes..").unwrap_err();
        assert!(matches!(refused, Error::Misuse(Misuse::ReadKeyLength { length: 15, minimum: 16 })), "{refused:?}");
        let key = ReadKey::new("sixteen bytes...").unwrap();
        assert!(key.matches("sixteen bytes..."));
        assert!(!key.matches("sixteen bytes..") && !key.matches("") && !key.matches("Sixteen bytes..."));
        assert_eq!(format!("{key:?}"), "ReadKey");
    }
}
