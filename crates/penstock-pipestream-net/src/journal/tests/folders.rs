//! Folders of another end, of the previous version, and of sessions that were put aside.

use penstock_io::Problem;
use penstock_log::{Label, Log, Mismatch, Record};
use penstock_pipestream::SessionConfig;

use super::*;
use crate::Error;
use crate::journal::open::take_earlier;
use crate::journal::record::{CLIENT, EARLIER_KIND};
use crate::journal::{ClientState, ServerState};

/// A record of the previous version, which has no number.
struct Unnumbered(Vec<u8>);

impl Unnumbered {
    fn new(session: u8, letter: u8, number: u8, label_of: Option<u8>) -> Self {
        let mut parts = Vec::new();
        if letter != b'M' {
            put(Kind::Begin, &owner(session).encode(), &mut parts);
        }
        if let Some(number) = label_of {
            put(Kind::Label, &encode_ended(&label(number), &ended(number.into())), &mut parts);
        }
        put(Kind::Core, &vec![number; usize::from(number) + 1], &mut parts);
        Self([&[session; 16], &[letter][..], &u32::from(label_of.is_some()).to_be_bytes(), &parts].concat())
    }
}

impl Record for Unnumbered {
    fn label(&self) -> Label {
        *self.0.first_chunk().unwrap()
    }

    fn body<'a>(&'a self, parts: &mut Vec<&'a [u8]>) {
        parts.push(&self.0);
    }
}

/// The replay of an empty log.
struct Nothing;

impl penstock_log::Replay for Nothing {
    fn record(&mut self, _: &penstock_log::Entry<'_>) -> Option<()> {
        None
    }

    fn hole(&mut self, _: &penstock_log::Hole<'_>) {}
}

#[test]
fn a_folder_of_the_version_before_this_one_opens_at_both_ends_and_goes_on_in_this_one() {
    for (format, keeps_one) in [(SERVER, false), (CLIENT, true)] {
        let disk = MemoryDisk::default();
        make_folder(&disk, folder()).unwrap();
        let earlier = Format { kind: EARLIER_KIND, ..format };
        let mut log = Log::open(Arc::new(disk.clone()), folder(), earlier, &mut Nothing).unwrap();
        log.append(&[Unnumbered::new(1, b'N', 3, Some(3)), Unnumbered::new(1, b'W', 4, Some(3))]).unwrap();
        log.append(&[Unnumbered::new(1, b'M', 5, Some(3))]).unwrap();
        drop(log);
        let mut told = Told { core: vec![4, 5], labels: BTreeSet::from([3]) };
        let open = || Store::open(Arc::new(disk.clone()), folder(), format, keeps_one).unwrap();
        for (number, letter) in [(6, Form::More), (7, Form::More), (8, Form::Whole), (9, Form::More)] {
            let mut store = open();
            assert_eq!(found(&store, 1).as_ref(), Some(&told));
            let entry = told.tell(1, letter, number, number == 7);
            store.write(vec![entry]).unwrap();
        }
        assert_eq!(found(&open(), 1), Some(told));
        let header = disk.read(&folder().join(format!("{:020}.log.session", 2))).unwrap();
        assert_eq!(header[8..16], format.kind);
    }
}

#[test]
fn a_client_is_refused_in_the_folder_of_a_server_and_a_server_in_that_of_a_client() {
    for (format, other) in [(SERVER, CLIENT), (CLIENT, SERVER)] {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(Arc::new(PrivateDisk), dir.path(), format, false).unwrap();
        store.write(vec![Told::default().tell(1, Form::New, 1, false)]).unwrap();
        drop(store);
        let mut config = SessionConfig::default();
        let (client, server) = (
            ClientState::open(dir.path(), &mut config).map(drop),
            ServerState::open(dir.path(), &mut config).map(drop),
        );
        let refused = if format.kind == SERVER.kind { client } else { server }.unwrap_err();
        let Error::Local(penstock_io::Error::Content { problem: Problem::Log(mismatch), .. }) = &refused else {
            panic!("{refused}")
        };
        assert_eq!(*mismatch, Mismatch::Kind { what: other.what, found: format.kind }, "{refused}");
    }
}

/// Create the folder of a session that was put aside, and that now has a session's name.
fn put_aside(folder: &Path, name: u8, entries: Vec<Entry>) -> std::path::PathBuf {
    let aside = folder.join(owner(name).session.to_string());
    make_folder(&PrivateDisk, &aside).unwrap();
    let mut store = on_disk(&aside, true);
    store.write(entries).unwrap();
    store.seal().unwrap();
    aside
}

#[test]
fn a_folder_with_another_session_than_its_name_says_is_put_aside_and_takes_no_place() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = on_disk(dir.path(), false);
    let mut told = Told::default();
    store.write(vec![told.tell(1, Form::New, 1, true)]).unwrap();
    // One folder has a log, the other a file of the previous version.
    let log = put_aside(dir.path(), 2, vec![Told::default().tell(1, Form::New, 9, false)]);
    let file = dir.path().join(owner(3).session.to_string());
    fs::create_dir(&file).unwrap();
    let entry = Told::default().tell(1, Form::New, 9, false);
    fs::write(file.join("00000001.session"), [b"penstock session 1\n", entry.view().parts].concat()).unwrap();
    assert_eq!(take_earlier(&mut store, dir.path()).unwrap(), 2);
    assert_eq!(all_found(&store), Model::from([(1, told)]));
    for folder in [log, file] {
        assert!(!folder.exists() && Path::new(&format!("{}.damaged", folder.display())).exists());
    }
}

#[test]
fn a_folder_with_a_damaged_session_is_put_aside_and_a_whole_one_takes_the_place_of_what_the_log_has_lost() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = on_disk(dir.path(), false);
    let (mut lost, mut whole, mut kept) = (Told::default(), Told::default(), Told::default());
    // The first record of session 1 is missing.
    lost.core.push(1);
    store.write(vec![lost.tell(1, Form::More, 2, false), kept.tell(2, Form::New, 3, true)]).unwrap();
    assert_eq!(found(&store, 1), None);
    put_aside(dir.path(), 1, vec![whole.tell(1, Form::New, 1, true), whole.tell(1, Form::More, 2, false)]);
    // The log already has session 2.
    let stale = put_aside(dir.path(), 2, vec![Told::default().tell(2, Form::New, 9, false)]);
    let damaged = put_aside(dir.path(), 3, vec![Told::default().tell(3, Form::More, 9, false)]);
    assert_eq!(take_earlier(&mut store, dir.path()).unwrap(), 1);
    let expected = Model::from([(1, whole), (2, kept)]);
    assert_eq!(all_found(&store), expected);
    assert!(!stale.exists() && !damaged.exists());
    assert!(Path::new(&format!("{}.damaged", damaged.display())).exists());
    drop(store);
    assert_eq!(all_found(&on_disk(dir.path(), false)), expected);
}
