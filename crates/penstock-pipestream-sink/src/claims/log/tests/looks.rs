use std::fmt;
use std::sync::Mutex;

use penstock_log::DiskFile;

use super::*;

fn looked(disk: &dyn Disk) -> State {
    let mut state = State::default();
    look(disk, folder(), &SMALL, &mut state).unwrap();
    state
}

fn model(state: &State) -> Model {
    state.book.iter().map(|claim| (claim.id, claim.state)).collect()
}

#[test]
fn a_reader_knows_what_the_server_knows_at_any_time_and_changes_nothing() {
    let disk = MemoryDisk::default();
    assert_eq!(model(&looked(&disk)), Model::new());
    let mut process = Process::open(&disk);
    for number in 0..STEPS {
        process.step(number);
        process.save().unwrap();
        let calls = disk.calls();
        assert_eq!(model(&looked(&disk)), process.model(), "after step {number}");
        assert_eq!(disk.calls(), calls);
        process.tidy();
    }
}

/// A disk on which the server rewrites its log between a reader's listing of it and the reads.
#[derive(Debug)]
struct Racing {
    disk: MemoryDisk,
    server: Mutex<Process>,
    races: Mutex<usize>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").finish_non_exhaustive()
    }
}

fn never<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Disk for Racing {
    fn create(&self, _: &Path) -> io::Result<Arc<dyn DiskFile>> {
        never()
    }

    fn open(&self, _: &Path) -> io::Result<Arc<dyn DiskFile>> {
        never()
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let names = self.disk.list(folder)?;
        let (mut races, mut server) = (self.races.lock().unwrap(), self.server.lock().unwrap());
        if *races > 0 {
            *races -= 1;
            let entries = server.state.entries();
            server.log.rewrite(&entries)?;
        }
        Ok(names)
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        never()
    }

    fn link(&self, _: &Path, _: &Path) -> io::Result<()> {
        never()
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        never()
    }

    fn make_folder(&self, _: &Path) -> io::Result<()> {
        never()
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        never()
    }
}

#[test]
fn a_reader_begins_again_when_the_server_has_written_its_log_anew() {
    let disk = MemoryDisk::default();
    let mut process = Process::open(&disk);
    for number in 0..STEPS {
        process.step(number);
        process.save().unwrap();
    }
    let expected = process.model();
    let racing = Racing { disk, server: Mutex::new(process), races: Mutex::new(4) };
    assert_eq!(model(&looked(&racing)), expected);
    assert_eq!(*racing.races.lock().unwrap(), 0);
    // The reader does not retry forever.
    *racing.races.lock().unwrap() = usize::MAX;
    assert!(look(&racing, folder(), &SMALL, &mut State::default()).is_err());
}
