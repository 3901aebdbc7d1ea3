//! The body of the fuzz target for documents.

use std::io::{self, Cursor, Read};
use std::time::{Duration, Instant};

use penstock_documents::{Dehydrator, Event, Limits, Part, Payload, PdfLimits, PdfPages, Source, Spool, Workspace};
use sha2::{Digest, Sha256};

/// A workspace with spools in memory and without a PDF reader.
struct Memory;

impl Workspace for Memory {
    fn spool(&mut self) -> io::Result<Box<dyn Spool>> {
        Ok(Box::new(Cursor::new(Vec::new())))
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn pdf(&mut self, _source: &mut dyn Source, _limits: &PdfLimits) -> Result<Box<dyn PdfPages>, String> {
        Err("no reader of PDFs".to_owned())
    }
}

/// Take `data` apart within small limits, and check every promise of the API.
pub fn fuzz_dehydrate(data: &[u8]) {
    let limits = Limits {
        max_children: 200,
        max_inflated: 1 << 20,
        max_total_inflated: 1 << 22,
        max_text: 1 << 16,
        max_markup: 1 << 18,
        part_time: Duration::from_secs(10),
        max_name: 64,
        ..Limits::default()
    };
    let (max_depth, max_total) = (limits.max_depth, limits.max_total_inflated);
    let source = Box::new(Cursor::new(data.to_vec()));
    let mut dehydrator = Dehydrator::new("fuzz.tar.gz", source, Memory, limits);
    let mut open: Vec<u64> = Vec::new();
    let (mut total, mut steps) = (0_u64, 0_u64);
    while let Some(event) = dehydrator.next_event() {
        steps += 1;
        match event {
            Event::Enter(part, payload) => {
                count(&mut open);
                assert_eq!(part.depth as usize, open.len(), "a container lies in those that are open");
                assert!(part.depth < max_depth && part.failure.is_none() && part.keeps_payload == payload.is_some());
                total += check(&part, payload);
                open.push(0);
            }
            Event::Leaf(part, payload) => {
                count(&mut open);
                assert_eq!(part.depth as usize, open.len(), "a leaf lies in the containers that are open");
                assert!(payload.is_some() || part.failure.is_some(), "bytes that are missing have a reason");
                total += check(&part, payload);
            }
            Event::Leave { children } => assert_eq!(open.pop(), Some(children), "children are counted"),
        }
    }
    assert!(open.is_empty() && steps > 0 && dehydrator.next_event().is_none());
    assert!(total <= max_total + data.len() as u64, "the parts have no more bytes than the limit");
}

fn count(open: &mut [u64]) {
    if let Some(children) = open.last_mut() {
        *children += 1;
    }
}

/// Check a part's promises: path, type, reason, digest. Return how many bytes it has.
fn check(part: &Part, payload: Option<Payload>) -> u64 {
    assert_eq!(part.path.len(), part.depth as usize);
    assert!(part.path.iter().all(|name| !name.is_empty() && name.len() <= 64));
    assert!(part.media_type.contains('/') && part.sha256.is_some() == part.bytes.is_some());
    assert!(part.failure.as_ref().is_none_or(|failure| !failure.reason.is_empty()));
    assert!(part.text.as_ref().is_none_or(|text| text.len() <= 1 << 16));
    if let Some(mut payload) = payload {
        let mut bytes = Vec::new();
        let read = payload.read_to_end(&mut bytes).unwrap_or_default();
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        assert_eq!((part.sha256, part.bytes), (Some(digest), Some(read as u64)));
    }
    // The document itself does not count among the inflated bytes.
    part.bytes.filter(|_| part.depth > 0).unwrap_or_default()
}
