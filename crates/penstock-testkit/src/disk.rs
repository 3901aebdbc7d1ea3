//! A disk in memory with a page cache, which loses the same data as a real one.
//!
//! Readers see written bytes immediately; the disk has them once the file was synced. Readers see a new name
//! immediately; the disk has it once its folder was synced. When the power goes ([`MemoryDisk::crash`]), any of the
//! sectors that were not synced are on the disk, and the others keep their old content or are zeros. The same holds for
//! changes of names, which may reach the disk in any order, except that changes of one name keep their order.
//!
//! A failed sync of a file behaves as on Linux: some of the data reached the disk, the rest never will, readers see all
//! of it, and the next sync succeeds.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use penstock_log::{Disk, DiskFile};

/// The disk writes a sector as a whole.
const SECTOR: usize = 512;

/// A fault of a call. A sync that meets another fault than `Power` does a part of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// EIO; the call does nothing.
    Io,
    /// ENOSPC; the call does nothing.
    Full,
    /// ENOSPC after half of the bytes were written; the same as `Full` for a call that writes no bytes.
    Short,
    /// The power goes: this call and all later ones do nothing.
    Power,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 4] = [Self::Io, Self::Full, Self::Short, Self::Power];

    fn error(self) -> io::Error {
        match self {
            Self::Io | Self::Power => io::Error::from_raw_os_error(5),
            Self::Full | Self::Short => io::Error::from_raw_os_error(28),
        }
    }
}

/// The disk. Its clones share one state.
#[derive(Debug, Clone)]
pub struct MemoryDisk(Arc<Mutex<State>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    File(usize),
    Folder(usize),
}

#[derive(Debug, Clone)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Truncate(usize),
}

#[derive(Debug, Clone, Default)]
struct File {
    durable: Vec<u8>,
    content: Vec<u8>,
    pending: Vec<Change>,
}

/// Changes of names: each name gets a node or loses its node.
type Names = Vec<(String, Option<Node>)>;

#[derive(Debug, Clone, Default)]
struct Folder {
    durable: BTreeMap<String, Node>,
    names: BTreeMap<String, Node>,
    pending: Vec<Names>,
}

#[derive(Debug, Clone)]
struct State {
    files: Vec<File>,
    folders: Vec<Folder>,
    /// How many calls that change something were made so far, failed calls included.
    calls: u64,
    fault: Option<(u64, Fault)>,
    /// How many calls in a row fail.
    failing: u64,
    rng: Rng,
}

impl Default for MemoryDisk {
    fn default() -> Self {
        let (files, folders, rng) = (Vec::new(), vec![Folder::default()], Rng::with_seed(7));
        Self(Arc::new(Mutex::new(State { files, folders, calls: 0, fault: None, failing: 1, rng })))
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Truncate(length) => bytes.truncate(*length),
            Self::Write { at, bytes: new } => put(bytes, *at, new),
        }
    }

    /// Apply all, some or none of its sectors.
    fn apply_some(&self, bytes: &mut Vec<u8>, rng: &mut Rng) {
        let keeps = rng.u8(0..4);
        match self {
            Self::Truncate(length) if keeps > 1 => bytes.truncate(*length),
            Self::Truncate(_) => {}
            Self::Write { at, bytes: new } => {
                let mut start = *at;
                while start < at + new.len() {
                    let end = (start / SECTOR * SECTOR + SECTOR).min(at + new.len());
                    let sector = new.get(start - at..end - at).unwrap_or_default();
                    match (keeps, rng.u8(0..3)) {
                        // The sector keeps its old content, becomes zeros, or is written.
                        (0, _) | (2.., 0) => {}
                        (2.., 1) => put(bytes, start, &vec![0; sector.len()]),
                        (1, _) | (2.., _) => put(bytes, start, sector),
                    }
                    start = end;
                }
            }
        }
    }
}

fn put(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    if bytes.len() < at + new.len() {
        bytes.resize(at + new.len(), 0);
    }
    bytes.iter_mut().skip(at).zip(new).for_each(|(to, from)| *to = *from);
}

