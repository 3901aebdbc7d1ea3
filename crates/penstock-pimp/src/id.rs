use std::fmt;

use uuid::{Builder, Uuid, Variant, Version};

/// A job's ID: a UUIDv4 made by the consumer (section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(Uuid);

impl JobId {
    /// Make an ID from 16 bytes of the system's random numbers.
    pub const fn from_random(bytes: [u8; 16]) -> Self {
        Self(Builder::from_random_bytes(bytes).into_uuid())
    }

    /// Parse an ID in its only valid form: lower case, with hyphens. Anything else is malformed (decision 8).
    pub fn parse(text: &str) -> Option<Self> {
        let id = Uuid::try_parse(text).ok()?;
        let right = id.get_version() == Some(Version::Random)
            && id.get_variant() == Variant::RFC4122
            && id.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text;
        right.then_some(Self(id))
    }

    /// Return the 16 bytes, by which stores sort.
    pub const fn bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// Return the ID with these bytes, if they are a valid one.
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        Self::parse(&Uuid::from_bytes(bytes).to_string())
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_version_4_uuid_in_lower_case_with_hyphens() {
        let text = "550e8400-e29b-41d4-a716-446655440000";
        let id = JobId::parse(text).expect("valid");
        assert_eq!(id.to_string(), text);
        assert_eq!(JobId::from_bytes(*id.bytes()), Some(id));
        let wrong = [
            "",
            "550E8400-E29B-41D4-A716-446655440000",
            "550e8400e29b41d4a716446655440000",
            "{550e8400-e29b-41d4-a716-446655440000}",
            "urn:uuid:550e8400-e29b-41d4-a716-446655440000",
            "550e8400-e29b-11d4-a716-446655440000",
            "550e8400-e29b-41d4-c716-446655440000",
            "550e8400-e29b-41d4-a716-44665544000",
            "../etc/passwd",
        ];
        for text in wrong {
            assert_eq!(JobId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn random_bytes_make_an_id() {
        let id = JobId::from_random([0xFF; 16]);
        assert_eq!(JobId::parse(&id.to_string()), Some(id));
    }
}
