//! `pimp_commits FOLDER COUNT TASKS`: what PIMP's store on disk takes by itself: changes of ten chunks with 1 KiB each, as many at once as
//! there are tasks, each durable before the next of its task; prints JSON.

#![allow(clippy::print_stdout)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use penstock_net::pimp::{Change, DiskStore, Store};
use penstock_net::runtime::{block_on, spawn};
use penstock_pimp::{Job, JobId, Limits, Now, Settings};
use serde_json::json;

const TEN: u32 = 10;
/// Octets of an envelope with a value of 1 KiB.
const ENVELOPE: usize = 1_170;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder, count, tasks] = words.as_slice() else { return Err("pimp_commits FOLDER COUNT TASKS".into()) };
    let (count, tasks) = (count.parse::<u32>()?, tasks.parse::<u8>()?);
    let store = Arc::new(DiskStore::open(Path::new(folder))?);
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
            Ok::<_, penstock_net::Error>(())
        })?);
    }
    block_on(async move {
        for each in running {
            each.await??;
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    })??;
    println!("{}", json!({"count": count, "seconds": began.elapsed().as_secs_f64()}));
    Ok(())
}
