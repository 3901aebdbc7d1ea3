//! The service of a spool for its readers.

use super::*;

const KEY: &str = "sixteen bytes...";

fn reads(address: SocketAddr, fingerprint: Fingerprint) -> Result<String> {
    let tls = ClientTls { trust: Trust::Fingerprint(fingerprint), identity: None };
    RemoteStore::new(&tls, address, Some("localhost"), KEY)?.spool()
}

#[test]
fn a_service_ends_with_its_spool_or_when_another_takes_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(options(&folder.path().join("spool"))).unwrap();
    let tls = ServerTls { identity: Identity::Development { dir: folder.path().join("tls") }, client_ca: None };
    let serve = || spool.serve(([127, 0, 0, 1], 0).into(), &tls, ReadKey::new(KEY).unwrap()).unwrap();
    let id = spool.store().unwrap().spool().unwrap();
    let (first, fingerprint) = serve();
    assert_eq!(reads(first, fingerprint).unwrap(), id);
    let (second, same) = serve();
    assert_eq!((reads(second, same).unwrap(), same), (id, fingerprint));
    // The IO thread closes a listener after the call returns.
    let ends = |address| {
        let begun = std::time::Instant::now();
        while reads(address, fingerprint).is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(10), "{address} still answers");
        }
    };
    ends(first);
    assert!(reads(second, fingerprint).is_ok());
    spool.close().unwrap();
    ends(second);
}
