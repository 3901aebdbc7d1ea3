//! The children of a container, and the trait for walking containers.

use std::collections::BTreeMap;

use crate::context::{Context, Fetched};
use crate::failure::Failure;

/// A container that returns its children one after the other. It keeps its state between calls; nothing recurses,
/// because the dehydrator keeps the walkers on a stack.
pub(crate) trait Walker: Send {
    /// Return the next child, or `None` after the last one. A failed child does not by itself end the walk.
    fn next_child(&mut self, context: &mut Context<'_>) -> Option<Child>;

    /// Return the number of children that the container declares, if it declares one.
    fn declared(&self) -> Option<u64> {
        None
    }

    /// Return whether a child can be skipped at little cost without affecting the others, as far as the children so far
    /// show.
    fn divisible(&self) -> bool {
        false
    }
}

/// One child of a container.
pub(crate) struct Child {
    /// The child's name; a child without a name is named by its position.
    pub(crate) name: Option<String>,
    pub(crate) content: Content,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) hint: Hint,
}

/// The content of a child, as far as it could be read.
pub(crate) enum Content {
    /// The complete content; its type is determined from its bytes.
    Whole(Fetched),
    /// The complete content, with a known type: links, special files, pages.
    Typed(Fetched, &'static str, Option<String>),
    /// The bytes that the container has, and what is wrong with them.
    Damaged(Fetched, Failure),
    /// No content.
    Failed(Failure),
}

/// What a container declares about a child's type. The content takes precedence; see [`crate::sniff`].
#[derive(Default, Clone)]
pub(crate) struct Hint {
    /// The MIME type that a mail or a data: URI declares, in lower case.
    pub(crate) media_type: Option<String>,
    /// The declared charset.
    pub(crate) charset: Option<String>,
    /// Whether the container holds only mails (mbox), or declares this child to be one.
    pub(crate) mail: bool,
}

impl Child {
    pub(crate) fn new(name: Option<String>, content: Content) -> Self {
        Self { name, content, metadata: BTreeMap::new(), hint: Hint::default() }
    }

    /// Make a child that could not be read.
    pub(crate) fn failed(name: Option<String>, failure: Failure) -> Self {
        Self::new(name, Content::Failed(failure))
    }

    /// Make a child that was fetched, or failed.
    pub(crate) fn fetched(name: Option<String>, fetched: Result<Fetched, Failure>) -> Self {
        Self::new(name, fetched.map_or_else(Content::Failed, Content::Whole))
    }

    /// Make a child of known type that was fetched, or failed.
    pub(crate) fn typed(name: Option<String>, media_type: &'static str, fetched: Result<Fetched, Failure>) -> Self {
        let content = match fetched {
            Ok(fetched) => Content::Typed(fetched, media_type, None),
            Err(failure) => Content::Failed(failure),
        };
        Self::new(name, content)
    }
}
