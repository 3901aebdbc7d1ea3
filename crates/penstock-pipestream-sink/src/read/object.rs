use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use object_store::{ObjectStoreExt as _, PutMode, PutOptions, PutPayload};
use penstock_io::runtime::block_on;
use penstock_io::storage::{ObjectPrefix, plain};
use penstock_io::{DriverError as _, Problem};

use crate::format::LOG;
use crate::format::names::{is_session, payload_name};
use crate::objects::ObjectSink;
use crate::read::store::{JournalLog, ListState, PayloadRange, Store, check_session};
use crate::{Error, Result};

/// Maximum number of concurrent requests.
const CONCURRENT: usize = 32;
/// Prefix of the journal's objects.
const JOURNAL: &str = ".journal";

/// A sink in an object store, read in place.
#[derive(Debug, Clone)]
pub struct ObjectReader {
    place: ObjectPrefix,
}

impl ObjectReader {
    /// Open the sink below a prefix; return an error if the store does not answer.
    pub fn open(place: ObjectPrefix) -> Result<Self> {
        let reader = Self { place };
        reader.ask("", async { reader.place.store().list_with_delimiter(Some(&reader.place.path(""))).await })?;
        Ok(reader)
    }

    fn ask<T>(&self, name: &str, request: impl Future<Output = object_store::Result<T>>) -> Result<T> {
        block_on(request)?.map_err(|error| failed(&self.place, name, &error))
    }

    /// Run a request; return `None` if the object does not exist.
    fn look<T>(&self, name: &str, request: impl Future<Output = object_store::Result<T>>) -> Result<Option<T>> {
        match block_on(request)? {
            Ok(found) => Ok(Some(found)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(&self.place, name, &error)),
        }
    }
}

fn failed(place: &ObjectPrefix, name: &str, error: &object_store::Error) -> Error {
    Error::io(format!("cannot read {}/{name}", place.uri()), plain(error))
}

fn list_of(session: &str) -> Result<String> {
    check_session(session)?;
    Ok(format!("{session}/{LOG}"))
}

fn payload(file: &str) -> Result<&str> {
    payload_name(file)
        .map(|_| file)
        .ok_or_else(|| Error::content(format!("{file:?}"), Problem::Not("the name of a payload")))
}

impl Store for ObjectReader {
    fn sessions(&self) -> Result<Vec<String>> {
        let found = self.ask("", self.place.store().list_with_delimiter(Some(&self.place.path(""))))?;
        let names = found.common_prefixes.iter().filter_map(|prefix| prefix.as_ref().rsplit('/').next());
        Ok(names.filter(|name| is_session(name)).map(str::to_owned).collect())
    }

    fn changed(&self) -> Result<Option<SystemTime>> {
        // No object store reports when the objects below a prefix changed.
        Ok(None)
    }

    fn list(&self, session: &str) -> Result<Option<ListState>> {
        let name = list_of(session)?;
        let found = self.look(&name, self.place.store().head(&self.place.path(&name)))?;
        Ok(found.map(|found| ListState { length: found.size, modified: found.last_modified.into() }))
    }

    fn make_durable(&self, _session: &str) -> Result<()> {
        // Every visible object is durable.
        Ok(())
    }

    fn read_list(&self, session: &str, range: Range<u64>) -> Result<Vec<u8>> {
        let name = list_of(session)?;
        let path = self.place.path(&name);
        self.ask(&name, async {
            let length = self.place.store().head(&path).await?.size;
            let range = range.start..range.end.min(length);
            if range.is_empty() {
                return Ok(Vec::new());
            }
            Ok(self.place.store().get_range(&path, range).await?.into())
        })
    }

    fn has(&self, file: &str) -> Result<bool> {
        let path = self.place.path(payload(file)?);
        Ok(self.look(file, self.place.store().head(&path))?.is_some())
    }

