use crate::child::{Child, Content, Hint, Walker};
use crate::context::{Context, Fetched, digest};
use crate::failure::Failure;
use crate::limits::Limits;
use crate::name;
use crate::open::{self, OpenPart, PartHints};
use crate::part::{Event, Part};
use crate::selection::Selection;
use crate::workspace::{Source, Workspace};

/// Takes one document apart step by step: first the document itself, then its parts, depth first in the order of each
/// container.
///
/// Damage results in a failed part, never in an error of the whole document, and the iteration always ends. Each
/// [`Event::Enter`] has its [`Event::Leave`]. Open containers are kept on a stack, so nesting needs no recursion;
/// the memory of a step is bounded by [`Limits`].
///
/// ```text
/// Enter a.zip []
///   Leaf ["x.txt"]
///   Enter ["b.eml"]
///     Leaf ["b.eml", "part 1"]
///   Leave 1
/// Leave 2
/// ```
pub struct Dehydrator<W: Workspace> {
    /// The document, until the first step.
    root: Option<(String, Box<dyn Source>)>,
    workspace: W,
    limits: Limits,
    total: u64,
    path: Vec<String>,
    stack: Vec<Frame>,
    /// The document's digest and length if the caller supplied them; the document is then not read to compute them.
    known: Option<([u8; 32], u64)>,
    selection: Option<Selection>,
}

/// An open container.
struct Frame {
    walker: Box<dyn Walker>,
    sha256: [u8; 32],
    children: u64,
    max_children: u64,
    /// Whether no more children are requested: the limit is reached, or none of the rest is selected.
    full: bool,
}

impl<W: Workspace> Dehydrator<W> {
    /// Make a dehydrator over `source`; `name` is the document's own name (without folders).
    pub fn new(name: &str, source: Box<dyn Source>, workspace: W, limits: Limits) -> Self {
        let root = Some((name.to_owned(), source));
        let (path, stack) = (Vec::new(), Vec::new());
        Self { root, workspace, limits, total: 0, path, stack, known: None, selection: None }
    }

    /// Use the document's known SHA-256 and length, so that it is not read to compute them. They must match the source.
    #[must_use]
    pub fn with_digest(mut self, sha256: [u8; 32], bytes: u64) -> Self {
        self.known = Some((sha256, bytes));
        self
    }

    /// Return only some of the children of one container; everything else is unchanged. The containers above it must
    /// have one child each, because the selection applies to every container at its depth.
    #[must_use]
    pub fn with_selection(mut self, selection: Selection) -> Self {
        self.selection = Some(selection);
        self
    }

    /// Return whether children of the innermost open container can be skipped at little cost without affecting the
    /// others. Each skipped child can change the answer to `false`.
    pub fn divisible(&self) -> bool {
        self.stack.last().is_some_and(|frame| frame.walker.divisible())
    }

    /// Skip the next child of the innermost open container without extracting it, and return its approximate size in
    /// bytes. `None` if there are no more children, so that the next step leaves the container.
    pub fn skip_child(&mut self) -> Option<u64> {
        let (mut skipped, mut uncounted) = (0, 0);
        let frame = self.stack.last_mut().filter(|frame| !frame.full)?;
        let (workspace, limits, total) = (&mut self.workspace, &self.limits, &mut uncounted);
        let divided = self.selection.is_some();
        frame.walker.next_child(&mut Context { workspace, limits, total, skipped: Some(&mut skipped), divided })?;
        frame.children += 1;
        frame.full = frame.children >= frame.max_children;
        Some(skipped)
    }

    /// Return the total bytes of the document's parts so far, including those that failed.
    pub const fn inflated(&self) -> u64 {
        self.total
    }

    /// Skip children until the next selected one.
    fn skip_unselected(&mut self) {
        let at = self.stack.len().checked_sub(1);
        while let Some(selection) = self.selection.as_mut().filter(|selection| Some(selection.depth) == at) {
            let Some(frame) = self.stack.last_mut() else { return };
            match selection.next_from(frame.children + 1) {
                Some(wanted) if wanted > frame.children + 1 => {
                    if self.skip_child().is_none() {
                        return;
                    }
                }
                Some(_) => return,
                None => {
                    frame.full = true;
                    return;
                }
            }
        }
    }

