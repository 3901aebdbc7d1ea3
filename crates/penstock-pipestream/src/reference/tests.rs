use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::error::{ErrorCode, Misuse};
use penstock_testkit::vectors::Hex;

#[derive(Deserialize)]
struct Vector {
    name: String,
    hex: Hex,
    explained: Vec<penstock_testkit::vectors::Explained>,
    url: Option<String>,
    size: Option<u64>,
    key_id: Option<String>,
    code: Option<String>,
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str(include_str!("../../../../tests/vectors/pipestream/references.json")).unwrap()
}

#[test]
fn the_vectors_mean_what_they_say() {
    let vectors = vectors();
    assert!(vectors.len() >= 8);
    for vector in vectors {
        let joined: Vec<u8> = vector.explained.iter().flat_map(|each| each.hex.0.clone()).collect();
        assert_eq!(joined, vector.hex.0, "{}", vector.name);
        let decoded =
            Reference::decode(vector.hex.0.as_slice()).and_then(|found| found.location().map(|at| (found, at)));
        match (decoded, vector.code) {
            (Ok((reference, location)), None) => {
                assert_eq!(Some(location.to_string()), vector.url, "{}", vector.name);
                assert_eq!(reference.expected().size, vector.size, "{}", vector.name);
                assert_eq!(reference.encryption().and_then(|found| found.key_id.clone()), vector.key_id);
                assert_eq!(reference.encode().unwrap(), vector.hex.0, "{}", vector.name);
            }
            (Err(error), Some(code)) => {
                assert_eq!(error.code().name(), format!("PIPESTREAM_{code}"), "{}", vector.name)
            }
            (found, code) => panic!("{}: {found:?}, expected {code:?}", vector.name),
        }
    }
}

fn encryption() -> EncryptionMetadata {
    EncryptionMetadata {
        algorithm: Some("AES-256-GCM".into()),
        key_provider: Some("vault".into()),
        key_id: Some("transit/keys/docs:v2".into()),
        wrapped_key: Some(vec![0x5A; 40].into()),
        iv: Some(vec![0; 12].into()),
        context: BTreeMap::from([("tenant".to_owned(), "context-value".to_owned())]),
    }
}

fn refused(encryption: &EncryptionMetadata, approved: &[&str], why: ReferenceError) {
    assert_eq!(KeyProviders::parse(approved).unwrap().check(encryption), Err(why.into()));
}

#[test]
fn a_key_must_be_of_an_approved_provider() {
    let provider = |approved: &str| ReferenceError::KeyProvider { name: "vault".into(), approved: approved.into() };
    refused(&encryption(), &[], provider("none is"));
    refused(&encryption(), &["aws-kms"], provider("approved: aws-kms"));
    let key = || ReferenceError::Key { key: "transit/keys/docs:v2".into(), provider: "vault".into() };
    refused(&encryption(), &["vault=transit/keys/other"], key());
    refused(&encryption(), &["vault=transit/keys/doc"], key());
    let foreign = EncryptionMetadata { key_id: Some("arn:aws:kms:eu-west-1:1:key/a".into()), ..encryption() };
    let other = ReferenceError::OtherProvider {
        key: "arn:aws:kms:eu-west-1:1:key/a".into(),
        other: "aws-kms",
        provider: "vault".into(),
    };
    refused(&foreign, &["vault"], other);
    let none = ReferenceError::KeyId { provider: "vault".into() };
    refused(&EncryptionMetadata { key_id: None, ..encryption() }, &["vault"], none);
    for wrong in ["", "=x", "vault="] {
        assert_eq!(KeyProviders::parse([wrong]), Err(Misuse::KeyProvider(wrong.into()).into()));
    }
}

#[test]
fn a_key_that_was_rotated_is_still_approved() {
    let approved = KeyProviders::parse(["vault=transit/keys/docs"]).unwrap();
    for version in ["", ":v1", ":v2", "#7"] {
        let key_id = Some(format!("transit/keys/docs{version}"));
        approved.check(&EncryptionMetadata { key_id, ..encryption() }).unwrap();
    }
    for (id, key, version) in [
        (
            "projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/3",
            "projects/p/locations/l/keyRings/r/cryptoKeys/k",
            Some("3"),
        ),
        ("https://acme.vault.azure.net/keys/docs/0123abcd", "https://acme.vault.azure.net/keys/docs", Some("0123abcd")),
        ("https://acme.vault.azure.net/keys/docs", "https://acme.vault.azure.net/keys/docs", None),
        ("arn:aws:kms:eu-west-1:1:key/a", "arn:aws:kms:eu-west-1:1:key/a", None),
        ("transit/keys/docs:v12", "transit/keys/docs", Some("12").map(|_| "v12")),
        ("docs#4", "docs", Some("4")),
    ] {
        assert_eq!(split_key_id(id), (key, version));
    }
}

