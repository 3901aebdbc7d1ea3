//! The `pipestream` URI (section 12).
//!
//! ```text
//!  pipestream-URI = "pipestream://" authority "/" session-id ["/" scope-path] ["/" entity-id]
//!  scope-path     = scope-id *("." scope-id)
//! ```
//!
//! The specification shows `/a1b2c3d4/1.42/e5f6` and leaves the rest open. This implementation defines:
//!
//! - **authority** is a host and perhaps a port; no user information. The host is a DNS name, an IPv4 address, or an
//!   IPv6 address in brackets. Names are kept in lower case.
//! - **session-id** is 1 to 128 unreserved characters (RFC 3986, section 2.3), so it holds the 32 hex digits of
//!   decision 18 and never a slash. Nothing is percent-encoded, and there is no query and no fragment.
//! - **scope-id** is decimal, 0 to 65535 (decision 14), without leading zeros; a path has 1 to 8 of them, since the
//!   deepest scope has depth 7.
//! - **entity-id** is 1 to 8 hex digits and assignable (section 9.1). It is written in lower case without leading
//!   zeros.
//! - **One segment after the session** may be either. It is a scope path if it parses as one,
//!   otherwise an entity ID in the session's root scope. So `/42` and `/1.42` are scopes and
//!   `/e5f6` is an entity; entity 0x42 without a scope path is written `/00000042`, which no scope
//!   path can be: eight digits are either above 65535 or begin with a zero.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::entity_id::is_assignable;
use crate::error::{Error, Result, UriError};

const SCHEME: &str = "pipestream://";
const MAX_URI_LENGTH: usize = 1024;
const MAX_SESSION_LENGTH: usize = 128;
const MAX_HOST_LENGTH: usize = 253;
const MAX_LABEL_LENGTH: usize = 63;
/// Depths 0 to 7 (section 6.2.1).
const MAX_SCOPES: usize = 8;
const MAX_ENTITY_DIGITS: usize = 8;

/// The host of an authority.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A DNS name in lower case.
    Name(String),
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address, in brackets when written.
    V6(Ipv6Addr),
}

/// The host and port of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Authority {
    /// The host.
    pub host: Host,
    /// The port, if the authority names one; never 0.
    pub port: Option<u16>,
}

/// The URI of a session, a scope or an entity. All its parts are valid, and formatting and parsing
/// it returns an equal one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PipestreamUri {
    authority: Authority,
    session_id: String,
    scope_path: Vec<u32>,
    entity_id: Option<u32>,
}

impl PipestreamUri {
    /// Make a URI from its parts. An empty scope path means the session's root scope.
    pub fn new(authority: &str, session_id: &str, scope_path: &[u32], entity_id: Option<u32>) -> Result<Self> {
        let authority = authority.parse()?;
        check_session(session_id)?;
        if scope_path.len() > MAX_SCOPES || scope_path.iter().any(|scope| *scope > u32::from(u16::MAX)) {
            return Err(UriError::ScopePath.into());
        }
        if entity_id.is_some_and(|id| !is_assignable(id)) {
            return Err(UriError::ReservedEntity.into());
        }
        Ok(Self { authority, session_id: session_id.to_owned(), scope_path: scope_path.to_vec(), entity_id })
    }

    /// Return the host and port of the endpoint.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Return the session, as it was written.
    pub fn session_id(&self) -> &str {
        &self.session_id
    }

    /// Return the scopes from the outermost to the innermost; empty if the URI names none.
    pub fn scope_path(&self) -> &[u32] {
        &self.scope_path
    }

    /// Return the entity, if the URI names one.
    pub fn entity_id(&self) -> Option<u32> {
        self.entity_id
    }
}

