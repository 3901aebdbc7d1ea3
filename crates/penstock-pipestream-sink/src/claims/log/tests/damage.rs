use super::*;

/// Claim checks that are open, redeemed, settled, voided and, issued last, open.
const OPEN: u64 = 1;
const REDEEMED: u64 = 2;
const SETTLED: u64 = 3;
const VOIDED: u64 = 4;
const LATER: u64 = 5;
/// A claim check that was never issued.
const UNKNOWN: u64 = 999;

/// Return a log of one segment, the start of each record, and the states that the log contains.
fn written() -> (MemoryDisk, Vec<usize>, Model) {
    let disk = MemoryDisk::default();
    let mut process = Process::try_open(&disk, FORMAT).unwrap();
    let mut starts = Vec::new();
    let steps: [&dyn Fn(&mut Process); 9] = [
        &|process| process.issue(OPEN),
        &|process| process.issue(REDEEMED),
        &|process| process.issue(SETTLED),
        &|process| process.issue(VOIDED),
        &|process| process.redeem(REDEEMED),
        &|process| process.redeem(SETTLED),
        &|process| process.settle(SETTLED),
        &|process| process.void(VOIDED),
        &|process| process.issue(LATER),
    ];
    for step in steps {
        starts.push(disk.read(&segment(1)).map_or(penstock_log::HEADER, |bytes| bytes.len()));
        step(&mut process);
        process.save().unwrap();
    }
    let model = process.model();
    process.log.seal().unwrap();
    (disk.copy(), starts, model)
}

fn damaged(disk: &MemoryDisk, bytes: Vec<u8>) -> MemoryDisk {
    let disk = disk.copy();
    disk.damage(&segment(1), bytes).unwrap();
    disk
}

/// Return the claim checks in doubt. The states of all others must be correct: a redeemed one is
/// not open, and an issued one is not unknown.
fn doubted(process: &Process, model: &Model, when: &str) -> Vec<u64> {
    let ids = [OPEN, REDEEMED, SETTLED, VOIDED, LATER, UNKNOWN];
    let (sure, doubted): (Vec<u64>, Vec<u64>) = ids.into_iter().partition(|id| process.state.check(*id).is_ok());
    for id in sure {
        let found = process.state.book.get(id).map(|claim| claim.state);
        // No peer knows a claim check that was voided.
        assert!(found == model.get(&id).copied() || id == VOIDED, "{when}: {id} is {found:?}");
    }
    for id in &doubted {
        let error = process.state.check(*id).unwrap_err().to_string();
        assert!(error.contains("segment 1 is damaged from byte "), "{when}: {error}");
    }
    assert_eq!(process.state.page((0, 0), usize::MAX).is_err(), process.doubts() > 0, "{when}");
    let (fresh, _) = process.state.fresh(0);
    assert!(!fresh.iter().any(|row| doubted.contains(&row.check.id)), "{when}");
    doubted
}

#[test]
fn a_bit_that_flips_leaves_at_most_its_claim_check_in_doubt_and_nothing_wrong_is_said() {
    let (disk, _, model) = written();
    let whole = disk.read(&segment(1)).unwrap();
    let mut hit = BTreeMap::<u64, usize>::new();
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (image, when) = (damaged(&disk, bytes.clone()), format!("bit {bit}"));
        let process = Process::try_open(&image, FORMAT).unwrap();
        let first = doubted(&process, &model, &when);
        assert!(first.len() <= 1 && !first.contains(&UNKNOWN), "{when}: {first:?}");
        let is_told = process.log.damaged() > 0;
        assert!(is_told || first.is_empty(), "{when}");
        if is_told {
            let kept = PathBuf::from(format!("{}.damaged", segment(1).display()));
            assert_eq!(image.read(&kept).unwrap(), bytes, "{when}");
        }
        drop(process);
        // The next start has the same doubts, even if the damage is gone.
        for next in [image.crash(1), image] {
            let process = Process::try_open(&next, FORMAT).unwrap();
            assert_eq!(doubted(&process, &model, &when), first, "{when}");
        }
        first.into_iter().for_each(|id| *hit.entry(id).or_default() += 1);
    }
    // Damage anywhere in a record's body is found. The body of a voided claim check is not needed,
    // because the label has its content.
    assert!([OPEN, REDEEMED, LATER, SETTLED].iter().all(|id| hit[id] > 300), "{hit:?}");
}

