//! Opens a part whose bytes were read: its type, its text, and its walker if it is a container.

use std::collections::BTreeMap;

use encoding_rs::Encoding;

use crate::child::{Hint, Walker};
use crate::context::{Context, Fetched, head};
use crate::failure::{Failure, FailureKind};
use crate::html;
use crate::mail::MailWalker;
use crate::mbox::MboxWalker;
use crate::part::Payload;
use crate::pdf::PdfWalker;
use crate::sniff::{self, Format};
use crate::stream::StreamWalker;
use crate::tar::TarWalker;
use crate::workspace::Source;
use crate::zip::{self, ZipWalker};
use crate::{charset, name, text, xml};

/// The most entries of a PDF's metadata that are kept, and the most bytes of each.
const MAX_PDF_METADATA: usize = 32;
const MAX_VALUE: usize = 4096;

/// A part that was opened.
#[derive(Default)]
pub(crate) struct OpenPart {
    pub(crate) media_type: String,
    pub(crate) text: Option<String>,
    pub(crate) metadata: BTreeMap<String, String>,
    /// Why the part failed; a failed part is not entered.
    pub(crate) failure: Option<Failure>,
    /// The part's walker, if it has children.
    pub(crate) walker: Option<Box<dyn Walker>>,
    /// The part's bytes, unless its children stand for them.
    pub(crate) payload: Option<Payload>,
}

/// Known properties of a part before it is opened.
pub(crate) struct PartHints<'a> {
    pub(crate) name: &'a str,
    pub(crate) hint: &'a Hint,
    pub(crate) bytes: u64,
    /// Why the part must not be entered if it is a container.
    pub(crate) refusal: Option<Failure>,
}

impl OpenPart {
    fn typed(media_type: impl Into<String>) -> Self {
        Self { media_type: media_type.into(), ..Self::default() }
    }

    fn entered(mut self, walker: impl Walker + 'static) -> Self {
        self.walker = Some(Box::new(walker));
        self
    }

    fn leaf(mut self, source: Box<dyn Source>) -> Self {
        self.payload = rewound(source);
        self
    }

    fn failed(self, failure: Failure, source: Box<dyn Source>) -> Self {
        Self { failure: Some(failure), ..self }.leaf(source)
    }

    fn note(&mut self, key: &str, value: impl Into<String>) {
        self.metadata.insert(key.to_owned(), value.into());
    }
}

/// Open a part whose bytes were read.
pub(crate) fn open(fetched: Fetched, known: PartHints<'_>, context: &mut Context<'_>) -> OpenPart {
    let mut source = fetched.source;
    let head = match head(&mut source, sniff::HEAD as u64) {
        Ok(head) => head,
        Err(error) => {
            let failure = Failure::io("the part cannot be read", &error);
            return OpenPart { failure: Some(failure), ..OpenPart::typed("application/octet-stream") };
        }
    };
    match sniff::format(&head, known.hint) {
        Format::Zip => open_zip(source, known),
        Format::Tar => enter(OpenPart::typed("application/x-tar"), source, known, |source, known| {
            Ok(TarWalker::new(source, known.bytes))
        }),
        Format::Stream(codec) => enter(OpenPart::typed(codec.media_type()), source, known, |source, known| {
            Ok(StreamWalker::new(codec, source, known.name))
        }),
        Format::Mbox => enter(OpenPart::typed("application/mbox"), source, known, |source, _| {
            MboxWalker::new(source).map_err(|error| Failure::io("the part cannot be read", &error))
        }),
        Format::Mail => open_mail(source, known, context),
        Format::Pdf => open_pdf(source, known, context),
        Format::Html(media_type) => open_html(media_type, source, &head, known, context),
        Format::Xml(media_type, declared) => open_xml(media_type, declared, source, &head, &known, context),
        Format::Text => open_text(source, &known, context),
        Format::Binary(media_type) => {
            // A type that a mail or a data: URI declares is better than none, but these kinds are never binary.
            let declared =
                known.hint.media_type.as_deref().filter(|declared| {
                    !["text/", "multipart/", "message/"].iter().any(|kind| declared.starts_with(kind))
                });
            OpenPart::typed(media_type.or(declared).unwrap_or("application/octet-stream")).leaf(source)
        }
    }
}

/// Open a part that failed although it has bytes: with its declared type, or as plain bytes, without looking for
/// children.
pub(crate) fn damaged(fetched: Fetched, hint: &Hint, failure: Failure) -> OpenPart {
    let declared = hint.media_type.clone().unwrap_or_else(|| "application/octet-stream".to_owned());
    OpenPart::typed(declared).failed(failure, fetched.source)
}

fn enter<W: Walker + 'static>(
    opened: OpenPart,
    source: Box<dyn Source>,
    known: PartHints<'_>,
    walker: impl FnOnce(Box<dyn Source>, &PartHints<'_>) -> Result<W, Failure>,
) -> OpenPart {
    match known.refusal {
        Some(failure) => opened.failed(failure, source),
        None => match walker(source, &known) {
            Ok(walker) => opened.entered(walker),
            Err(failure) => OpenPart { failure: Some(failure), ..opened },
        },
    }
}

fn open_zip(mut source: Box<dyn Source>, known: PartHints<'_>) -> OpenPart {
    let directory = zip::Directory::locate(&mut source, known.bytes);
    let opened = match &directory {
        Ok(directory) => OpenPart::typed(zip::media_type(&mut source, directory)),
        Err(_) => OpenPart::typed("application/zip"),
    };
    // The reason of a refusal takes precedence over a damaged directory.
    match (known.refusal, directory) {
        (Some(failure), _) | (None, Err(failure)) => opened.failed(failure, source),
        (None, Ok(directory)) => opened.entered(ZipWalker::new(source, directory)),
    }
}

