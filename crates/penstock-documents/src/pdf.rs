//! PDF: one child for each page, whose bytes are the page's text. The caller supplies the reader, which runs in a
//! separate process, because a broken file can crash or hang it.

use crate::child::{Child, Content, Walker};
use crate::context::Context;
use crate::failure::Failure;
use crate::workspace::PdfPages;

/// The number of bytes that are searched for the mark of a PDF, because other bytes may precede it.
const SEARCH_LIMIT: usize = 1024;

/// Return whether `head` is the beginning of a PDF. The bytes before the mark must not be text, because a text that
/// mentions the mark is not a PDF.
pub(crate) fn is_pdf(head: &[u8]) -> bool {
    let mark = b"%PDF-";
    let start = head.get(..head.len().min(SEARCH_LIMIT)).unwrap_or_default();
    let found = start.windows(mark.len()).position(|window| window == mark);
    found.and_then(|at| start.get(..at)).is_some_and(|before| {
        let before = before.strip_prefix(b"\xef\xbb\xbf").unwrap_or(before).trim_ascii();
        before.is_empty() || before.iter().any(|&byte| byte < 0x20 && !byte.is_ascii_whitespace())
    })
}

/// Walks the pages of a PDF.
pub(crate) struct PdfWalker {
    pages: Box<dyn PdfPages>,
    page: u64,
    done: bool,
}

impl PdfWalker {
    pub(crate) fn new(pages: Box<dyn PdfPages>) -> Self {
        Self { pages, page: 0, done: false }
    }
}

impl Walker for PdfWalker {
    fn next_child(&mut self, context: &mut Context<'_>) -> Option<Child> {
        if self.done {
            return None;
        }
        let promised = u64::from(self.pages.page_count());
        let name = Some(format!("page {}", self.page + 1));
        let content = match self.pages.next_page() {
            Some(Ok(text)) => match context.keep(text.as_bytes()) {
                Ok(fetched) => Content::Typed(fetched, "text/plain", Some(text)),
                Err(failure) => Content::Failed(failure),
            },
            Some(Err(reason)) => Content::Failed(Failure::broken(reason)),
            None => {
                self.done = true;
                let reason = format!("the reader ended after {} of {promised} pages", self.page);
                return (self.page < promised).then(|| Child::failed(name, Failure::broken(reason)));
            }
        };
        self.page += 1;
        Some(Child::new(name, content))
    }

    fn declared(&self) -> Option<u64> {
        Some(u64::from(self.pages.page_count()))
    }
}
