//! The contents of a journal after crashes and damage, on a disk in memory.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod crashes;
mod damage;
mod earlier;

use std::io::IoSlice;
use std::path::PathBuf;

use penstock_io::Problem;
use penstock_log::Mismatch;
use penstock_quicx::{Accepts, ConnectionId, Decoded, Decoder, Frame, Prefetch, Record, Submit, SubmitOnce, TaskId};
use penstock_testkit::disk::MemoryDisk;
use tempfile::TempDir;

use super::*;

/// Return how a file differs from a segment, if that is the error.
fn mismatch(error: &Error) -> Option<Mismatch> {
    let Error::Local(penstock_io::Error::Content { problem: Problem::Log(mismatch), .. }) = error else { return None };
    Some(*mismatch)
}

/// A folder in memory, and a folder of the same name on the real disk for its lock.
struct Place {
    disk: MemoryDisk,
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let (disk, folder) = (MemoryDisk::default(), tempfile::tempdir().unwrap());
        make_folder(&disk, folder.path()).unwrap();
        Self { disk, folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn segment(&self, number: u64) -> PathBuf {
        self.file(&format!("{number:020}.journal"))
    }

    fn put(&self, number: u64, bytes: &[u8]) {
        let _ = self.disk.remove(&self.segment(number));
        self.disk.create(&self.segment(number)).unwrap().append(&mut [IoSlice::new(bytes)]).unwrap();
    }

    /// Return the bytes of a damaged segment that was kept aside.
    fn kept(&self, number: u64) -> Option<Vec<u8>> {
        self.disk.read(&self.file(&format!("{number:020}.journal.damaged"))).ok()
    }

    fn open(&self) -> Result<(Folder, Queue)> {
        self.on(&self.disk)
    }

    fn on(&self, disk: &MemoryDisk) -> Result<(Folder, Queue)> {
        Folder::with_segments(Arc::new(disk.clone()), self.folder.path(), Instant::now(), &QueueConfig::default(), 600)
    }
}

/// Carry out all writes of the queue.
fn drain(folder: &mut Folder, queue: &mut Queue) {
    while let Some(write) = queue.poll_write() {
        match write {
            Write::Remove { segment } => folder.remove(segment),
            Write::Append(batch) => match folder.append(&batch) {
                Ok(segment) => queue.handle_durable(Instant::now(), segment),
                Err(error) => queue.handle_write_failed(Instant::now(), &error.to_string()),
            },
        }
    }
}

fn send(queue: &mut Queue, to: ConnectionId, frames: &[Frame<'_>]) {
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes).unwrap());
    queue.handle_input(Instant::now(), to, &bytes);
}

/// Return the frames that were sent to a connection, as text.
fn hears(queue: &mut Queue, id: ConnectionId) -> Vec<String> {
    let bytes = queue.poll_transmit(id).to_vec();
    queue.handle_written(Instant::now(), id, bytes.len());
    let (mut decoder, mut rest, mut found) = (Decoder::new(Accepts::ToClient), bytes.as_slice(), Vec::new());
    while let Some(decoded) = decoder.next_frame(&mut rest) {
        let text = String::from_utf8_lossy;
        match decoded {
            Decoded::Frame(Frame::Ok(id)) => found.push(format!("OK {id}")),
            Decoded::Frame(Frame::Task(task)) => {
                found.push(format!("{} {} {}", task.id, text(task.submit.kind), text(task.submit.payload)));
            }
            Decoded::Frame(Frame::DeadTasks(tasks)) => {
                found.extend(tasks.map(|task| format!("{} {} {}", task.id, task.attempts, text(task.reason))));
            }
            Decoded::Frame(_) => {}
            other => panic!("{other:?}"),
        }
    }
    found
}

/// Return the waiting tasks in order, each with its type and payload.
fn waiting(queue: &mut Queue) -> Vec<String> {
    let worker = queue.open(false);
    send(queue, worker, &[Frame::Prefetch(Prefetch(500)), Frame::Ready]);
    hears(queue, worker)
}

/// Return the dead list, each task with its attempts and reason.
fn dead(queue: &mut Queue) -> Vec<String> {
    let monitor = queue.open(false);
    send(queue, monitor, &[Frame::DeadList]);
    hears(queue, monitor)
}

const fn submit(payload: &[u8]) -> Frame<'_> {
    Frame::Submit(Submit { kind: b"a", payload })
}
