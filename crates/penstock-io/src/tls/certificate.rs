use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::fingerprint::Fingerprint;
use crate::{DriverError as _, Error, Result};

/// The names for which a development certificate is valid.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A certificate chain and its key, with their paths.
pub(super) struct CertifiedKey {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    cert_path: PathBuf,
    key_path: PathBuf,
}

impl CertifiedKey {
    /// Read the PEM files of a certificate and its key.
    pub(super) fn load(cert: &Path, key: &Path) -> Result<Self> {
        Ok(Self {
            chain: load_certificates(cert)?,
            key: load_key(key)?,
            cert_path: cert.to_owned(),
            key_path: key.to_owned(),
        })
    }

    /// Return the development certificate of a folder. Make it if it does not exist.
    pub(super) fn development(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).map_err(|error| Error::file("cannot make the folder", dir, error))?;
        // Two servers that start at the same time must not mix up their files.
        let lock = open(dir, "the folder")?;
        lock.lock().map_err(|error| Error::file("cannot lock the folder", dir, error))?;
        let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
        if !(cert.exists() && key.exists()) {
            for leftover in [&dir.join("ca.pem"), &cert, &key] {
                remove_if_exists(leftover)?;
            }
            write_certificates(dir)?;
        }
        Self::load(&cert, &key)
    }

    pub(super) fn fingerprint(&self) -> Result<Fingerprint> {
        let leaf = self.chain.first().ok_or_else(|| Error::tls(format!("no certificate in {}", self.describe())))?;
        Ok(Fingerprint::of(leaf))
    }

    /// Return a text with the paths of both files, for messages.
    pub(super) fn describe(&self) -> String {
        format!("certificate {} and key {}", self.cert_path.display(), self.key_path.display())
    }
}

/// Read the certificates of a PEM file; fail if it has none.
pub(super) fn load_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let file = open(path, "certificate file")?;
    let certificates = CertificateDer::pem_reader_iter(file)
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(|error| Error::tls_from(format!("certificate file {}: {error}", path.display()), error))?;
    if certificates.is_empty() {
        return Err(Error::tls(format!("certificate file {}: no PEM certificate in it", path.display())));
    }
    Ok(certificates)
}

fn load_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_reader(open(path, "key file")?).map_err(|error| {
        let nothing = matches!(error, pem::Error::NoItemsFound);
        let why = if nothing { "no PEM private key in it".to_owned() } else { error.to_string() };
        Error::tls_from(format!("key file {}: {why}", path.display()), error)
    })
}

/// Make a CA and a certificate for localhost, 127.0.0.1 and ::1, for servers and clients alike, and
/// write `ca.pem`, `cert.pem` and `key.pem` into a folder; existing files are never overwritten.
/// The CA's key is discarded, so trusting `ca.pem` means trusting this one certificate. Return the
/// certificate's fingerprint.
pub fn write_certificates(dir: &Path) -> Result<Fingerprint> {
    let made = DevelopmentCertificate::new()
        .map_err(|error| Error::tls_from(format!("cannot make a certificate: {error}"), error))?;
    fs::create_dir_all(dir).map_err(|error| Error::file("cannot make the folder", dir, error))?;
    let files = [("ca.pem", &made.ca, 0o644), ("key.pem", &made.key, 0o600), ("cert.pem", &made.cert, 0o644)];
    for (name, _, _) in &files {
        let path = dir.join(name);
        if path.exists() {
            return Err(Error::tls(format!("{} already exists", path.display())));
        }
    }
    for (name, text, mode) in files {
        let path = dir.join(name);
        write_new(&path, text, mode).map_err(|error| Error::file("cannot write", &path, error))?;
    }
    Ok(made.fingerprint)
}

/// A development certificate in PEM.
struct DevelopmentCertificate {
    ca: String,
    cert: String,
    key: String,
    fingerprint: Fingerprint,
}

impl DevelopmentCertificate {
    fn new() -> std::result::Result<Self, rcgen::Error> {
        let issuer = CertifiedIssuer::self_signed(ca_params()?, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let leaf = leaf_params()?.signed_by(&key, &issuer)?;
        Ok(Self {
            ca: issuer.pem(),
            cert: leaf.pem(),
            key: key.serialize_pem(),
            fingerprint: Fingerprint::of(leaf.der()),
        })
    }
}

fn ca_params() -> std::result::Result<CertificateParams, rcgen::Error> {
    let mut params = dated(CertificateParams::new(Vec::new())?);
    params.distinguished_name.push(DnType::CommonName, "penstock development CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn leaf_params() -> std::result::Result<CertificateParams, rcgen::Error> {
    let mut params = dated(CertificateParams::new(NAMES.map(str::to_owned).to_vec())?);
    params.distinguished_name.push(DnType::CommonName, "penstock development certificate");
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

/// Set fixed dates, which need no renewal: clients pin or trust this one development certificate.
fn dated(mut params: CertificateParams) -> CertificateParams {
    params.not_before = date_time_ymd(2025, 1, 1);
    params.not_after = date_time_ymd(2055, 1, 1);
    params
}

/// Write a file that must not exist yet; it has its mode from the start.
fn write_new(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = create_new(path, mode)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

fn remove_if_exists(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file("cannot remove", path, error)),
        _ => Ok(()),
    }
}

fn open(path: &Path, what: &str) -> Result<File> {
    File::open(path).map_err(|error| Error::file(&format!("cannot read {what}"), path, error))
}