    fn read_payloads(&self, wanted: &[PayloadRange], into: &mut Vec<u8>) -> Result<()> {
        let total: u64 = wanted.iter().map(|part| part.length).sum();
        let failed = || Error::memory(total);
        into.try_reserve_exact(usize::try_from(total).unwrap_or(usize::MAX)).map_err(|_| failed())?;
        let mut requests = Vec::with_capacity(wanted.len());
        for part in wanted.iter().filter(|part| part.length > 0) {
            let path = self.place.path(payload(&part.file)?);
            requests.push(async move {
                let range = part.offset..part.offset.saturating_add(part.length);
                let bytes = self.place.store().get_range(&path, range).await;
                bytes.map_err(|error| self::failed(&self.place, &part.file, &error)).map(|bytes| (part, bytes))
            });
        }
        block_on(async {
            let mut answers = stream::iter(requests).buffered(CONCURRENT);
            while let Some((part, bytes)) = answers.try_next().await? {
                if bytes.len() as u64 != part.length {
                    let message = "it is shorter than its session's list says".to_owned();
                    return Err(Error::io(format!("cannot read {}/{}", self.place.uri(), part.file), message));
                }
                into.extend_from_slice(&bytes);
            }
            Ok(())
        })?
    }

    fn committed(&self, transaction: &str) -> Result<Vec<Vec<String>>> {
        self.ask(".transactions", ObjectSink::committed(&self.place, transaction))
    }

    fn prepared(&self, transaction: &str) -> Result<Vec<String>> {
        self.ask(".transactions", ObjectSink::prepared(&self.place, transaction))
    }

    fn journal(&self) -> Result<Box<dyn JournalLog>> {
        Ok(Box::new(ObjectLog { place: self.place.clone(), next: 0 }))
    }

    fn remove(&self, session: &str) -> Result<()> {
        check_session(session)?;
        let store = Arc::clone(self.place.store());
        self.ask(session, async {
            for prefix in [session.to_owned(), format!(".open/{session}")] {
                let found = store.list(Some(&self.place.path(&prefix))).map_ok(|object| object.location).boxed();
                let mut removed = store.delete_stream(found);
                while let Some(result) = removed.next().await {
                    match result {
                        Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Ok(())
        })
    }
}

/// The journal in an object store: each append creates one numbered object, which only one process
/// can create.
#[derive(Debug)]
struct ObjectLog {
    place: ObjectPrefix,
    next: u64,
}

impl ObjectLog {
    fn path(&self, number: u64) -> object_store::path::Path {
        self.place.path(&format!("{JOURNAL}/{number:010}.jsonl"))
    }

    fn ask<T>(&self, request: impl Future<Output = object_store::Result<T>>) -> Result<object_store::Result<T>> {
        Ok(block_on(request)?)
    }

    fn failed(&self, error: &object_store::Error) -> Error {
        let context = format!("cannot keep the order of the sink's sessions in {}/{JOURNAL}", self.place.uri());
        Error::io(context, plain(error))
    }
}

impl JournalLog for ObjectLog {
    fn read_new(&mut self) -> Result<Vec<u8>> {
        let store = Arc::clone(self.place.store());
        let mut all = Vec::new();
        loop {
            let path = self.path(self.next);
            match self.ask(async { store.get(&path).await?.bytes().await })? {
                Ok(lines) => all.extend_from_slice(&lines),
                Err(object_store::Error::NotFound { .. }) => return Ok(all),
                Err(error) => return Err(self.failed(&error)),
            }
            self.next = self.next.saturating_add(1);
        }
    }

    fn append(&mut self, lines: &[u8]) -> Result<bool> {
        let store = Arc::clone(self.place.store());
        let path = self.path(self.next);
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.ask(store.put_opts(&path, PutPayload::from(lines.to_vec()), options))? {
            Ok(_) => {
                self.next = self.next.saturating_add(1);
                Ok(true)
            }
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Ok(false),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn release(&mut self) {
        // Reading does not block other processes.
    }
}
