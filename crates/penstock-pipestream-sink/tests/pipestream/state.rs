//! Folders of sessions' records, examined from outside: records that are damaged, put aside, or of
//! an earlier version.

use std::fs;
use std::path::Path;

use penstock_io::hex;
use penstock_pipestream_net::{Error, ErrorCode, Payload, Status};

use crate::durable::{Home, again, part, payload, whole};
use crate::logged::{count, segments, sessions};
use crate::support::{PATIENCE, block, eventually};

/// Wait until the process that writes a folder has gone.
pub(crate) fn wait_until_free(folder: &Path) {
    let lock = || fs::File::open(folder.join(".lock")).unwrap().try_lock().is_ok();
    eventually("another process has the folder", lock);
}

/// Create a session of which a part is delivered, drop both of its ends, and return its ID.
fn left(home: &mut Home) -> String {
    let client = home.connect_with_state();
    let session = client.id().unwrap().to_string();
    let parent = block(client.send(whole(), Payload::empty())).unwrap();
    let (first, bytes) = part(&parent, 1);
    let first = block(client.send(first, bytes)).unwrap();
    assert_eq!(block(client.wait_resolved(first.key)).unwrap().status, Status::Complete);
    home.server = None;
    drop(client);
    [home.server_state(), home.state()].iter().for_each(|folder| wait_until_free(folder));
    session
}

/// Damage the body of the first record in a folder.
fn damage(folder: &Path) {
    let file = segments(folder).remove(0);
    let mut bytes = fs::read(&file).unwrap();
    bytes[penstock_log::HEADER + 40] ^= 1;
    fs::write(&file, bytes).unwrap();
}

#[test]
fn what_cannot_be_restored_is_put_aside_and_the_server_starts() {
    let mut home = Home::new(PATIENCE);
    let session = left(&mut home);
    damage(&home.server_state());
    home.start();
    let aside = home.server_state().join(format!("{session}.damaged"));
    assert!(aside.join("00000000000000000001.log.session").exists());
    // The damaged file is kept, too.
    assert!(home.server_state().join("00000000000000000001.log.session.damaged").exists());
    eventually("the session is in the log", || count(&home.server_state()) == 0);
    // The sink's list stays as it is, and the client's own file says where it is damaged.
    assert!(fs::read_to_string(home.sink().join(&session).join("entities.jsonl")).unwrap().contains("COMPLETE"));
    damage(&home.state());
    let refused = again(|| match home.try_connect_with_state() {
        Err(error) if error.to_string().contains("the record at byte") => Ok(error),
        Err(error) => Err(error),
        Ok(client) => panic!("{client:?}"),
    });
    assert!(refused.to_string().contains("00000000000000000001.log.session"), "{refused}");
    // A session that has lost records does not count as whole when its folder gets its name back.
    home.server = None;
    wait_until_free(&home.server_state());
    fs::rename(&aside, home.server_state().join(&session)).unwrap();
    home.start();
    assert!(aside.exists() && !home.server_state().join(&session).exists());
    assert_eq!(count(&home.server_state()), 0);
}

#[test]
fn a_session_that_was_put_aside_for_its_sink_goes_on_when_it_gets_its_name_back() {
    let mut home = Home::new(PATIENCE);
    let session = left(&mut home);
    let list = home.sink().join(&session).join("entities.jsonl");
    let text = fs::read(&list).unwrap();
    fs::write(&list, [b"!", text.as_slice()].concat()).unwrap();
    home.start();
    let aside = home.server_state().join(format!("{session}.damaged"));
    assert!(aside.exists());
    home.server = None;
    wait_until_free(&home.server_state());
    assert_eq!(count(&home.server_state()), 0);
    fs::write(&list, text).unwrap();
    fs::rename(&aside, home.server_state().join(&session)).unwrap();
    home.start();
    assert!(!home.server_state().join(&session).exists());
    go_on(&home);
}

/// Resume a session, and close it in order.
fn go_on(home: &Home) {
    let client = home.connect_with_state();
    assert!(client.resumed().unwrap());
    let parent = block(client.send(whole(), Payload::empty())).unwrap();
    for number in [1, 2] {
        let (draft, _) = part(&parent, number);
        let sent = block(client.send(draft, Payload::bytes(payload(number)))).unwrap();
        assert_eq!(block(client.wait_resolved(sent.key)).unwrap().status, Status::Complete);
    }
    block(client.end_children(parent.key)).unwrap();
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    eventually("the session is in the log", || count(&home.server_state()) == 0);
    eventually("a segment of a session that has ended is there", || segments(&home.state()).is_empty());
}

#[test]
fn a_session_of_the_version_before_this_one_goes_on() {
    let mut home = Home::new(PATIENCE);
    let session = left(&mut home);
    // An earlier version kept a session's parts in a separate file: at a server in a folder of the
    // session's name.
    for (folder, into) in [(home.server_state(), session.as_str()), (home.state(), "")] {
        let sessions = sessions(&folder).parts;
        assert_eq!(sessions.keys().map(hex::encode).collect::<Vec<_>>(), [session.as_str()]);
        segments(&folder).iter().for_each(|segment| fs::remove_file(segment).unwrap());
        fs::create_dir_all(folder.join(into)).unwrap();
        for parts in sessions.values() {
            let file = [&b"penstock session 1\n"[..], parts].concat();
            fs::write(folder.join(into).join("00000001.session"), file).unwrap();
        }
    }
    home.start();
    assert!(!home.server_state().join(&session).exists());
    go_on(&home);
    assert!(!home.state().join("00000001.session").exists());
}

#[test]
fn damage_of_the_version_before_this_one_is_put_aside_by_a_server_and_named_by_a_client() {
    let mut home = Home::new(PATIENCE);
    home.server = None;
    wait_until_free(&home.server_state());
    let session = "0123456789abcdef0123456789abcdef";
    for folder in [home.server_state().join(session), home.state()] {
        fs::create_dir_all(&folder).unwrap();
        fs::write(
            folder.join("00000001.session"),
            [&b"penstock session 1\n"[..], &[0, 0, 0, 1, 9, 9, 9, 9, 1, 1]].concat(),
        )
        .unwrap();
    }
    home.start();
    assert!(home.server_state().join(format!("{session}.damaged")).join("00000001.session").exists());
    let refused = again(|| match home.try_connect_with_state() {
        Err(error @ Error::Local(_)) => Ok(error),
        Err(error) => Err(error),
        Ok(client) => panic!("{client:?}"),
    });
    let refused = refused.to_string();
    assert!(refused.contains("00000001.session: the record at byte 19 is damaged"), "{refused}");
}
