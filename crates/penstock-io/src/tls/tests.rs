use std::fs;
use std::path::PathBuf;

use super::*;

const OFFER: Offer = Offer::named(&[b"x"]);

fn development(dir: &Path) -> ServerTls {
    ServerTls { identity: Identity::Development { dir: dir.to_owned() }, client_ca: None }
}

#[test]
fn a_development_certificate_is_made_once_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("state/tls");
    let (_, first) = development(&folder).config(OFFER).unwrap();
    let (_, second) = development(&folder).config(OFFER).unwrap();
    assert_eq!(first, second);
    let mut names: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["ca.pem", "cert.pem", "key.pem"]);
}

#[test]
fn the_key_file_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    write_certificates(dir.path()).unwrap();
    let mode = fs::metadata(dir.path().join("key.pem")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn certificates_are_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    write_certificates(dir.path()).unwrap();
    let error = write_certificates(dir.path()).unwrap_err().to_string();
    assert!(error.contains("ca.pem already exists"), "{error}");
}

#[test]
fn a_fingerprint_is_read_in_every_usual_form() {
    let fingerprint = Fingerprint::of(b"leaf");
    let text = fingerprint.to_string();
    let hex = text.strip_prefix("sha256:").unwrap().to_owned();
    let pairs: Vec<_> = hex.as_bytes().chunks(2).map(|pair| String::from_utf8_lossy(pair).to_uppercase()).collect();
    for form in [text, hex.clone(), pairs.join(":"), format!("SHA256:{}", pairs.join(":")), format!(" {hex}\n")] {
        assert_eq!(form.parse(), Ok(fingerprint), "{form}");
    }
    for wrong in ["", "sha256:", &hex[1..], &format!("{hex}0"), &hex.replacen(&hex[..1], "g", 1)] {
        assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
    }
}

#[test]
fn errors_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    write_certificates(dir.path()).unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let empty = dir.path().join("empty.pem");
    fs::write(&empty, "nothing").unwrap();
    let other = dir.path().join("other");
    write_certificates(&other).unwrap();
    let files = |cert: &PathBuf, key: &PathBuf| {
        let identity = Identity::Files { cert: cert.clone(), key: key.clone() };
        ServerTls { identity, client_ca: None }.config(OFFER).map(|_| ())
    };
    assert!(files(&cert, &key).is_ok());
    for (cert, key, named) in [
        (&dir.path().join("gone.pem"), &key, "gone.pem"),
        (&cert, &dir.path().join("gone.key"), "gone.key"),
        (&empty, &key, "empty.pem: no PEM certificate"),
        (&cert, &empty, "empty.pem: no PEM private key"),
        (&cert, &other.join("key.pem"), "other/key.pem"),
    ] {
        let error = files(cert, key).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
    let tls = ClientTls { trust: Trust::Ca(empty), identity: None };
    assert!(tls.config(b"x").unwrap_err().to_string().contains("empty.pem"));
}

#[test]
fn the_name_of_a_server_is_the_given_one_or_its_host() {
    for (given, address, expected) in [
        (None, "example.org:1", "example.org"),
        (None, "[::1]:1", "::1"),
        (Some("[::1]"), "example.org:1", "::1"),
        (Some("localhost"), "127.0.0.1:1", "localhost"),
    ] {
        assert_eq!(server_name(given, address).unwrap().to_str(), expected);
    }
    let refused = server_name(Some("a b"), "localhost:1").unwrap_err();
    assert!(matches!(&refused, Error::Misuse(Misuse::ServerName { name }) if name == "a b"), "{refused:?}");
}
