//! Jobs in Redis, which several buffers may share.
//!
//! ```text
//! pimp:ID         the job's record, until it is forgotten
//! pimp:ID:chunks  a hash: an index, its envelope; until the job expires
//! pimp:jobs       a sorted set: the IDs, by when they are forgotten
//! pimp:news       a channel: the ID of each job that has changed
//! pimp:trial      set by a buffer to test a Redis that refused a change; for ten seconds
//! ```
//!
//! A change is one script, which Redis runs atomically: it checks that the job's record is still the one on which the
//! decision was based. Redis itself deletes expired keys. The durability of a 201 depends on `appendfsync`: it is on
//! disk with `always`.

use std::fmt;
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use penstock_io::DriverError as _;
use penstock_io::runtime::block_on;
use penstock_io::sync::lock;
use penstock_pimp::{Job, JobId};
use redis::aio::{ConnectionManager, ConnectionManagerConfig, PubSubStream};
use redis::{AsyncCommands as _, Client, RedisError, Script};
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::{Change, Store, Usage};
use crate::{Error, Misuse, Result};

const JOBS: &str = "pimp:jobs";
const NEWS: &str = "pimp:news";
/// The key that is set to test a Redis that failed, and its lifetime in milliseconds.
const TRIAL: &str = "pimp:trial";
const TRIED: u64 = 10_000;
/// The timeout of connecting and of a response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before subscribing again.
const RESUBSCRIBE_PAUSE: Duration = Duration::from_millis(500);

/// Arguments: the record on which the decision was based, the new record (empty: none), when the job expires (0: it has
/// no chunks), when it is forgotten, and the ID; then an index and an envelope for each chunk.
const COMMIT: &str = r"
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
    redis.call('DEL', KEYS[1], KEYS[2])
    redis.call('ZREM', KEYS[3], ARGV[5])
else
    if ARGV[3] == '0' then redis.call('DEL', KEYS[2]) end
    for place = 6, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[place], ARGV[place + 1]) end
    redis.call('PEXPIREAT', KEYS[2], ARGV[3])
    redis.call('SET', KEYS[1], ARGV[2], 'PXAT', ARGV[4])
    redis.call('ZADD', KEYS[3], ARGV[4], ARGV[5])
end
redis.call('PUBLISH', KEYS[4], ARGV[5])
return 1
";

/// Arguments: the most bytes, then the indices. Returns the first chunks, at least one, up to a missing one.
const READ: &str = r"
local found, bytes = {}, 0
for place = 2, #ARGV do
    local chunk = redis.call('HGET', KEYS[1], ARGV[place])
    if not chunk then break end
    bytes = bytes + #chunk
    if place > 2 and bytes > tonumber(ARGV[1]) then break end
    found[#found + 1] = chunk
end
return found
";

/// A store in Redis 6.2 or newer.
pub struct RedisStore {
    client: Client,
    connection: ConnectionManager,
    commit: Script,
    read: Script,
    news: Mutex<Option<PubSubStream>>,
    jobs: AtomicU64,
    /// Why the last request failed, until a change succeeds.
    failing: StdMutex<Option<String>>,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client is left out because it contains the password.
        f.debug_struct("RedisStore").field("address", &place(&self.client)).finish_non_exhaustive()
    }
}

fn place(client: &Client) -> String {
    client.get_connection_info().addr().to_string()
}

fn keys(id: JobId) -> [String; 2] {
    [format!("pimp:{id}"), format!("pimp:{id}:chunks")]
}

impl RedisStore {
    /// Connect to `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`; `rediss://` is over TLS, by the system's CAs.
    ///
    /// Fails if the URL is invalid or no Redis answers.
    pub fn open(url: &str) -> Result<Self> {
        // The URL contains the password, so it is not shown.
        let client = Client::open(url).map_err(|error| Misuse::RedisUrl { reason: error.to_string() })?;
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(1)
            .set_connection_timeout(Some(REQUEST_TIMEOUT))
            .set_response_timeout(Some(REQUEST_TIMEOUT));
        let opening = async {
            let mut connection = ConnectionManager::new_with_config(client.clone(), config).await?;
            let sync: Vec<String> = redis::cmd("CONFIG")
                .arg("GET")
                .arg("appendfsync")
                .query_async(&mut connection)
                .await
                .unwrap_or_default();
            let log: Vec<String> = redis::cmd("CONFIG")
                .arg("GET")
                .arg("appendonly")
                .query_async(&mut connection)
                .await
                .unwrap_or_default();
            let policy: Vec<String> = redis::cmd("CONFIG")
                .arg("GET")
                .arg("maxmemory-policy")
                .query_async(&mut connection)
                .await
                .unwrap_or_default();
            Ok((connection, sync, log, policy))
        };
        let opened = block_on(opening)?;
        let (connection, sync, log, policy) = opened.map_err(|error: RedisError| {
            Error::io(format!("cannot use the Redis at {}", place(&client)), error.to_string())
        })?;
        let is = |found: &[String], wanted: &str| found.last().is_some_and(|value| value == wanted);
        if !(is(&sync, "always") && is(&log, "yes")) {
            tracing::warn!(
                "acknowledged writes may not be on disk: this Redis lacks appendonly yes and appendfsync always"
            );
        }
        if let Some(policy) = policy.last().filter(|policy| *policy != "noeviction") {
            tracing::warn!(
                %policy,
                "acknowledged writes may be evicted: set maxmemory-policy noeviction in this Redis"
            );
        }
        let (commit, read, jobs) = (Script::new(COMMIT), Script::new(READ), AtomicU64::new(0));
        Ok(Self { client, connection, commit, read, news: Mutex::new(None), jobs, failing: StdMutex::default() })
    }

