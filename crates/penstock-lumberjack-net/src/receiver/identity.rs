//! The name in a client's certificate.

use penstock_io::tls::Fingerprint;
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// The object identifier of commonName, 2.5.4.3, with its tag and length.
const COMMON_NAME: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];
const UTF8_STRING: u8 = 0x0C;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;

/// Return the name of a certificate: the common name of its subject, or else its first DNS name, or
/// else its fingerprint.
pub(super) fn name(certificate: &CertificateDer<'_>) -> String {
    let parsed = EndEntityCert::try_from(certificate).ok();
    let common = parsed.as_ref().and_then(|parsed| common_name(parsed.subject()));
    let dns = || parsed.as_ref().and_then(|parsed| parsed.valid_dns_names().next().map(str::to_owned));
    common.or_else(dns).unwrap_or_else(|| Fingerprint::of(certificate).to_string())
}

/// Find the common name in the DER of a subject that webpki has found well-formed; its value
/// follows the identifier.
fn common_name(subject: &[u8]) -> Option<String> {
    let at = subject.windows(COMMON_NAME.len()).position(|bytes| bytes == COMMON_NAME)?;
    match subject.get(at + COMMON_NAME.len()..)? {
        [UTF8_STRING | PRINTABLE_STRING | IA5_STRING, length @ 1..=0x7F, rest @ ..] => {
            String::from_utf8(rest.get(..usize::from(*length))?.to_vec()).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_named_by_its_common_name() {
        let mut subject = vec![0x30, 0x0F, 0x31, 0x0D, 0x30, 0x0B];
        subject.extend(COMMON_NAME);
        subject.extend([UTF8_STRING, 4]);
        subject.extend(b"web1");
        assert_eq!(common_name(&subject).as_deref(), Some("web1"));
        assert_eq!(common_name(&subject[..subject.len() - 1]), None);
    }
}
