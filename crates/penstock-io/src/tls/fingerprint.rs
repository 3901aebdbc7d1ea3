use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, PeerIncompatible, SignatureScheme};
use sha2::{Digest, Sha256};

/// The SHA-256 of a leaf certificate's DER (decision 21). It is written as `sha256:HEX`, and parsed
/// with or without the prefix, in either case, with or without colons between the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Return the fingerprint of a certificate.
    pub fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }

    /// Return the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Compare the hashes in a time that does not reveal where they differ.
    fn matches(&self, other: &Self) -> bool {
        let difference = self.0.iter().zip(other.0).fold(0, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The error of a text that is not a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidFingerprint(String);

impl fmt::Display for InvalidFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no fingerprint: 64 hex digits are expected, \"sha256:\" before them is optional", self.0)
    }
}

impl std::error::Error for InvalidFingerprint {}

impl FromStr for Fingerprint {
    type Err = InvalidFingerprint;

    fn from_str(text: &str) -> Result<Self, InvalidFingerprint> {
        let invalid = || InvalidFingerprint(text.to_owned());
        let trimmed = text.trim();
        let hex = match trimmed.split_at_checked(7) {
            Some((prefix, rest)) if prefix.eq_ignore_ascii_case("sha256:") => rest,
            _ => trimmed,
        };
        let mut digits = hex.chars().filter(|character| *character != ':').map(|character| character.to_digit(16));
        let mut bytes = [0_u8; 32];
        for byte in &mut bytes {
            let (Some(Some(high)), Some(Some(low))) = (digits.next(), digits.next()) else { return Err(invalid()) };
            *byte = u8::try_from(high * 16 + low).map_err(|_| invalid())?;
        }
        if digits.next().is_some() { Err(invalid()) } else { Ok(Self(bytes)) }
    }
}

/// A verifier that trusts exactly one certificate. Its name and dates do not matter, because the
/// certificate itself is known; the handshake's signature still proves that the peer has its key.
#[derive(Debug)]
pub(super) struct PinnedCertificate {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl PinnedCertificate {
    pub(super) fn new(fingerprint: Fingerprint, provider: Arc<CryptoProvider>) -> Self {
        Self { fingerprint, provider }
    }
}

impl ServerCertVerifier for PinnedCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = Fingerprint::of(end_entity);
        if self.fingerprint.matches(&found) {
            Ok(ServerCertVerified::assertion())
        } else {
            let message =
                format!("the server's certificate has the fingerprint {found}, not the pinned {}", self.fingerprint);
            Err(rustls::Error::General(message))
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::ServerDoesNotSupportTls12Or13.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