fn open_mail(source: Box<dyn Source>, known: PartHints<'_>, context: &Context<'_>) -> OpenPart {
    let mut opened = OpenPart::typed("message/rfc822");
    if let Some(failure) = known.refusal {
        return opened.failed(failure, source);
    }
    match MailWalker::open(source, context.limits.max_name) {
        Ok((walker, metadata)) => {
            opened.metadata = metadata;
            opened.entered(walker)
        }
        Err((failure, Some(source))) => opened.failed(failure, source),
        Err((failure, None)) => OpenPart { failure: Some(failure), ..opened },
    }
}

fn open_pdf(mut source: Box<dyn Source>, known: PartHints<'_>, context: &mut Context<'_>) -> OpenPart {
    let mut opened = OpenPart::typed("application/pdf");
    if let Some(failure) = known.refusal {
        return opened.failed(failure, source);
    }
    let limits = context.limits.pdf(known.bytes);
    match context.workspace.pdf(&mut source, &limits) {
        Ok(pages) => {
            for (key, mut value) in pages.metadata().into_iter().take(MAX_PDF_METADATA) {
                name::cut(&mut value, MAX_VALUE);
                opened.note(&format!("pdf.{key}"), value);
            }
            opened.note("pdf.pages", pages.page_count().to_string());
            opened.entered(PdfWalker::new(pages))
        }
        Err(reason) => opened.failed(Failure::broken(reason), source),
    }
}

fn open_html(
    media_type: &str,
    mut source: Box<dyn Source>,
    head: &[u8],
    known: PartHints<'_>,
    context: &mut Context<'_>,
) -> OpenPart {
    let mut opened = OpenPart::typed(media_type);
    let deadline = context.deadline();
    let read = markup_charset(&mut source, head, &known, context)
        .and_then(|charset| Ok((charset, html::read(&mut source, known.bytes, charset, context, &deadline)?)));
    let (charset, page) = match read {
        Ok(read) => read,
        Err(failure) => return opened.failed(failure, source),
    };
    let partial = known.bytes > context.limits.max_markup;
    note_text(&mut opened, charset, page.text, page.cut || partial);
    opened.metadata.extend(page.title.map(|title| ("html.title".to_owned(), title)));
    opened.metadata.extend(page.links.map(|links| ("html.links".to_owned(), links)));
    if page.links_omitted > 0 {
        opened.note("html.links.omitted", page.links_omitted.to_string());
    }
    match (page.walker, known.refusal) {
        (None, _) => opened.leaf(source),
        (Some(walker), Some(failure)) => opened.failed(walker.refused(failure), source),
        (Some(walker), None) => opened.entered(walker).leaf(source),
    }
}

fn open_xml(
    media_type: &str,
    declared: bool,
    mut source: Box<dyn Source>,
    head: &[u8],
    known: &PartHints<'_>,
    context: &Context<'_>,
) -> OpenPart {
    let mut opened = OpenPart::typed(media_type);
    let deadline = context.deadline();
    let read = markup_charset(&mut source, head, known, context)
        .and_then(|charset| Ok((charset, xml::read(&mut source, charset, context, &deadline)?)));
    let (charset, document) = match read {
        Ok(read) => read,
        Err(failure) => return opened.failed(failure, source),
    };
    let partial = known.bytes > context.limits.max_markup;
    if let Some(damage) = document.damage.filter(|_| !partial) {
        if !declared {
            return open_text(source, known, context);
        }
        opened.note("xml.damage", damage);
    }
    note_text(&mut opened, charset, document.text, document.cut || partial);
    opened.leaf(source)
}

fn open_text(mut source: Box<dyn Source>, known: &PartHints<'_>, context: &Context<'_>) -> OpenPart {
    let limit = context.limits.max_text;
    let declared = known.hint.charset.as_deref();
    let read = charset::choose(&mut source, declared, limit)
        .and_then(|charset| text::read(&mut source, charset, limit).map(|(text, cut)| (charset, text, cut)));
    let (charset, text, cut) = match read {
        Ok(read) => read,
        Err(error) => {
            return OpenPart::typed("text/plain").failed(Failure::io("the part cannot be read", &error), source);
        }
    };
    let mut opened = OpenPart::typed(text::media_type(&text, cut, known.name, known.hint));
    note_text(&mut opened, charset, text, cut);
    opened.leaf(source)
}

fn markup_charset(
    source: &mut dyn Source,
    head: &[u8],
    known: &PartHints<'_>,
    context: &Context<'_>,
) -> Result<&'static Encoding, Failure> {
    let declared = known.hint.charset.clone().or_else(|| charset::declared_in_markup(head));
    charset::choose(source, declared.as_deref(), context.limits.max_markup)
        .map_err(|error| Failure::io("the part cannot be read", &error))
}

fn note_text(opened: &mut OpenPart, charset: &'static Encoding, text: String, cut: bool) {
    opened.note("text.charset", charset.name().to_ascii_lowercase());
    if cut {
        opened.note("text.cut", "true");
    }
    opened.text = Some(text);
}

/// Return why a container must not be entered; `None` if it may be.
pub(crate) fn refusal(depth: u32, max_depth: u32, is_ancestor: bool) -> Option<Failure> {
    if is_ancestor {
        return Some(Failure::new(FailureKind::Cycle, "the container lies within itself"));
    }
    let reason = || format!("the container's children would lie deeper than {max_depth}, the limit of depth");
    (depth >= max_depth).then(|| Failure::new(FailureKind::TooDeep, reason()))
}

/// Return `source` at its beginning; `None` if it cannot be rewound.
pub(crate) fn rewound(mut source: Box<dyn Source>) -> Option<Payload> {
    source.rewind().is_ok().then_some(source)
}
