//! The division of a document into groups of parts that are sent separately, and the selection of a
//! group's parts.

use std::io;

use penstock_documents::{Dehydrator, Event, Limits, Part, Payload, Selection, Workspace};

use crate::limits::within_receiver;

/// The weight of every child in addition to its bytes: however small it is, it has a row, an entity and a status.
const CHILD: u64 = 4096;

/// Some children of a container in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildSelection {
    /// The document's SHA-256.
    pub sha256: [u8; 32],
    /// The document's length in bytes.
    pub length: u64,
    /// The depth of the container; the containers above it have one child each.
    pub depth: u32,
    /// The first and last child of each run of children, counted from 1, in ascending order.
    pub places: Vec<(u64, u64)>,
}

impl ChildSelection {
    /// Return a dehydrator that produces only these children.
    pub(crate) fn select<W: Workspace>(&self, dehydrator: Dehydrator<W>) -> Dehydrator<W> {
        let places = self.places.iter().map(|&(first, last)| first..=last).collect();
        let selection = Selection { depth: usize::try_from(self.depth).unwrap_or(usize::MAX), places };
        dehydrator.with_digest(self.sha256, self.length).with_selection(selection)
    }

    /// Return the places of the children, one by one.
    pub(crate) fn each(&self) -> impl Iterator<Item = u64> + Send + use<> {
        self.places.clone().into_iter().flat_map(|(first, last)| first..=last)
    }

    /// Return the range from the first child to the last one, as a readable text for a header.
    pub(crate) fn range(&self) -> String {
        let first = self.places.first().map_or(0, |&(first, _)| first);
        let last = self.places.last().map_or(0, |&(_, last)| last);
        format!("{first}-{last}")
    }
}

/// A container that is announced in a separate session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerPart {
    /// The path to it; empty for the document itself.
    pub path: Vec<String>,
    /// Its MIME type.
    pub media_type: String,
    /// The SHA-256 of its bytes.
    pub sha256: [u8; 32],
    /// Its size in bytes.
    pub bytes: u64,
}

impl From<ContainerPart> for Part {
    fn from(container: ContainerPart) -> Self {
        let depth = u32::try_from(container.path.len()).unwrap_or(u32::MAX);
        let ContainerPart { path, media_type, sha256, bytes } = container;
        Self { depth, path, media_type, sha256: Some(sha256), bytes: Some(bytes), ..Self::default() }
    }
}

/// The division of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Division {
    /// The document itself, and the nested containers down to the one that is divided.
    pub chain: Vec<ContainerPart>,
    /// The number of children of that container.
    pub children: u64,
    /// The number of inflated bytes in the containers above it.
    pub inflated: u64,
    /// The groups in which its children are sent.
    pub groups: Vec<ChildGroup>,
}

/// A run of children for one sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildGroup {
    /// The place of the first child, counted from 1.
    pub first: u64,
    /// The place of the last child.
    pub last: u64,
    /// The approximate number of bytes of all its children.
    pub bytes: u64,
}

/// Counts of a container's children that were sent elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElsewhereChildren {
    /// The number of these children.
    pub children: u64,
    /// The number of these children that are not COMPLETE.
    pub incomplete: u64,
}

/// Divide the children of a document into groups of about `group_bytes` bytes; `None` if the document is better sent in
/// one piece. A container with another one as its only content is passed through, down to the one worth dividing.
///
/// `open` opens the document again for each pass. A document that cannot be read is sent in one
/// piece, and then its outcome states the reason.
pub fn divide<W: Workspace>(
    name: &str,
    open: impl Fn() -> io::Result<Payload>,
    workspace: impl Fn() -> W,
    limits: Limits,
    group_bytes: u64,
) -> Option<Division> {
    // Use the same limits as when the children are sent.
    let limits = within_receiver(limits);
    let dehydrator = |digest: Option<([u8; 32], u64)>| -> io::Result<Dehydrator<W>> {
        let dehydrator = Dehydrator::new(name, open()?, workspace(), limits.clone());
        Ok(match digest {
            Some((sha256, bytes)) => dehydrator.with_digest(sha256, bytes),
            None => dehydrator,
        })
    };
    division(dehydrator, group_bytes.max(1)).unwrap_or_default()
}