    fn failed(&self, error: &RedisError) -> Error {
        let error = Error::io("cannot use the store in Redis", error.to_string());
        self.set_failing(Some(error.to_string()));
        error
    }

    fn set_failing(&self, why: Option<String>) {
        *lock(&self.failing) = why;
    }

    async fn listen(&self) -> redis::RedisResult<PubSubStream> {
        let mut connection = self.client.get_async_pubsub().await?;
        connection.subscribe(NEWS).await?;
        Ok(connection.into_on_message())
    }
}

impl Store for RedisStore {
    fn load(&self, id: JobId) -> BoxFuture<'_, Result<Option<Job>>> {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let [job, _] = keys(id);
            let record: Option<Vec<u8>> = connection.get(job).await.map_err(|error| self.failed(&error))?;
            Ok(record.map(|record| Job::decode(&record)).transpose()?)
        })
    }

    fn commit(&self, id: JobId, change: Change) -> BoxFuture<'_, Result<bool>> {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let record = |job: Option<&Job>| job.map_or_else(|| Ok(Vec::new()), Job::encode);
            let [job, chunks] = keys(id);
            let mut script = self.commit.key(job);
            script.key(chunks).key(JOBS).key(NEWS);
            script.arg(record(change.was.as_ref())?).arg(record(change.job.as_ref())?);
            let until = |job: &Job| (if job.is_deleted() { 0 } else { job.expires_at() }, job.forgotten_at());
            let (expires, forgotten) = change.job.as_ref().map_or((0, 0), until);
            script.arg(expires).arg(forgotten).arg(id.to_string());
            for (index, chunk) in &change.chunks {
                script.arg(*index).arg(chunk.as_ref());
            }
            let done: i64 = script.invoke_async(&mut connection).await.map_err(|error| self.failed(&error))?;
            self.set_failing(None);
            Ok(done == 1)
        })
    }

    fn read(&self, id: JobId, indices: Vec<u32>, most: u64) -> BoxFuture<'_, Result<Vec<Bytes>>> {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            if indices.is_empty() {
                return Ok(Vec::new());
            }
            let [_, chunks] = keys(id);
            let mut script = self.read.key(chunks);
            script.arg(most).arg(&indices);
            script.invoke_async(&mut connection).await.map_err(|error| self.failed(&error))
        })
    }

    fn sweep(&self, now: u64) -> BoxFuture<'_, Result<()>> {
        let mut connection = self.connection.clone();
        Box::pin(async move {
            let counting = redis::pipe()
                .cmd("ZREMRANGEBYSCORE")
                .arg(JOBS)
                .arg("-inf")
                .arg(now)
                .ignore()
                .cmd("ZCARD")
                .arg(JOBS)
                .query_async(&mut connection)
                .await;
            let (jobs,): (u64,) = counting.map_err(|error: RedisError| self.failed(&error))?;
            self.jobs.store(jobs, Ordering::Relaxed);
            if self.failing().is_some() {
                // A Redis that is out of memory still deletes, but refuses this command as it refuses a change.
                let trial = connection.pset_ex::<_, _, ()>(TRIAL, 1, TRIED).await;
                trial.map_err(|error| self.failed(&error))?;
                self.set_failing(None);
            }
            Ok(())
        })
    }

    fn changed(&self) -> BoxFuture<'_, Option<JobId>> {
        Box::pin(async move {
            let mut news = self.news.lock().await;
            loop {
                if let Some(stream) = news.as_mut() {
                    match stream.next().await {
                        Some(message) => {
                            let id = message.get_payload::<String>().ok().and_then(|id| JobId::parse(&id));
                            if id.is_some() {
                                return id;
                            }
                        }
                        None => *news = None,
                    }
                    continue;
                }
                match self.listen().await {
                    Ok(stream) => {
                        *news = Some(stream);
                        // Messages sent while the connection was lost were missed.
                        return None;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot subscribe to the changes of other buffers");
                        sleep(RESUBSCRIBE_PAUSE).await;
                    }
                }
            }
        })
    }

    fn failing(&self) -> Option<String> {
        lock(&self.failing).clone()
    }

    fn usage(&self) -> Usage {
        Usage { jobs: self.jobs.load(Ordering::Relaxed), ..Usage::default() }
    }
}
