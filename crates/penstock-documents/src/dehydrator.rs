use crate::limits::Limits;
use crate::part::{Event, Part};
use crate::workspace::{Source, Workspace};

/// Takes one document apart, a step at a time.
pub struct Dehydrator<W: Workspace> {
    root: Option<Box<dyn Source>>,
    name: String,
    workspace: W,
    limits: Limits,
}

impl<W: Workspace> Dehydrator<W> {
    /// A dehydrator over `source`; `name` is the document's own name (without folders).
    pub fn new(name: &str, source: Box<dyn Source>, workspace: W, limits: Limits) -> Self {
        Self { root: Some(source), name: name.to_owned(), workspace, limits }
    }

    /// The next step; the first one is the document itself, `None` comes after the last one.
    pub fn next_event(&mut self) -> Option<Event> {
        let _ = (&self.name, self.workspace.now(), &self.limits);
        let source = self.root.take()?;
        Some(Event::Leaf(Part { media_type: "application/octet-stream".into(), ..Part::default() }, Some(source)))
    }
}
