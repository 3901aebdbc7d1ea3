//! A test with a file system that is really full.

use std::path::Path;
use std::process::{Command, Stdio};

use super::*;

#[test]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn a_small_file_system_that_is_really_full_loses_only_what_does_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    let Some(small) = SmallFileSystem::mount(dir.path()) else {
        eprintln!("SKIPPED: only root may mount a tmpfs; the injected faults above cover the same");
        return;
    };
    let sink = FolderSink::open(&dir.path().join("sink"), None).unwrap();
    let state = tempfile::tempdir().unwrap();
    let tls = ServerTls { identity: Identity::Development { dir: state.path().to_owned() }, client_ca: None };
    let server = Server::bind(ServerOptions::new((Ipv4Addr::LOCALHOST, 0).into(), tls), sink).unwrap();
    let trust = Trust::Fingerprint(server.fingerprint().unwrap());
    let client = Client::new(&ClientTls { trust, identity: None }).unwrap();
    let session = block(client.connect(server.local_addr().unwrap(), "localhost", SessionOptions::default())).unwrap();
    assert_eq!(send(&session, 500_000).0, Status::Complete);
    assert_eq!(send(&session, 2_000_000).0, Status::Failed);
    assert_eq!(send(&session, 100_000).0, Status::Complete);
    block(session.close()).unwrap();
    block(server.shutdown(Duration::ZERO)).unwrap();
    let folder = dir.path().join("sink").join(&*session.id().unwrap());
    let log = fs::read_to_string(folder.join(LOG)).unwrap();
    assert_eq!((log.lines().count(), log.ends_with("{\"closed\":0}\n")), (4, true), "{log}");
    assert!(folder.join("0/1").exists() && !folder.join("0/2").exists() && folder.join("0/3").exists());
    drop(small);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(dir.path().to_str().unwrap()), "still mounted: {mounts}");
}

/// A tmpfs of 1 MiB, which is unmounted on drop.
struct SmallFileSystem<'a>(&'a Path);

impl<'a> SmallFileSystem<'a> {
    fn mount(folder: &'a Path) -> Option<Self> {
        let command = ["-t", "tmpfs", "-o", "size=1m", "tmpfs"];
        let status = Command::new("mount").args(command).arg(folder).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success()).then(|| Self(folder))
    }
}

impl Drop for SmallFileSystem<'_> {
    fn drop(&mut self) {
        // Unmount lazily, because threads of the server may still close their files.
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}