impl FromStr for PipestreamUri {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.len() > MAX_URI_LENGTH {
            return Err(UriError::Length.into());
        }
        let rest = match text.split_at_checked(SCHEME.len()) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case(SCHEME) => rest,
            _ => return Err(UriError::Scheme.into()),
        };
        let mut segments = rest.split('/');
        let (Some(authority), Some(session_id)) = (segments.next(), segments.next()) else {
            return Err(UriError::NoSession.into());
        };
        let (scope_path, entity_id) = match (segments.next(), segments.next(), segments.next()) {
            (None, ..) => (Vec::new(), None),
            (Some(only), None, _) => match parse_scope_path(only) {
                Some(scopes) => (scopes, None),
                None => (Vec::new(), Some(parse_entity(only)?)),
            },
            (Some(scopes), Some(entity), None) => {
                let scopes = parse_scope_path(scopes).ok_or(UriError::ScopeText)?;
                (scopes, Some(parse_entity(entity)?))
            }
            _ => return Err(UriError::Trailing.into()),
        };
        Self::new(authority, session_id, &scope_path, entity_id)
    }
}

impl fmt::Display for PipestreamUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.authority, self.session_id)?;
        for (index, scope) in self.scope_path.iter().enumerate() {
            write!(f, "{}{scope}", if index == 0 { '/' } else { '.' })?;
        }
        match self.entity_id {
            // Alone and in decimal digits only, it would be parsed as a scope.
            Some(entity) if self.scope_path.is_empty() && reads_as_decimal(entity) => write!(f, "/{entity:08x}"),
            Some(entity) => write!(f, "/{entity:x}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Authority {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, after) = rest.split_once(']').ok_or(UriError::Bracket)?;
                let address = address.parse().map_err(|_| UriError::Address)?;
                let port = match after.strip_prefix(':') {
                    None if after.is_empty() => None,
                    None => return Err(UriError::AddressEnd.into()),
                    port => port,
                };
                (Host::V6(address), port)
            }
            None => match text.split_once(':') {
                Some((host, port)) => (parse_name(host)?, Some(port)),
                None => (parse_name(text)?, None),
            },
        };
        Ok(Self { host, port: port.map(parse_port).transpose()? })
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => f.write_str(name)?,
            Host::V4(address) => write!(f, "{address}")?,
            Host::V6(address) => write!(f, "[{address}]")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Parse a DNS name of letters, digits and inner hyphens, or an IPv4 address. A name that ends in a number is invalid
/// (the top-level domain is alphabetic), so a mistyped address is rejected instead of looked up.
fn parse_name(text: &str) -> Result<Host> {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= MAX_LABEL_LENGTH
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if let Ok(address) = text.parse() {
        return Ok(Host::V4(address));
    }
    let ends_in_number = text.rsplit('.').next().is_some_and(|label| label.bytes().all(|byte| byte.is_ascii_digit()));
    if text.len() > MAX_HOST_LENGTH || ends_in_number || !text.split('.').all(is_label) {
        return Err(UriError::Host.into());
    }
    Ok(Host::Name(text.to_ascii_lowercase()))
}

fn parse_port(text: &str) -> Result<u16> {
    match parse_decimal(text) {
        Some(port) if port != 0 => Ok(port),
        _ => Err(UriError::Port.into()),
    }
}