fn set(names: &mut BTreeMap<String, Node>, changes: &Names) {
    for (name, node) in changes {
        match node {
            Some(node) => names.insert(name.clone(), *node),
            None => names.remove(name),
        };
    }
}

impl State {
    /// Count a call that changes something, and return the fault injected into it.
    fn call(&mut self) -> Option<Fault> {
        let call = self.calls;
        self.calls += 1;
        let (at, fault) = self.fault?;
        let fails = call >= at && (fault == Fault::Power || call < at.saturating_add(self.failing));
        fails.then_some(fault)
    }

    fn check(&mut self) -> io::Result<()> {
        self.call().map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn node(&self, path: &Path) -> io::Result<Node> {
        let mut node = Node::Folder(0);
        for component in path.components() {
            let name = match component {
                Component::Normal(name) => text(name),
                Component::RootDir | Component::CurDir | Component::Prefix(_) | Component::ParentDir => continue,
            };
            let Node::Folder(folder) = node else { return Err(not_found()) };
            node = *self.folder(folder)?.names.get(&name).ok_or_else(not_found)?;
        }
        Ok(node)
    }

    fn folder(&self, place: usize) -> io::Result<&Folder> {
        self.folders.get(place).ok_or_else(not_found)
    }

    fn file(&mut self, place: usize) -> io::Result<&mut File> {
        self.files.get_mut(place).ok_or_else(not_found)
    }

    /// Return the folder and the name of a path.
    fn place(&self, path: &Path) -> io::Result<(usize, String)> {
        let name = text(path.file_name().ok_or_else(not_found)?);
        match self.node(path.parent().unwrap_or(Path::new("")))? {
            Node::Folder(folder) => Ok((folder, name)),
            Node::File(_) => Err(not_found()),
        }
    }

    fn change(&mut self, folder: usize, changes: Names) -> io::Result<()> {
        let folder = self.folders.get_mut(folder).ok_or_else(not_found)?;
        set(&mut folder.names, &changes);
        folder.pending.push(changes);
        Ok(())
    }

    /// Add a node under a name that does not exist yet.
    fn add(&mut self, path: &Path, node: impl FnOnce(&mut Self) -> io::Result<Node>) -> io::Result<()> {
        let (folder, name) = self.place(path)?;
        if self.folder(folder)?.names.contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.check()?;
        let node = node(self)?;
        self.change(folder, vec![(name, Some(node))])
    }
}

fn text(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

impl MemoryDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Return how many calls that change something were made, failed calls included.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Make `in_a_row` calls fail, beginning with call number `call`.
    pub fn fail(&self, call: u64, fault: Fault, in_a_row: u64) {
        let mut state = self.state();
        (state.fault, state.failing) = (Some((call, fault)), in_a_row);
    }

    /// Clear the injected fault.
    pub fn heal(&self) {
        self.state().fault = None;
    }

    /// Return a disk with the content that remains if the power goes now; the same seed returns the same content.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        let mut state = self.state().clone();
        let mut rng = Rng::with_seed(seed);
        for file in &mut state.files {
            for change in std::mem::take(&mut file.pending) {
                change.apply_some(&mut file.durable, &mut rng);
            }
            file.content = file.durable.clone();
        }
        for folder in &mut state.folders {
            for changes in std::mem::take(&mut folder.pending) {
                if rng.bool() {
                    set(&mut folder.durable, &changes);
                }
            }
            folder.names = folder.durable.clone();
        }
        (state.calls, state.fault) = (0, None);
        Self(Arc::new(Mutex::new(state)))
    }

    /// Return another disk with the content that readers see now, all of it durable.
    #[must_use]
    pub fn copy(&self) -> Self {
        let mut state = self.state().clone();
        for file in &mut state.files {
            (file.durable, file.pending) = (file.content.clone(), Vec::new());
        }
        for folder in &mut state.folders {
            (folder.durable, folder.pending) = (folder.names.clone(), Vec::new());
        }
        (state.calls, state.fault) = (0, None);
        Self(Arc::new(Mutex::new(state)))
    }

