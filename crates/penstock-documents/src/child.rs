//! What a container gives for each of its children, and the trait by which containers are walked.

use std::collections::BTreeMap;

use crate::context::{Context, Fetched};
use crate::failure::Failure;

/// A container that gives its children one after the other. It keeps what it must know between two calls; nothing here
/// recurses, the dehydrator's stack holds the walkers.
pub(crate) trait Walker: Send {
    /// Return the next child, or `None` after the last one. A failed child does not end the walk by itself.
    fn next_child(&mut self, context: &mut Context<'_>) -> Option<Child>;

    /// Return how many children the container says it has, where it says so.
    fn declared(&self) -> Option<u64> {
        None
    }

    /// Return whether a child is passed over at little cost, and the others are the same whether it is or not; as far
    /// as is known by now.
    fn divisible(&self) -> bool {
        false
    }
}

/// One child of a container.
pub(crate) struct Child {
    /// Its name; without one it is called by its place.
    pub(crate) name: Option<String>,
    pub(crate) content: Content,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) hint: Hint,
}

/// What could be had of a child.
pub(crate) enum Content {
    /// All of it; what it is will be told by its bytes.
    Whole(Fetched),
    /// All of it, and its type is known: links, special files, pages.
    Typed(Fetched, &'static str, Option<String>),
    /// Its bytes as far as the container has them, and why that may not be all.
    Damaged(Fetched, Failure),
    /// Nothing.
    Failed(Failure),
}

/// What a container says of a child's type. Content comes first; see [`crate::sniff`].
#[derive(Default, Clone)]
pub(crate) struct Hint {
    /// The MIME type a mail or a data: URI declares, in lower case.
    pub(crate) media_type: Option<String>,
    /// The charset that comes with it.
    pub(crate) charset: Option<String>,
    /// The container holds mails only (mbox), or declares this child to be one.
    pub(crate) mail: bool,
}

impl Child {
    pub(crate) fn new(name: Option<String>, content: Content) -> Self {
        Self { name, content, metadata: BTreeMap::new(), hint: Hint::default() }
    }

    /// Make a child of which nothing could be had.
    pub(crate) fn failed(name: Option<String>, failure: Failure) -> Self {
        Self::new(name, Content::Failed(failure))
    }

    /// Make a child that was fetched, or not.
    pub(crate) fn fetched(name: Option<String>, fetched: Result<Fetched, Failure>) -> Self {
        Self::new(name, fetched.map_or_else(Content::Failed, Content::Whole))
    }

    /// Make a child of known type that was fetched, or not.
    pub(crate) fn typed(name: Option<String>, media_type: &'static str, fetched: Result<Fetched, Failure>) -> Self {
        let content = match fetched {
            Ok(fetched) => Content::Typed(fetched, media_type, None),
            Err(failure) => Content::Failed(failure),
        };
        Self::new(name, content)
    }
}
