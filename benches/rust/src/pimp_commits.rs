//! `pimp_commits STORE FOLDER COUNT TASKS`: what a store on disk takes by itself: changes of ten chunks with 1 KiB each, as many at once as
//! there are tasks, each durable before the next of its task; prints JSON. STORE is `log`, PIMP's own, or `fjall`.
//!
//! Both sync once for all changes that wait (`fdatasync`). Fjall has no queue of its own for that: one thread takes what waits into
//! one batch, as the log's writer does.

#![allow(clippy::print_stdout)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use penstock_io::runtime::{block_on, spawn};
use penstock_pimp::{Job, JobId, Limits, Now, Settings};
use penstock_pimp_net::{Change, DiskStore, Store};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

const TEN: u32 = 10;
/// Bytes of an envelope with a value of 1 KiB.
const ENVELOPE: usize = 1_170;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// A change that waits, and who waits for it.
type Waiting = (JobId, Change, oneshot::Sender<()>);

/// What is measured.
enum Measured {
    Log(DiskStore),
    Fjall(mpsc::UnboundedSender<Waiting>),
}

impl Measured {
    fn open(name: &str, folder: &Path) -> Result<Self, Error> {
        match name {
            "log" => Ok(Self::Log(DiskStore::open(folder)?)),
            "fjall" => {
                let database = Database::builder(folder).open()?;
                let chunks = database.keyspace("chunks", KeyspaceCreateOptions::default)?;
                let jobs = database.keyspace("jobs", KeyspaceCreateOptions::default)?;
                let (sender, waiting) = mpsc::unbounded_channel();
                std::thread::spawn(move || write(&database, &chunks, &jobs, waiting));
                Ok(Self::Fjall(sender))
            }
            other => Err(format!("{other} is neither log nor fjall").into()),
        }
    }

    async fn commit(&self, id: JobId, change: Change) -> Result<(), Error> {
        match self {
            Self::Log(store) => {
                store.commit(id, change).await?;
            }
            Self::Fjall(sender) => {
                let (done, stored) = oneshot::channel();
                sender.send((id, change, done)).map_err(|_| "fjall has failed")?;
                stored.await?;
            }
        }
        Ok(())
    }
}

/// Fjall's writer: who waits meanwhile is written together. It ends with its first error, and so does who waits.
fn write(
    database: &Database,
    chunks: &Keyspace,
    jobs: &Keyspace,
    mut waiting: mpsc::UnboundedReceiver<Waiting>,
) -> Result<(), Error> {
    let mut taken = Vec::new();
    while let Some(first) = waiting.blocking_recv() {
        taken.push(first);
        while let Ok(next) = waiting.try_recv() {
            taken.push(next);
        }
        let mut batch = database.batch().durability(Some(PersistMode::SyncData));
        for (id, change, _) in &taken {
            for (index, chunk) in &change.chunks {
                batch.insert(chunks, [id.bytes().as_slice(), &index.to_be_bytes()].concat(), chunk.to_vec());
            }
            if let Some(job) = &change.job {
                batch.insert(jobs, id.bytes().to_vec(), job.encode()?);
            }
        }
        batch.commit()?;
        for (_, _, done) in taken.drain(..) {
            let _ = done.send(());
        }
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name, folder, count, tasks] = words.as_slice() else {
        return Err("pimp_commits STORE FOLDER COUNT TASKS".into());
    };
    let (count, tasks) = (count.parse::<u32>()?, tasks.parse::<u8>()?);
    let store = Arc::new(Measured::open(name, Path::new(folder))?);
    let micros = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
    let now = Now { instant: Instant::now(), unix_micros: u64::try_from(micros)? };
    let (taken, chunk) = (Arc::new(AtomicU32::new(0)), Bytes::from(vec![b'x'; ENVELOPE]));
    let began = Instant::now();
    let mut running = Vec::new();
    for number in 0..tasks {
        let (store, taken, chunk) = (Arc::clone(&store), Arc::clone(&taken), chunk.clone());
        let job = Job::create(now, "key", Settings::default(), &Limits::default())?;
        running.push(spawn(async move {
            let (id, mut index) = (JobId::from_random([number; 16]), 0);
            while taken.fetch_add(1, Ordering::Relaxed) < count {
                let chunks = (0..TEN).map(|each| ((index + each) % 4_000, chunk.clone())).collect();
                index += TEN;
                let change = Change { was: Some(job.clone()), job: Some(job.clone()), chunks };
                store.commit(id, change).await?;
            }
            Ok::<_, Error>(())
        })?);
    }
    block_on(async move {
        for each in running {
            each.await??;
        }
        Ok::<_, Error>(())
    })??;
    println!("{}", json!({"count": count, "seconds": began.elapsed().as_secs_f64()}));
    Ok(())
}