    /// Return the next step. The first is the document itself; after the last, every call returns `None`.
    pub fn next_event(&mut self) -> Option<Event> {
        if let Some((name, source)) = self.root.take() {
            return Some(self.begin(&name, source));
        }
        self.skip_unselected();
        let (workspace, limits, total) = (&mut self.workspace, &self.limits, &mut self.total);
        let mut context = Context { workspace, limits, total, skipped: None, divided: false };
        let frame = self.stack.last_mut()?;
        let child = if frame.full { None } else { frame.walker.next_child(&mut context) };
        let Some(child) = child else {
            let children = frame.children;
            self.stack.pop();
            self.path.pop();
            return Some(Event::Leave { children });
        };
        frame.children += 1;
        let position = frame.children;
        if position >= frame.max_children {
            // This is the last child allowed. If more follow, one failed part takes the place of this child and the
            // rest, because a receiver counts the failed part as a child too.
            frame.full = true;
            if frame.walker.next_child(&mut context).is_some() {
                let failure = too_many(frame.max_children, frame.walker.declared());
                return Some(self.place(position, Child::failed(None, failure)));
            }
        }
        Some(self.place(position, child))
    }

    fn begin(&mut self, name: &str, source: Box<dyn Source>) -> Event {
        let fetched = match self.known {
            Some((sha256, bytes)) => Ok(Fetched { source, sha256, bytes }),
            None => digest(source),
        };
        match fetched {
            Ok(fetched) => self.examine(Part::default(), name, fetched, &Hint::default()),
            Err(failure) => {
                let media_type = "application/octet-stream".to_owned();
                Event::Leaf(Part { media_type, failure: Some(failure), ..Part::default() }, None)
            }
        }
    }

    /// Turn a child into a step: name it and examine it.
    fn place(&mut self, position: u64, child: Child) -> Event {
        let name = child.name.unwrap_or_else(|| name::part(position));
        let mut path = self.path.clone();
        path.push(name.clone());
        let depth = u32::try_from(path.len()).unwrap_or(u32::MAX);
        let declared = child.hint.media_type.is_some() || child.hint.charset.is_some();
        let mut part = Part { path, depth, metadata: child.metadata, declared, ..Part::default() };
        match child.content {
            Content::Whole(fetched) => self.examine(part, &name, fetched, &child.hint),
            Content::Typed(fetched, media_type, mut text) => {
                let limit = usize::try_from(self.limits.max_text).unwrap_or(usize::MAX);
                if text.as_mut().is_some_and(|text| name::cut(text, limit)) {
                    part.metadata.insert("text.cut".to_owned(), "true".to_owned());
                }
                (part.media_type, part.text) = (media_type.to_owned(), text);
                (part.sha256, part.bytes) = (Some(fetched.sha256), Some(fetched.bytes));
                Event::Leaf(part, Some(fetched.source))
            }
            Content::Damaged(fetched, failure) => {
                (part.sha256, part.bytes) = (Some(fetched.sha256), Some(fetched.bytes));
                let opened = open::damaged(fetched, &child.hint, failure);
                leaf(part, opened)
            }
            Content::Failed(failure) => {
                part.media_type = child.hint.media_type.unwrap_or_else(|| "application/octet-stream".to_owned());
                part.failure = Some(failure);
                Event::Leaf(part, None)
            }
        }
    }