fn division<W: Workspace>(
    open: impl Fn(Option<([u8; 32], u64)>) -> io::Result<Dehydrator<W>>,
    group_bytes: u64,
) -> io::Result<Option<Division>> {
    // The document is hashed in the first pass only.
    let mut digest = None;
    for levels in 1.. {
        let mut dehydrator = open(digest)?;
        let mut chain = Vec::new();
        for _ in 0..levels {
            // A container that has content in addition to its children is not divided.
            let Some(Event::Enter(part, None)) = dehydrator.next_event() else { return Ok(None) };
            let (Some(sha256), Some(bytes)) = (part.sha256, part.bytes) else { return Ok(None) };
            digest = digest.or(Some((sha256, bytes)));
            chain.push(ContainerPart { path: part.path, media_type: part.media_type, sha256, bytes });
        }
        if !dehydrator.divisible() {
            return Ok(None);
        }
        let inflated = dehydrator.inflated();
        let (children, groups) = group_children(&mut dehydrator, group_bytes);
        if !dehydrator.divisible() {
            return Ok(None);
        }
        match children {
            0 => return Ok(None),
            1 => {}
            _ => return Ok((groups.len() > 1).then_some(Division { chain, children, inflated, groups })),
        }
    }
    Ok(None)
}

/// Count the children of the container that was entered last, and put them into groups.
fn group_children<W: Workspace>(dehydrator: &mut Dehydrator<W>, group_bytes: u64) -> (u64, Vec<ChildGroup>) {
    let (mut children, mut groups) = (0_u64, Vec::new());
    let (mut first, mut bytes) = (1, 0_u64);
    while let Some(skipped) = dehydrator.skip_child() {
        children += 1;
        bytes = bytes.saturating_add(skipped).saturating_add(CHILD);
        if bytes >= group_bytes {
            groups.push(ChildGroup { first, last: children, bytes });
            (first, bytes) = (children + 1, 0);
        }
    }
    if first <= children {
        groups.push(ChildGroup { first, last: children, bytes });
    }
    (children, groups)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::testing::{Memory, sha256, zip};

    fn divided(document: &[u8], group_bytes: u64) -> Option<Division> {
        let open = || -> io::Result<Payload> { Ok(Box::new(Cursor::new(document.to_vec()))) };
        divide("a.zip", open, || Memory, Limits::default(), group_bytes)
    }

    fn members(count: usize, length: usize) -> Vec<u8> {
        let bytes = vec![b'x'; length];
        let names: Vec<String> = (0..count).map(|number| format!("{number}.txt")).collect();
        zip(&names.iter().map(|name| (name.as_str(), bytes.as_slice())).collect::<Vec<_>>())
    }

    #[test]
    fn children_are_grouped_by_their_bytes_and_none_is_left_out() {
        let document = members(10, 1000);
        let division = divided(&document, 3 * (1000 + CHILD)).unwrap();
        let container = ContainerPart {
            path: vec![],
            media_type: "application/zip".to_owned(),
            sha256: sha256(&document),
            bytes: document.len() as u64,
        };
        assert_eq!((division.chain, division.children, division.inflated), (vec![container], 10, 0));
        let group = |first, last| ChildGroup { first, last, bytes: (last - first + 1) * (1000 + CHILD) };
        assert_eq!(division.groups, [group(1, 3), group(4, 6), group(7, 9), group(10, 10)]);
    }

    #[test]
    fn a_container_that_holds_nothing_but_another_one_is_passed_through() {
        let inner = members(4, 10);
        let document = zip(&[("inner.zip", &inner)]);
        let division = divided(&document, 2 * CHILD).unwrap();
        let paths: Vec<_> = division.chain.iter().map(|container| container.path.clone()).collect();
        assert_eq!(paths, [vec![], vec!["inner.zip".to_owned()]]);
        assert_eq!((division.chain[0].sha256, division.chain[1].sha256), (sha256(&document), sha256(&inner)));
        assert_eq!((division.children, division.inflated, division.groups.len()), (4, inner.len() as u64, 2));
    }

    #[test]
    fn a_document_that_gains_nothing_by_it_is_sent_as_one() {
        assert_eq!(divided(&members(10, 10), 1 << 20), None, "one group is the document");
        assert_eq!(divided(b"no container", 1), None);
        assert_eq!(divided(&zip(&[]), 1), None);
        assert_eq!(divided(&zip(&[("a", b"no container")]), 1), None);
        let unreadable = || Err(io::ErrorKind::PermissionDenied.into());
        assert_eq!(divide("a.zip", unreadable, || Memory, Limits::default(), 1), None);
    }

    #[test]
    fn a_selection_gives_its_children_and_says_which_they_are() {
        let document = members(6, 10);
        let (sha256, length) = (sha256(&document), document.len() as u64);
        let selection = ChildSelection { sha256, length, depth: 0, places: vec![(2, 3), (6, 6)] };
        assert_eq!((selection.range(), selection.each().collect::<Vec<_>>()), ("2-6".to_owned(), vec![2, 3, 6]));
        let source = Box::new(Cursor::new(document));
        let mut dehydrator = selection.select(Dehydrator::new("a.zip", source, Memory, Limits::default()));
        let mut names = Vec::new();
        while let Some(event) = dehydrator.next_event() {
            if let Event::Leaf(part, _) = event {
                names.extend(part.path);
            }
        }
        assert_eq!(names, ["1.txt", "2.txt", "5.txt"]);
    }
}
