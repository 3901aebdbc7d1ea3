use super::*;

/// Create a log of two sessions, whose records alternate.
fn two() -> (MemoryDisk, Model) {
    let disk = MemoryDisk::default();
    make_folder(&disk, folder()).unwrap();
    let mut store = Store::open(Arc::new(disk.clone()), folder(), SERVER, false).unwrap();
    let mut model = Model::new();
    for number in 0..8 {
        let session = 1 + number % 2;
        let form = if number < 2 { Form::New } else { Form::More };
        store.write(vec![model.entry(session).or_default().tell(session, form, number, number == 4)]).unwrap();
    }
    drop(store);
    drop(open(&disk));
    (disk.copy(), model)
}

#[test]
fn damage_takes_the_session_whose_record_it_hits_and_says_where() {
    let (disk, model) = two();
    let path = folder().join(format!("{:020}.log.session", 1));
    let whole = disk.read(&path).unwrap();
    let mut hit = BTreeSet::new();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        let disk = disk.copy();
        disk.damage(&path, damaged).unwrap();
        let store = match Store::open(Arc::new(disk), folder(), SERVER, false) {
            Ok(store) => store,
            // The header does not show a log of sessions, or contradicts the first record's head.
            Err(error) => {
                assert!(at < penstock_log::HEADER, "{at}: {error}");
                continue;
            }
        };
        let lost: Vec<u8> = [1, 2].into_iter().filter(|session| found(&store, *session).is_none()).collect();
        assert!(lost.len() < 2, "{at}");
        for session in [1, 2].into_iter().filter(|session| !lost.contains(session)) {
            assert_eq!(found(&store, session).as_ref(), model.get(&session), "{at}");
        }
        for session in &lost {
            let error = store.book().check(Some(owner(*session).session)).unwrap_err().to_string();
            assert!(error.contains(".log.session: the record at byte "), "{at}: {error}");
        }
        hit.extend(lost);
    }
    assert_eq!(hit, BTreeSet::from([1, 2]));
}

#[test]
fn where_nothing_says_whose_record_was_lost_all_are_damaged_that_do_not_say_everything_again() {
    let (disk, mut model) = two();
    let mut store = open(&disk);
    let again = model.get_mut(&2).unwrap().tell(2, Form::Whole, 9, false);
    store.write(vec![again]).unwrap();
    let again = model.get_mut(&1).unwrap().tell(1, Form::Whole, 10, false);
    store.write(vec![again]).unwrap();
    drop(store);
    let path = folder().join(format!("{:020}.log.session", 1));
    let mut damaged = disk.read(&path).unwrap();
    // The lost record contains the label of session 1.
    lose_label(&mut damaged);
    disk.damage(&path, damaged).unwrap();
    let store = open(&disk.copy());
    assert_eq!((found(&store, 1), found(&store, 2).as_ref()), (None, model.get(&2)));
}

/// Damage the head and the body of the record with the label.
fn lose_label(bytes: &mut [u8]) {
    let part = bytes.windows(12).position(|bytes| bytes == br#"{"label":[11"#).unwrap();
    bytes[part - 94..part + 40].fill(0x77);
}

#[test]
fn where_nothing_says_whose_record_was_lost_the_next_one_of_each_session_says_whether_it_was_its() {
    let (disk, mut model) = two();
    let mut store = open(&disk);
    // Session 3 has no later record.
    store.write(vec![model.entry(3).or_default().tell(3, Form::New, 20, false)]).unwrap();
    drop(store);
    let mut store = open(&disk);
    for (session, number) in [(1, 21), (2, 22)] {
        store.write(vec![model.get_mut(&session).unwrap().tell(session, Form::More, number, false)]).unwrap();
    }
    drop(store);
    let path = folder().join(format!("{:020}.log.session", 2));
    let whole = disk.read(&path).unwrap();
    let first = folder().join(format!("{:020}.log.session", 1));
    let mut damaged = disk.read(&first).unwrap();
    // Damage the last record of session 2 in that segment, with its head: its core is eight bytes
    // of 7.
    let part = damaged.windows(8).rposition(|bytes| bytes == [7; 8]).unwrap();
    damaged[part - 60..part + 8].fill(0x77);
    disk.damage(&first, damaged).unwrap();
    let store = open(&disk.copy());
    assert_eq!((found(&store, 1).as_ref(), found(&store, 2)), (model.get(&1), None));
    drop(store);
    // Session 3 began after that damage, so it is whole until its own record is damaged.
    let mut damaged = whole;
    assert_eq!(found(&open(&disk.copy()), 3).as_ref(), model.get(&3));
    let part = damaged.windows(21).position(|bytes| bytes == [20; 21]).unwrap();
    damaged[part - 60..part + 8].fill(0x77);
    disk.damage(&path, damaged).unwrap();
    assert_eq!(found(&open(&disk.copy()), 3), None);
}

#[test]
fn a_session_whose_id_is_zeros_is_no_horizon() {
    let disk = MemoryDisk::default();
    let (mut told, mut store) = (Told::default(), open(&disk));
    store.write(vec![told.tell(0, Form::New, 1, true)]).unwrap();
    store.append(&mut [Entry::horizon(1)]).unwrap();
    assert_eq!(found(&store, 0).as_ref(), Some(&told));
    store.write(vec![told.tell(0, Form::More, 2, false)]).unwrap();
    store.append(&mut [Entry::horizon(1)]).unwrap();
    drop(store);
    assert_eq!(found(&open(&disk.copy()), 0).as_ref(), Some(&told));
    let path = folder().join(format!("{:020}.log.session", 1));
    let whole = disk.read(&path).unwrap();
    let body = |length: usize| whole.windows(length).position(|bytes| bytes == vec![2; length]).unwrap();
    let mut damaged = whole.clone();
    damaged[body(3)] ^= 1;
    disk.damage(&path, damaged).unwrap();
    assert_eq!(found(&open(&disk.copy()), 0), None);
    let mut damaged = whole.clone();
    let horizon = whole.windows(9).rposition(|bytes| bytes == b"H\0\0\0\0\0\0\0\0").unwrap();
    damaged[horizon] ^= 1;
    disk.damage(&path, damaged).unwrap();
    assert_eq!(found(&open(&disk.copy()), 0), Some(told));
}

#[test]
fn a_file_that_is_cut_off_at_any_byte_has_all_records_before_it() {
    let disk = MemoryDisk::default();
    let mut store = open(&disk);
    let (mut told, path) = (Told::default(), folder().join(format!("{:020}.log.session", 1)));
    let mut ends = Vec::new();
    for number in 0..6 {
        store.write(vec![told.tell(1, if number == 0 { Form::New } else { Form::More }, number, false)]).unwrap();
        ends.push(disk.read(&path).unwrap().len());
    }
    let whole = disk.read(&path).unwrap();
    for length in ends[0]..whole.len() {
        let disk = disk.copy();
        disk.damage(&path, whole[..length].to_vec()).unwrap();
        let mut store = open(&disk);
        let count = ends.iter().filter(|end| **end <= length).count();
        let mut expected = Told { core: told.core[..count].to_vec(), ..Told::default() };
        assert_eq!(found(&store, 1).as_ref(), Some(&expected), "cut off at {length}");
        // The next record follows the last whole one.
        store.write(vec![expected.tell(1, Form::More, 9, true)]).unwrap();
        drop(store);
        assert_eq!(found(&open(&disk), 1), Some(expected), "cut off at {length}");
    }
}
