//! A workspace for tests, samples of each container, and a walk that records what it finds.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use penstock_documents::{
    Dehydrator, Event, Failure, FailureKind, Limits, Part, Payload, PdfLimits, PdfPages, Source, Spool, Workspace,
};
use sha2::{Digest, Sha256};

/// Spools that stay in memory while small, a clock that runs only if `tick` is set, and a reader of "PDFs" with one
/// page per line.
pub(crate) struct TestWorkspace {
    start: Instant,
    /// The milliseconds by which each read advances the clock.
    pub(crate) tick: u64,
    elapsed: AtomicU64,
    pub(crate) spools: Arc<AtomicU64>,
}

impl TestWorkspace {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), tick: 0, elapsed: AtomicU64::new(0), spools: Arc::default() }
    }
}

impl Workspace for TestWorkspace {
    fn spool(&mut self) -> io::Result<Box<dyn Spool>> {
        self.spools.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(tempfile::SpooledTempFile::new(4096)))
    }

    fn now(&self) -> Instant {
        self.start + Duration::from_millis(self.elapsed.fetch_add(self.tick, Ordering::Relaxed))
    }

    fn pdf(&mut self, source: &mut dyn Source, limits: &PdfLimits) -> Result<Box<dyn PdfPages>, String> {
        let mut text = String::new();
        Read::take(source, limits.max_text).read_to_string(&mut text).map_err(|error| error.to_string())?;
        if text.contains("ENCRYPTED") {
            return Err("the document is encrypted".to_owned());
        }
        let mut pages: Vec<String> = text.lines().skip(1).map(str::to_owned).collect();
        pages.reverse();
        Ok(Box::new(Pages { count: pages.len() as u32, pages }))
    }
}

struct Pages {
    count: u32,
    pages: Vec<String>,
}

impl PdfPages for Pages {
    fn page_count(&self) -> u32 {
        self.count
    }

    fn next_page(&mut self) -> Option<Result<String, String>> {
        match self.pages.pop()?.as_str() {
            "CRASH" => Some(Err("the reader crashed on this page".to_owned())),
            "END" => None,
            text => Some(Ok(text.to_owned())),
        }
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("title".to_owned(), "A PDF".to_owned())])
    }
}

/// A recorded step: a part with its bytes, read and checked, or the end of a container.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) part: Part,
    pub(crate) bytes: Option<Vec<u8>>,
    pub(crate) kind: Kind,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Kind {
    Enter,
    Leaf,
    Leave(u64),
}

impl Step {
    pub(crate) fn failure(&self) -> (FailureKind, &str) {
        let Failure { kind, reason } = self.part.failure.as_ref().unwrap();
        (*kind, reason)
    }

    pub(crate) fn text(&self) -> &str {
        self.part.text.as_deref().unwrap()
    }

    pub(crate) fn meta(&self, key: &str) -> &str {
        self.part.metadata.get(key).map_or("", String::as_str)
    }

    /// Return the part on one line: its depth, its name, its type or the kind of its failure.
    pub(crate) fn line(&self) -> String {
        let name = self.part.path.last().map_or("", String::as_str);
        let what = match (&self.part.failure, self.kind) {
            (_, Kind::Leave(children)) => return format!("leave {children}"),
            (Some(failure), _) => failure.kind.to_string(),
            (None, Kind::Enter) => format!("+{}", self.part.media_type),
            (None, Kind::Leaf) => self.part.media_type.clone(),
        };
        format!("{}:{name}:{what}", self.part.depth)
    }
}

pub(crate) fn walk_within(name: &str, bytes: &[u8], workspace: TestWorkspace, limits: Limits) -> Vec<Step> {
    let mut dehydrator = Dehydrator::new(name, Box::new(Cursor::new(bytes.to_vec())), workspace, limits);
    let mut steps = Vec::new();
    while let Some(event) = dehydrator.next_event() {
        steps.push(match event {
            Event::Enter(part, payload) => Step { bytes: read(&part, payload), part, kind: Kind::Enter },
            Event::Leaf(part, payload) => Step { bytes: read(&part, payload), part, kind: Kind::Leaf },
            Event::Leave { children } => Step { part: Part::default(), bytes: None, kind: Kind::Leave(children) },
        });
    }
    assert!(dehydrator.next_event().is_none());
    steps
}

