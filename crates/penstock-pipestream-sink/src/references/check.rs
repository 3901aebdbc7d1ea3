use penstock_pipestream::{self as core, ObjectError, PayloadCheck};
use sha2::{Digest as _, Sha256};

/// The check that bytes match a header or a reference.
#[derive(Debug)]
pub(crate) enum Check {
    /// An entity's payload.
    Payload(PayloadCheck),
    /// An object that an entity refers to.
    Object(ObjectCheck),
}

/// The state of an object's check, which counts and hashes the bytes as they arrive.
#[derive(Debug)]
pub(crate) struct ObjectCheck {
    length: u64,
    sha256: Option<[u8; 32]>,
    seen: u64,
    hash: Sha256,
}

impl Check {
    /// Create the check of an object of this length and, if given, with this SHA-256.
    pub(super) fn object(length: u64, sha256: Option<[u8; 32]>) -> Self {
        Self::Object(ObjectCheck { length, sha256, seen: 0, hash: Sha256::new() })
    }

    /// Create a check that counts and hashes bytes that are already verified.
    pub(crate) fn kept(bytes: &[u8]) -> Self {
        Self::object(bytes.len() as u64, None)
    }

    /// Count and hash the next bytes.
    pub(crate) fn update(&mut self, bytes: &[u8]) -> core::Result<()> {
        match self {
            Self::Payload(check) => check.update(bytes),
            Self::Object(check) => {
                check.seen = check.seen.saturating_add(bytes.len() as u64);
                if check.seen > check.length {
                    return Err(ObjectError::Length(check.length).into());
                }
                check.hash.update(bytes);
                Ok(())
            }
        }
    }

    /// Finish after all bytes. Return their digest, if it is correct.
    pub(crate) fn finish(self) -> core::Result<[u8; 32]> {
        match self {
            Self::Payload(check) => check.finish(),
            Self::Object(ObjectCheck { length, sha256, seen, hash }) => {
                if seen != length {
                    return Err(ObjectError::Length(length).into());
                }
                let digest = hash.finalize().into();
                if sha256.is_some_and(|expected| expected != digest) {
                    return Err(ObjectError::Digest.into());
                }
                Ok(digest)
            }
        }
    }
}
