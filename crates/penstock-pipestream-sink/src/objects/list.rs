//! A session's list: separate pieces while the session is open, and one whole object at its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use object_store::{Error, ObjectMeta, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, Result, WriteMultipart};
use penstock_io::storage::{ObjectPrefix, plain};

use crate::format::LOG;
use crate::format::names::session_folders;

/// Prefix of the pieces of lists that are not closed yet.
pub(super) const OPEN: &str = ".open";
/// Number of bytes beyond which small pieces are merged into one.
const ROLL: usize = 4 << 20;
/// Size above which a list is uploaded in parts of this size, which every store accepts.
const PART: usize = 8 << 20;
/// Maximum number of concurrent requests at a session's end.
const CONCURRENT: usize = 16;

/// The list of an open session.
#[derive(Debug)]
pub(super) struct List {
    place: ObjectPrefix,
    session: Arc<str>,
    /// The number of the next commit.
    next: u64,
    /// The pieces that are in the store, in order.
    pieces: Vec<Piece>,
    /// Pieces after these whose put failed. They may be in the store all the same, so the next
    /// piece replaces them.
    void: Vec<Piece>,
    /// The number of pieces at the end whose lines are in `recent` as well.
    small: usize,
    /// Lines that are not in a large piece yet.
    recent: Vec<u8>,
    /// The time at which the last piece was put.
    touched: Instant,
}

/// The lines of the commits `first` to `last`. Other pieces of these commits alone do not count:
/// this piece has their lines, or their put failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) first: u64,
    pub(super) last: u64,
}

impl Piece {
    pub(super) fn name(self) -> String {
        format!("{:010}-{:010}.jsonl", self.first, self.last)
    }

    /// Parse the name of a piece; return `None` if no piece has such a name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (first, last) = name.strip_suffix(".jsonl")?.split_once('-')?;
        Some(Self { first: first.parse().ok()?, last: last.parse().ok()? })
    }
}

impl List {
    pub(super) fn new(place: ObjectPrefix, session: Arc<str>) -> Self {
        let (pieces, void, recent, touched) = (Vec::new(), Vec::new(), Vec::new(), Instant::now());
        Self { place, session, next: 0, pieces, void, small: 0, recent, touched }
    }

    /// Return the session's name in the store.
    pub(super) fn session(&self) -> &Arc<str> {
        &self.session
    }