#[test]
fn a_place_of_which_nothing_says_whose_it_was_leaves_all_before_it_in_doubt_and_all_that_is_unknown() {
    let (disk, starts, model) = written();
    let whole = disk.read(&segment(1)).unwrap();
    for (at, start) in starts.iter().enumerate() {
        let end = starts.get(at + 1).copied().unwrap_or(whole.len()) - 32;
        let mut bytes = whole.clone();
        bytes[*start..end].fill(0x77);
        let (image, when) = (damaged(&disk, bytes), format!("record {at}"));
        let process = Process::try_open(&image, FORMAT).unwrap();
        let first = doubted(&process, &model, &when);
        assert!(first.contains(&UNKNOWN) && first.contains(&OPEN), "{when}: {first:?}");
        // A claim check is certain if a later record repeats its state, or if it was issued later.
        assert_eq!(first.contains(&LATER), at == 8, "{when}: {first:?}");
        assert_eq!(first.contains(&SETTLED), at == 2 || at == 6, "{when}: {first:?}");
        assert_eq!(first.contains(&REDEEMED), at == 1 || at > 3, "{when}: {first:?}");
        drop(process);
        let mut process = Process::try_open(&image.crash(1), FORMAT).unwrap();
        assert_eq!(doubted(&process, &model, &when), first, "{when}");
        // The doubt ends once no claim check of the place can be valid.
        let (now, most) = (now().unix_micros, ClaimLimits::default());
        let later = now + u64::try_from((most.life + most.linger).as_micros()).unwrap();
        assert!(process.state.doubts.check(later - 60_000_000, UNKNOWN, false).is_err());
        assert!(
            process.state.doubts.check(later, UNKNOWN, false).is_ok() && process.state.doubts.check_all(later).is_ok()
        );
        process.state.doubts.sweep(later);
        assert_eq!(process.doubts(), 0);
    }
}

#[test]
fn what_is_in_doubt_stays_so_wherever_the_power_goes_or_the_disk_fails_at_a_start() {
    let (disk, starts, model) = written();
    let whole = disk.read(&segment(1)).unwrap();
    // Damage the redemption without its head, which names the claim check, and then with it.
    for (from, doubtful) in [(starts[4] + 40, vec![REDEEMED]), (starts[4], vec![OPEN, REDEEMED, UNKNOWN])] {
        let mut bytes = whole.clone();
        bytes[from..starts[5] - 32].fill(0x77);
        let broken = damaged(&disk, bytes);
        let calls = {
            let image = broken.copy();
            Process::try_open(&image, SMALL).unwrap();
            image.calls()
        };
        assert!(calls > 5);
        for fault in [Fault::Power, Fault::Io, Fault::Full] {
            for call in 0..calls {
                let image = broken.copy();
                image.fail(call, fault, 1);
                if let Ok(process) = Process::try_open(&image, SMALL) {
                    let found = doubted(&process, &model, "at once");
                    assert!(doubtful.iter().all(|id| found.contains(id)), "{fault:?} at call {call}: {found:?}");
                }
                for seed in 0..4 {
                    let when = format!("{fault:?} at call {call}, image {seed}");
                    let process = Process::try_open(&image.crash(seed), SMALL).unwrap();
                    let found = doubted(&process, &model, &when);
                    assert!(doubtful.iter().all(|id| found.contains(id)), "{when}: {found:?}");
                }
            }
        }
    }
}

#[test]
fn a_claim_check_in_doubt_is_sure_again_once_its_end_is_said() {
    let (disk, starts, model) = written();
    let mut bytes = disk.read(&segment(1)).unwrap();
    bytes[starts[6]..starts[7] - 32].fill(0x77);
    let image = damaged(&disk, bytes);
    let mut process = Process::try_open(&image, FORMAT).unwrap();
    assert!(doubted(&process, &model, "before").contains(&SETTLED));
    process.settle(SETTLED);
    process.save().unwrap();
    drop(process);
    let process = Process::try_open(&image, FORMAT).unwrap();
    assert!(!doubted(&process, &model, "after").contains(&SETTLED));
}

#[test]
fn a_segment_that_an_operator_has_given_up_leaves_all_before_it_in_doubt() {
    let (disk, ..) = written();
    let mut process = Process::try_open(&disk, FORMAT).unwrap();
    process.issue(6);
    process.save().unwrap();
    drop(process);
    disk.rename(&segment(1), &folder().join(format!("{:020}.damaged", 1))).unwrap();
    assert!(exists(&disk, folder(), &FORMAT));
    let process = Process::try_open(&disk, FORMAT).unwrap();
    for id in [OPEN, REDEEMED, SETTLED, UNKNOWN] {
        assert!(process.state.check(id).is_err(), "{id}");
    }
    assert_eq!(process.model().into_keys().collect::<Vec<_>>(), [6]);
}