fn read(part: &Part, payload: Option<Payload>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    payload?.read_to_end(&mut bytes).unwrap();
    assert_eq!(part.bytes, Some(bytes.len() as u64));
    assert_eq!(part.sha256, Some(Sha256::digest(&bytes).into()));
    Some(bytes)
}

pub(crate) fn walk(name: &str, bytes: &[u8]) -> Vec<Step> {
    walk_within(name, bytes, TestWorkspace::new(), Limits::default())
}

/// Return all steps as lines, without the `leave`s.
pub(crate) fn lines(steps: &[Step]) -> Vec<String> {
    steps.iter().filter(|step| !matches!(step.kind, Kind::Leave(_))).map(Step::line).collect()
}

pub(crate) fn find<'s>(steps: &'s [Step], name: &str) -> &'s Step {
    let found = steps.iter().find(|step| step.part.path.last().is_some_and(|own| own == name));
    found.unwrap_or_else(|| panic!("no part {name:?} in {:?}", lines(steps)))
}

/// One member of a zip that is written field by field, so that a test can make any field wrong.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) name: Vec<u8>,
    pub(crate) method: u16,
    pub(crate) flags: u16,
    pub(crate) data: Vec<u8>,
    pub(crate) crc: u32,
    pub(crate) size: u64,
    pub(crate) attributes: u32,
}

impl Member {
    pub(crate) fn stored(name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Self {
        Self::packed(name, 0, data.as_ref().to_vec(), data.as_ref())
    }

    pub(crate) fn deflated(name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Self {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(data.as_ref()).unwrap();
        Self::packed(name, 8, encoder.finish().unwrap(), data.as_ref())
    }

    pub(crate) fn packed(name: impl AsRef<[u8]>, method: u16, data: Vec<u8>, plain: &[u8]) -> Self {
        let mut crc = flate2::Crc::new();
        crc.update(plain);
        let (crc, size) = (crc.sum(), plain.len() as u64);
        Self { name: name.as_ref().to_vec(), method, flags: 0, data, crc, size, attributes: 0 }
    }

    fn fields(&self, out: &mut Vec<u8>) {
        out.extend(20_u16.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend(self.method.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.crc.to_le_bytes());
        out.extend((self.data.len() as u32).to_le_bytes());
        out.extend((self.size as u32).to_le_bytes());
        out.extend((self.name.len() as u16).to_le_bytes());
        out.extend(0_u16.to_le_bytes());
    }
}

/// Return a zip of `members`; `same` are additional entries in the directory, each pointing at the first member.
pub(crate) fn zip_with(members: &[Member], same: &[Member]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for member in members.iter().chain(same) {
        let again = same.iter().any(|other| std::ptr::eq(other, member));
        let offset = if again { 0 } else { out.len() as u32 };
        if !again {
            out.extend(b"PK\x03\x04");
            member.fields(&mut out);
            out.extend(&member.name);
            out.extend(&member.data);
        }
        directory.extend(b"PK\x01\x02");
        directory.extend(0x0314_u16.to_le_bytes());
        member.fields(&mut directory);
        directory.extend([0; 6]);
        directory.extend(member.attributes.to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(&member.name);
    }
    let (count, start) = ((members.len() + same.len()) as u16, out.len() as u32);
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend(count.to_le_bytes());
    out.extend(count.to_le_bytes());
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0; 2]);
    out
}

pub(crate) fn zip(members: &[Member]) -> Vec<u8> {
    zip_with(members, &[])
}

pub(crate) fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, data) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append_data(&mut header, name, *data).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Return a tar header of any kind, with its checksum, followed by `data`.
pub(crate) fn tar_entry(kind: u8, name: &[u8], link: &[u8], data: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link);
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_size(data.len() as u64);
    header.set_cksum();
    let mut out = header.as_bytes().to_vec();
    out.extend(data);
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

pub(crate) fn gzip(name: Option<&str>, data: &[u8]) -> Vec<u8> {
    let mut builder = flate2::GzBuilder::new();
    if let Some(name) = name {
        builder = builder.filename(name);
    }
    let mut encoder = builder.write(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn bzip2(data: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn xz(data: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(data: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// Return incompressible bytes, the same ones each time.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}