    /// Claim the first unused name of a session's ID by putting the first piece of its list, which
    /// is empty. Other sessions of the ID may exist: ended, prepared, or open at another server.
    /// Return false if all names are used.
    pub(super) async fn claim(&mut self, id: &str) -> Result<bool> {
        for name in session_folders(id) {
            if is_open(&self.place, &name).await? || exists(&self.place, &format!("{name}/{LOG}")).await? {
                continue;
            }
            let path = self.place.path(&format!("{OPEN}/{name}/{}", Piece { first: 0, last: 0 }.name()));
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match self.place.store().put_opts(&path, PutPayload::default(), options).await {
                Ok(_) => {
                    self.session = name.into();
                    self.touched = Instant::now();
                    self.pieces.push(Piece { first: 0, last: 0 });
                    (self.next, self.small) = (1, 1);
                    return Ok(true);
                }
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Return the time since the last piece was put.
    pub(super) fn untouched(&self) -> Duration {
        self.touched.elapsed()
    }

    /// Make lines durable, all or nothing. After an error it is unknown whether they are stored;
    /// [`close`](Self::close) leaves them out of the list, and so does another server after
    /// [`seal`](Self::seal).
    pub(super) async fn append(&mut self, lines: Vec<u8>) -> Result<()> {
        let first = self.void.first().map_or(self.next, |void| void.first);
        let piece = Piece { first, last: self.next };
        // A put that has failed may still be carried out, so its name is not used again.
        self.next = self.next.saturating_add(1);
        if let Err(error) = self.put(piece, lines.clone().into()).await {
            self.void.push(piece);
            return Err(error);
        }
        remove(&self.place, &self.session, std::mem::take(&mut self.void)).await;
        self.touched = Instant::now();
        self.pieces.push(piece);
        self.small += 1;
        self.recent.extend(lines);
        if self.recent.len() > ROLL {
            self.roll().await?;
        }
        Ok(())
    }

    /// Make sure that the pieces in the store are the whole list, because another server will close
    /// it.
    pub(super) async fn seal(&mut self) -> Result<()> {
        if self.void.is_empty() { Ok(()) } else { self.append(Vec::new()).await }
    }

    async fn put(&self, piece: Piece, lines: Bytes) -> Result<()> {
        let path = self.place.path(&format!("{OPEN}/{}/{}", self.session, piece.name()));
        self.place.store().put(&path, PutPayload::from_bytes(lines)).await.map(drop)
    }

    /// Merge the small pieces into one, so that a long session does not end with a hundred thousand
    /// pieces.
    async fn roll(&mut self) -> Result<()> {
        let small = self.pieces.split_off(self.pieces.len().saturating_sub(self.small));
        self.small = 0;
        let lines = std::mem::take(&mut self.recent);
        let (Some(first), Some(last)) = (small.first(), small.last()) else { return Ok(()) };
        let large = Piece { first: first.first, last: last.last };
        match self.put(large, lines.into()).await {
            Ok(()) => {
                self.pieces.push(large);
                remove(&self.place, &self.session, small).await;
            }
            // No lines are lost: the small pieces remain.
            Err(error) => {
                tracing::warn!(session = %self.session, error = plain(&error), "cannot merge pieces of the list: they remain");
                self.pieces.extend(small);
            }
        }
        Ok(())
    }

    /// Put the whole list, then remove its pieces.
    pub(super) async fn close(mut self, last_line: Vec<u8>) -> Result<()> {
        whole(&self.place, &self.session, &self.pieces, last_line).await?;
        self.pieces.append(&mut self.void);
        remove(&self.place, &self.session, self.pieces).await;
        Ok(())
    }
}

/// Put a session's whole list, assembled from pieces and the last line.
pub(super) async fn whole(place: &ObjectPrefix, session: &str, pieces: &[Piece], last_line: Vec<u8>) -> Result<()> {
    let read = pieces
        .iter()
        .map(|piece| place.path(&format!("{OPEN}/{session}/{}", piece.name())))
        .map(|path| async move { place.store().get(&path).await?.bytes().await });
    let last_line = Bytes::from(last_line);
    let mut lines = stream::iter(read).buffered(CONCURRENT).chain(stream::iter([Ok(last_line)])).boxed();
    let path = place.path(&format!("{session}/{LOG}"));
    let mut all = Vec::new();
    while let Some(piece) = lines.try_next().await? {
        all.extend_from_slice(&piece);
        if all.len() > PART {
            let mut upload = WriteMultipart::new_with_chunk_size(place.store().put_multipart(&path).await?, PART);
            upload.write(&all);
            while let Some(piece) = lines.try_next().await? {
                upload.wait_for_capacity(2).await?;
                upload.write(&piece);
            }
            return upload.finish().await.map(drop);
        }
    }
    place.store().put(&path, PutPayload::from(all)).await.map(drop)
}

/// Remove pieces that are not needed any more; a failure only costs space.
pub(super) async fn remove(place: &ObjectPrefix, session: &str, pieces: Vec<Piece>) {
    let paths: Vec<_> =
        pieces.into_iter().map(|piece| Ok(place.path(&format!("{OPEN}/{session}/{}", piece.name())))).collect();
    let mut removed = place.store().delete_stream(stream::iter(paths).boxed());
    while let Some(result) = removed.next().await {
        match result {
            Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => tracing::warn!(session, error = plain(&error), "cannot remove a piece of a closed list"),
        }
    }
}

/// The extent of a session's list in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// No session of this name is in the store.
    Nothing,
    /// Only pieces: the session may still continue.
    Pieces,
    /// The whole list.
    Whole,
}

/// Read the lines of all sessions that had an ID, in the order in which they began: from a
/// session's list, or from its pieces if it has no whole list yet. Return whether all of them have
/// ended.
pub(super) async fn lines(place: &ObjectPrefix, id: &str, mut each: impl FnMut(&[u8])) -> Result<bool> {
    let mut over = true;
    for name in session_folders(id) {
        match lines_of(place, &name, &mut each).await? {
            Extent::Nothing => break,
            Extent::Pieces => over = false,
            Extent::Whole => {}
        }
    }
    Ok(over)
}

async fn lines_of(place: &ObjectPrefix, session: &str, each: &mut impl FnMut(&[u8])) -> Result<Extent> {
    if whole_lines(place, session, each).await? {
        return Ok(Extent::Whole);
    }
    let found = listed(place, session).await?;
    if found.is_empty() {
        // The session's server may have closed the list between the two requests.
        let whole = whole_lines(place, session, each).await?;
        return Ok(if whole { Extent::Whole } else { Extent::Nothing });
    }
    for piece in current(found) {
        match place.store().get(&place.path(&format!("{OPEN}/{session}/{}", piece.name()))).await {
            Ok(piece) => each_line(piece.into_stream(), each).await?,
            // The server of the open session has merged the piece with others in the meantime.
            Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Extent::Pieces)
}

/// Read the lines of a session's whole list. Return false if it does not exist.
async fn whole_lines(place: &ObjectPrefix, session: &str, each: &mut impl FnMut(&[u8])) -> Result<bool> {
    match place.store().get(&place.path(&format!("{session}/{LOG}"))).await {
        Ok(found) => each_line(found.into_stream(), each).await.map(|()| true),
        Err(object_store::Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn each_line(mut bytes: BoxStream<'static, Result<Bytes>>, each: &mut impl FnMut(&[u8])) -> Result<()> {
    let mut rest: Vec<u8> = Vec::new();
    while let Some(more) = bytes.try_next().await? {
        rest.extend_from_slice(&more);
        let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        rest.drain(..whole).as_slice().split(|byte| *byte == b'\n').for_each(&mut *each);
    }
    Ok(())
}

/// Return whether any session of an ID may still continue.
pub(super) async fn any_is_open(place: &ObjectPrefix, id: &str) -> Result<bool> {
    for name in session_folders(id) {
        if is_open(place, &name).await? {
            return Ok(true);
        }
        if !exists(place, &format!("{name}/{LOG}")).await? {
            break;
        }
    }
    Ok(false)
}

/// Return whether a session has pieces.
async fn is_open(place: &ObjectPrefix, session: &str) -> Result<bool> {
    let mut pieces = place.store().list(Some(&place.path(&format!("{OPEN}/{session}"))));
    Ok(pieces.try_next().await?.is_some())
}

async fn exists(place: &ObjectPrefix, name: &str) -> Result<bool> {
    match place.store().head(&place.path(name)).await {
        Ok(_) => Ok(true),
        Err(Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Return the pieces of a session that are in the store.
async fn listed(place: &ObjectPrefix, session: &str) -> Result<Vec<Piece>> {
    let found: Vec<ObjectMeta> =
        place.store().list(Some(&place.path(&format!("{OPEN}/{session}")))).try_collect().await?;
    Ok(found.iter().filter_map(|object| Piece::parse(object.location.filename()?)).collect())
}

/// Return the pieces that make up a list, in order: without those that a larger piece has replaced.
fn current(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.sort_by_key(|piece| (piece.first, std::cmp::Reverse(piece.last)));
    let mut next = 0;
    pieces.retain(|piece| {
        let wanted = piece.first >= next;
        next = if wanted { piece.last.saturating_add(1) } else { next };
        wanted
    });
    pieces
}

/// Put the whole list of a session that no server has open any more, whichever server received it.
pub(super) async fn close_abandoned(place: &ObjectPrefix, session: &str, last_line: Vec<u8>) -> Result<()> {
    let all = listed(place, session).await?;
    let pieces = current(all.clone());
    let list = place.path(&format!("{session}/{LOG}"));
    match place.store().head(&list).await {
        // Another server was faster.
        Ok(_) => {}
        Err(object_store::Error::NotFound { .. }) if pieces.is_empty() => {
            tracing::warn!(session, "a session to be closed no longer exists");
            return Ok(());
        }
        Err(object_store::Error::NotFound { .. }) => match whole(place, session, &pieces, last_line).await {
            Err(object_store::Error::NotFound { .. }) if place.store().head(&list).await.is_ok() => {}
            put => put?,
        },
        Err(error) => return Err(error),
    }
    remove(place, session, all).await;
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;

    /// Return a sink in memory.
    pub(crate) fn place() -> ObjectPrefix {
        ObjectPrefix::of(Arc::new(InMemory::new()), "sink")
    }

    /// Return the names of all objects in a sink's store.
    pub(crate) async fn names(place: &ObjectPrefix) -> Vec<String> {
        let found: Vec<ObjectMeta> = place.store().list(None).try_collect().await.unwrap();
        let mut names: Vec<_> = found.into_iter().map(|object| object.location.to_string()).collect();
        names.sort();
        names
    }

    pub(crate) fn wait<F: Future>(future: F) -> F::Output {
        penstock_io::runtime::block_on(future).unwrap()
    }

    #[test]
    fn a_list_of_any_length_is_whole_at_the_end() {
        // A short list; one that is rolled; one that is longer than one part of an upload.
        for lines in [10, 1_000, 5_000] {
            let place = place();
            let mut list = List::new(place.clone(), "f00".into());
            let mut expected = Vec::new();
            wait(async {
                for number in 0..lines {
                    let line = format!("{{\"line\":{number},\"{}\":0}}\n", "x".repeat(5_000)).into_bytes();
                    expected.extend_from_slice(&line);
                    list.append(line).await.unwrap();
                }
                assert!(list.pieces.len() < 1_000, "{} pieces", list.pieces.len());
                list.close(b"{\"closed\":0}\n".to_vec()).await.unwrap();
                expected.extend_from_slice(b"{\"closed\":0}\n");
                assert_eq!(names(&place).await, ["sink/f00/entities.jsonl"]);
                let got = place.store().get(&place.path("f00/entities.jsonl")).await.unwrap();
                assert!(got.bytes().await.unwrap() == expected);
            });
        }
    }

    #[test]
    fn a_session_takes_the_first_name_of_its_id_that_no_other_has() {
        let (place, id) = (place(), "11111111111111111111111111111111");
        let claimed = || {
            let mut list = List::new(place.clone(), id.into());
            assert!(wait(list.claim(id)).unwrap());
            list
        };
        let first = claimed();
        let second = claimed();
        assert_eq!([&first, &second].map(|list| list.session().to_string()), [id.to_owned(), format!("{id}.1")]);
        wait(first.close(b"{\"closed\":0}\n".to_vec())).unwrap();
        assert!(wait(any_is_open(&place, id)).unwrap(), "the second is");
        assert_eq!(&**claimed().session(), format!("{id}.2"));
        wait(second.close(b"{\"closed\":0}\n".to_vec())).unwrap();
        let list = format!("sink/{id}.1/entities.jsonl");
        assert!(wait(names(&place)).contains(&list));
        let mut lines = 0;
        assert!(!wait(super::lines(&place, id, |line| lines += usize::from(!line.is_empty()))).unwrap());
        assert_eq!(lines, 2);
    }

    #[test]
    fn an_id_that_was_used_too_often_has_no_name_left() {
        let (place, id) = (place(), "11111111111111111111111111111111");
        wait(async {
            for name in session_folders(id) {
                place.store().put(&place.path(&format!("{name}/{LOG}")), PutPayload::default()).await.unwrap();
            }
            assert!(!List::new(place.clone(), id.into()).claim(id).await.unwrap());
        });
    }
}