#[test]
fn an_envelope_that_is_none_is_refused() {
    let approved = ["vault"];
    KeyProviders::parse(approved).unwrap().check(&encryption()).unwrap();
    let algorithm = |name: &str| ReferenceError::Algorithm(name.into());
    refused(&EncryptionMetadata { algorithm: Some("DES".into()), ..encryption() }, &approved, algorithm("DES"));
    refused(&EncryptionMetadata { algorithm: None, ..encryption() }, &approved, algorithm(""));
    let vector = ReferenceError::Vector { length: 3, algorithm: "AES-256-GCM".into() };
    refused(&EncryptionMetadata { iv: Some(vec![0; 3].into()), ..encryption() }, &approved, vector);
    for length in [0, 16, 32] {
        let bare = ReferenceError::BareKey { length };
        refused(&EncryptionMetadata { wrapped_key: Some(vec![1; length].into()), ..encryption() }, &approved, bare);
    }
    let long = ReferenceError::WrappedLength { length: 20_000 };
    refused(&EncryptionMetadata { wrapped_key: Some(vec![1; 20_000].into()), ..encryption() }, &approved, long);
}

#[test]
fn key_material_is_never_shown() {
    let attrs = BTreeMap::from([("token".to_owned(), "attribute-value".to_owned())]);
    let message = FileStorageReference {
        provider: Some("s3".into()),
        bucket: Some("b".into()),
        key: Some("k".into()),
        attrs,
        encryption: Some(encryption()),
        ..Default::default()
    };
    let shown = format!("{:?}{:#?}", Reference::new(message.clone()).unwrap(), message);
    for secret in ["context-value", "attribute-value", "90, 90", "ZZZZ", "5a5a"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    for named in ["transit/keys/docs:v2", "40 bytes", "tenant", "token"] {
        assert!(shown.contains(named), "{shown}");
    }
}

#[test]
fn a_data_key_that_is_not_wrapped_is_refused_in_metadata_and_never_told() {
    let hex = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    let base64 = "ABEiM0RVZneImaq7zN3u/wARIjNEVWZ3iJmqu8zd7v8=";
    let pem = "-----BEGIN PRIVATE KEY-----\nMC4=\n-----END PRIVATE KEY-----";
    let one = |name: &str, value: &str| check_no_data_key("metadata", &BTreeMap::from([(name.into(), value.into())]));
    for (name, value) in [
        ("dek", hex),
        ("x-data-key", hex),
        ("dataKey", base64),
        ("penstock.plaintext_key", base64),
        ("encryptionKey", hex),
        ("DEK", hex),
        ("a", pem),
    ] {
        let error = one(name, value).unwrap_err();
        assert_eq!(error, ReferenceError::DataKey { place: "metadata", name: name.into() }.into());
        assert!(!error.message().contains(value), "{error}");
    }
    for (name, value) in [
        ("data-key", "orders"),
        ("sha256", hex),
        ("wrapped-data-key", base64),
        ("data_key_id", hex),
        ("index", hex),
        ("key", hex),
        ("deck", hex),
        ("keydata", "x"),
        ("data-key", &hex[..32]),
    ] {
        one(name, value).unwrap();
    }
}

#[test]
fn what_a_location_must_not_be_is_refused() {
    for url in [
        "http://169.254.169.254/latest",
        "s3://",
        "s3:///key",
        "s3://b/../c",
        "s3://b/a//c",
        "s3://b/./c",
        "s3://b/a/..",
        "s3://a@b/c",
        "s3://evil.example:80/x",
        "s3://b?x/c",
        "file://host/etc/passwd",
        "file:///a/../etc",
        "file:///a\0b",
        "abfss://c@/k",
        "gs://b\\c/k",
        "s3://..b/k",
        "/etc/passwd",
        "S3://b/k",
    ] {
        let error = Location::parse(url).expect_err(url);
        assert_eq!(error.code(), ErrorCode::EntityInvalid, "{url}");
    }
    for url in
        ["s3://b/a/c d%20", "gs://b", "az://c/k", "abfss://c@acc.dfs.core.windows.net/k", "file:///a/b", "s3://b/...x"]
    {
        let location = Location::parse(url).unwrap();
        assert_eq!(location.to_string().trim_end_matches('/'), url);
        if !location.key.is_empty() {
            assert_eq!(Reference::new(location.to_message()).unwrap().location().unwrap(), location);
        }
    }
}

proptest! {
    #[test]
    fn whatever_is_below_a_prefix_stays_there(prefix in "[a-c.]{0,3}(/[a-c.]{1,3}){0,2}", key in "[a-c./\\\\]{1,12}") {
        let all = "file:///".to_owned();
        if let (Ok(prefix), Ok(found)) = (Location::parse(&format!("{all}{prefix}")), Location::parse(&format!("{all}{key}"))) {
            // A plain model: the path to which a file system would resolve it.
            let mut way = Vec::new();
            for segment in found.key.split('/') {
                match segment { "." | "" => {}, ".." => { way.pop(); } _ => way.push(segment) }
            }
            let walked = way.join("/");
            prop_assert_eq!(&walked, &found.key);
            let model = prefix.key.is_empty() || std::path::Path::new(&walked).starts_with(&prefix.key);
            prop_assert_eq!(found.is_below(&prefix), model);
        }
    }

    #[test]
    fn any_bytes_are_a_reference_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(reference) = Reference::decode(bytes.as_slice()) {
            let again = Reference::decode(reference.encode().unwrap()).unwrap();
            prop_assert_eq!(again, reference);
        }
    }
}
