//! The key with which readers ask a server for rows.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::{DriverError as _, Error, Result};

/// A read key has at least so many bytes: nobody guesses it.
pub const MIN_KEY: usize = 16;

/// What a reader must know. Only its hash is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct ReadKey([u8; 32]);

impl fmt::Debug for ReadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadKey")
    }
}

impl ReadKey {
    /// Take a key; an error if it is too short.
    pub fn new(key: &str) -> Result<Self> {
        if key.len() < MIN_KEY {
            let problem = format!("the read key has {} bytes; it must have at least {MIN_KEY}", key.len());
            return Err(Error::misuse(problem));
        }
        Ok(Self(Sha256::digest(key).into()))
    }

    /// Compare in a time that tells nothing of where the difference is.
    pub fn matches(&self, key: &str) -> bool {
        let found: [u8; 32] = Sha256::digest(key).into();
        let difference = self.0.iter().zip(found).fold(0, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_must_be_long_and_only_the_same_one_matches() {
        assert!(ReadKey::new("fifteen bytes..").is_err());
        let key = ReadKey::new("sixteen bytes...").unwrap();
        assert!(key.matches("sixteen bytes..."));
        assert!(!key.matches("sixteen bytes..") && !key.matches("") && !key.matches("Sixteen bytes..."));
        assert_eq!(format!("{key:?}"), "ReadKey");
    }
}