/// Parse a number of up to 65535 without sign and leading zeros.
fn parse_decimal(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

fn check_session(text: &str) -> Result<()> {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if text.is_empty() || text.len() > MAX_SESSION_LENGTH || !text.bytes().all(unreserved) {
        return Err(UriError::SessionId.into());
    }
    Ok(())
}

fn parse_scope_path(text: &str) -> Option<Vec<u32>> {
    let scopes: Vec<_> =
        text.split('.').take(MAX_SCOPES + 1).map(|scope| parse_decimal(scope).map(u32::from)).collect::<Option<_>>()?;
    (scopes.len() <= MAX_SCOPES).then_some(scopes)
}

fn parse_entity(text: &str) -> Result<u32> {
    let plain = (1..=MAX_ENTITY_DIGITS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match u32::from_str_radix(text, 16) {
        Ok(entity) if plain => Ok(entity),
        _ => Err(UriError::EntityId.into()),
    }
}

fn reads_as_decimal(mut entity: u32) -> bool {
    while entity != 0 {
        if entity & 0xF > 9 {
            return false;
        }
        entity >>= 4;
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::entity_id::MODULUS;

    #[derive(serde::Deserialize)]
    struct Vectors {
        valid: Vec<Valid>,
        invalid: Vec<Invalid>,
    }

    #[derive(serde::Deserialize)]
    struct Valid {
        uri: String,
        authority: String,
        session_id: String,
        scope_path: Vec<u32>,
        entity_id: Option<u32>,
        written: String,
    }

    #[derive(serde::Deserialize)]
    struct Invalid {
        name: String,
        uri: String,
    }

    fn vectors() -> Vectors {
        let text = include_str!("../../../tests/vectors/pipestream/uri.json");
        serde_json::from_str(text).expect("valid JSON")
    }

    #[test]
    fn every_valid_uri_reads_as_the_vector_says() {
        let vectors = vectors().valid;
        assert!(vectors.len() >= 10, "only {} vectors", vectors.len());
        for vector in vectors {
            let uri: PipestreamUri = vector.uri.parse().expect(&vector.uri);
            assert_eq!(uri.authority().to_string(), vector.authority, "{}", vector.uri);
            assert_eq!(uri.session_id(), vector.session_id, "{}", vector.uri);
            assert_eq!(uri.scope_path(), vector.scope_path, "{}", vector.uri);
            assert_eq!(uri.entity_id(), vector.entity_id, "{}", vector.uri);
            assert_eq!(uri.to_string(), vector.written);
            assert_eq!(vector.written.parse().as_ref(), Ok(&uri), "it reads back");
        }
    }

    #[test]
    fn every_invalid_uri_is_refused_as_malformed() {
        let vectors = vectors().invalid;
        assert!(vectors.len() >= 20, "only {} vectors", vectors.len());
        for vector in vectors {
            let error = vector.uri.parse::<PipestreamUri>().expect_err(&vector.name);
            assert_eq!(error.kind(), penstock_wire::ErrorKind::Malformed, "{}", vector.name);
        }
    }

    #[test]
    fn lengths_are_bounded() {
        let session = |length| format!("pipestream://host/{}", "s".repeat(length)).parse::<PipestreamUri>();
        assert!(session(128).is_ok() && session(129).is_err() && session(2000).is_err());
        let scopes = |count| format!("pipestream://host/s/{}", vec!["1"; count].join(".")).parse::<PipestreamUri>();
        assert!(scopes(8).is_ok() && scopes(9).is_err());
        let label = |length| format!("pipestream://{}.org/s", "l".repeat(length)).parse::<PipestreamUri>();
        assert!(label(63).is_ok() && label(64).is_err());
    }

    #[test]
    fn parts_that_would_not_read_back_are_refused() {
        assert!(PipestreamUri::new("host", "s", &[65_536], None).is_err());
        assert!(PipestreamUri::new("host", "s", &[1; 9], None).is_err());
        assert!(PipestreamUri::new("host", "s/1", &[], None).is_err());
        assert!(PipestreamUri::new("ho/st", "s", &[], None).is_err());
        for entity in [0, MODULUS, u32::MAX] {
            assert!(PipestreamUri::new("host", "s", &[1], Some(entity)).is_err());
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            authority in prop::sample::select(vec!["host", "a.example:1", "10.0.0.1:65535", "[::1]", "[2001:db8::1]:8443"]),
            session in "[A-Za-z0-9._~-]{1,128}",
            scopes in prop::collection::vec(0_u32..=65_535, 0..=8),
            entity in prop::option::of(prop_oneof![1..MODULUS, 1_u32..0x1_0000]),
        ) {
            let uri = PipestreamUri::new(authority, &session, &scopes, entity).expect("valid parts");
            prop_assert_eq!(uri.to_string().parse(), Ok(uri));
        }

        #[test]
        fn no_text_makes_it_panic(text in "(pipestream://)?[\\PC/.:\\[\\]0-9a-f]{0,60}") {
            if let Ok(uri) = text.parse::<PipestreamUri>() {
                prop_assert_eq!(uri.to_string().parse(), Ok(uri));
            }
        }
    }
}