    /// Determine the type of a part whose bytes were read, and enter it if it is a container.
    fn examine(&mut self, mut part: Part, name: &str, fetched: Fetched, hint: &Hint) -> Event {
        let (sha256, bytes) = (fetched.sha256, fetched.bytes);
        (part.sha256, part.bytes) = (Some(sha256), Some(bytes));
        let is_ancestor = self.stack.iter().any(|frame| frame.sha256 == sha256);
        let refusal = open::refusal(part.depth, self.limits.max_depth, is_ancestor);
        let (workspace, limits, total) = (&mut self.workspace, &self.limits, &mut self.total);
        let mut context = Context { workspace, limits, total, skipped: None, divided: false };
        let mut opened = open::open(fetched, PartHints { name, hint, bytes, refusal }, &mut context);
        let Some(walker) = opened.walker.take() else { return leaf(part, opened) };
        let max_children = self.limits.children_of(bytes);
        self.stack.push(Frame { walker, sha256, children: 0, max_children, full: false });
        self.path.clone_from(&part.path);
        part.keeps_payload = opened.payload.is_some();
        let payload = opened.payload.take();
        fill(&mut part, opened);
        Event::Enter(part, payload)
    }
}

fn leaf(mut part: Part, mut opened: OpenPart) -> Event {
    let payload = opened.payload.take();
    if payload.is_none() && opened.failure.is_none() {
        opened.failure = Some(Failure::broken("the part's bytes cannot be read again"));
    }
    fill(&mut part, opened);
    Event::Leaf(part, payload)
}

fn fill(part: &mut Part, opened: OpenPart) {
    part.media_type = opened.media_type;
    part.text = opened.text;
    part.failure = opened.failure;
    part.metadata.extend(opened.metadata);
}

fn too_many(limit: u64, declared: Option<u64>) -> Failure {
    let all = declared.map(|all| format!(" of {all}")).unwrap_or_default();
    Failure::limit(format!(
        "has more than {limit} children, the limit for a container of its size; the rest{all} is left out"
    ))
}

#[cfg(test)]
mod tests {
    use std::io::{self, Cursor};
    use std::time::Instant;

    use super::*;
    use crate::failure::FailureKind;
    use crate::limits::PdfLimits;
    use crate::workspace::{PdfPages, Spool};

    /// A workspace whose disk is full.
    struct Full;

    impl Workspace for Full {
        fn spool(&mut self) -> io::Result<Box<dyn Spool>> {
            Err(io::Error::from(io::ErrorKind::StorageFull))
        }

        fn now(&self) -> Instant {
            Instant::now()
        }

        fn pdf(&mut self, _: &mut dyn Source, _: &PdfLimits) -> Result<Box<dyn PdfPages>, String> {
            Err("no reader".to_owned())
        }
    }

    const EMPTY_ZIP: &[u8] = b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

    fn failure(event: Option<Event>) -> FailureKind {
        match event {
            Some(Event::Leaf(part, _)) => part.failure.unwrap().kind,
            other => panic!("not a leaf: {other:?}"),
        }
    }

    #[test]
    fn a_container_that_lies_within_itself_is_not_entered_again() {
        let source = || Box::new(Cursor::new(EMPTY_ZIP));
        let mut dehydrator = Dehydrator::new("x", source(), Full, Limits::default());
        assert!(matches!(dehydrator.next_event(), Some(Event::Enter(..))));
        let again = digest(source()).unwrap();
        let part = Part { path: vec!["x".to_owned()], depth: 1, ..Part::default() };
        let event = dehydrator.examine(part, "x", again, &Hint::default());
        assert_eq!(failure(Some(event)), FailureKind::Cycle);
        assert!(matches!(dehydrator.next_event(), Some(Event::Leave { children: 0 })));
        assert!(dehydrator.next_event().is_none());
    }

    #[test]
    fn a_spool_that_cannot_be_had_fails_the_part_and_not_the_walk() {
        let source = Box::new(Cursor::new(b"From: a@b\nTo: c@d\n\nbody"));
        let mut dehydrator = Dehydrator::new("x", source, Full, Limits::default());
        assert!(matches!(dehydrator.next_event(), Some(Event::Enter(..))));
        assert_eq!(failure(dehydrator.next_event()), FailureKind::Io);
        assert!(matches!(dehydrator.next_event(), Some(Event::Leave { children: 1 })));
    }
}