    /// Return the bytes of a file.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        match state.node(path)? {
            Node::File(place) => Ok(state.file(place)?.content.clone()),
            Node::Folder(_) => Err(not_found()),
        }
    }

    /// Replace the bytes of an existing file, durably, to simulate damage.
    pub fn damage(&self, path: &Path, bytes: Vec<u8>) -> io::Result<()> {
        let mut state = self.state();
        match state.node(path)? {
            Node::File(place) => {
                *state.file(place)? = File { durable: bytes.clone(), content: bytes, pending: Vec::new() };
                Ok(())
            }
            Node::Folder(_) => Err(not_found()),
        }
    }
}

impl Disk for MemoryDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut file = 0;
        self.state().add(path, |state| {
            file = state.files.len();
            state.files.push(File::default());
            Ok(Node::File(file))
        })?;
        Ok(Arc::new(MemoryFile { disk: self.clone(), file }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        match self.state().node(path)? {
            Node::File(file) => Ok(Arc::new(MemoryFile { disk: self.clone(), file })),
            Node::Folder(_) => Err(not_found()),
        }
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        match state.node(folder)? {
            Node::Folder(folder) => Ok(state.folder(folder)?.names.keys().cloned().collect()),
            Node::File(_) => Err(not_found()),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let ((folder, old), (other, new), node) = (state.place(from)?, state.place(to)?, state.node(from)?);
        assert_eq!(folder, other, "a log renames within a folder");
        state.check()?;
        state.change(folder, vec![(old, None), (new, Some(node))])
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let node = state.node(from)?;
        state.add(to, |_| Ok(node))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.node(path)?;
        let (folder, name) = state.place(path)?;
        state.check()?;
        state.change(folder, vec![(name, None)])
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        if path.file_name().is_none() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.state().add(path, |state| {
            state.folders.push(Folder::default());
            Ok(Node::Folder(state.folders.len() - 1))
        })
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut state = self.state();
        let Node::Folder(place) = state.node(folder)? else { return Err(not_found()) };
        let fault = state.call();
        let mut rng = state.rng.fork();
        let folder = state.folders.get_mut(place).ok_or_else(not_found)?;
        if fault == Some(Fault::Power) {
            return Err(Fault::Power.error());
        }
        for changes in &folder.pending {
            if fault.is_none() || rng.bool() {
                set(&mut folder.durable, changes);
            }
        }
        if fault.is_none() {
            folder.pending.clear();
        }
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }
}

#[derive(Debug)]
struct MemoryFile {
    disk: MemoryDisk,
    file: usize,
}

impl MemoryFile {
    fn change(&self, change: Change) -> io::Result<()> {
        let mut state = self.disk.state();
        let file = state.file(self.file)?;
        change.apply(&mut file.content);
        file.pending.push(change);
        Ok(())
    }
}

impl DiskFile for MemoryFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.state().file(self.file)?.content.len() as u64)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let found = state.file(self.file)?.content.get(start..start + bytes.len());
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn append(&self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let fault = self.disk.state().call();
        let mut bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        match fault {
            Some(Fault::Io | Fault::Full | Fault::Power) => bytes.clear(),
            Some(Fault::Short) => bytes.truncate(bytes.len() / 2),
            None => {}
        }
        if !bytes.is_empty() {
            let at = usize::try_from(self.length()?).map_err(io::Error::other)?;
            self.change(Change::Write { at, bytes })?;
        }
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.disk.state().check()?;
        self.change(Change::Truncate(usize::try_from(length).map_err(io::Error::other)?))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        let fault = state.call();
        let mut rng = state.rng.fork();
        let file = state.file(self.file)?;
        if fault == Some(Fault::Power) {
            return Err(Fault::Power.error());
        }
        for change in std::mem::take(&mut file.pending) {
            match fault {
                None => change.apply(&mut file.durable),
                Some(_) => change.apply_some(&mut file.durable, &mut rng),
            }
        }
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }
}
