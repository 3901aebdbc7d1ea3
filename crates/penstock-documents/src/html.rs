//! HTML: its text, title and links; embedded data: URIs are children.
//!
//! This is a tokenizer without a tree, so it needs memory for one tag only. See
//! [`Limits::max_markup`](crate::Limits::max_markup).

use std::cell::RefCell;
use std::io::{Read, SeekFrom, Write};
use std::vec;

use encoding_rs::Encoding;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};

use crate::charset::DecodedText;
use crate::child::{Child, Hint, Walker};
use crate::context::{Context, Deadline, Meter, Origin};
use crate::data_uri;
use crate::failure::Failure;
use crate::name;
use crate::prose::Prose;
use crate::workspace::{Source, Spool};
use crate::xml;

/// The maximum number of bytes of links, and of the title, that become metadata.
const MAX_LINKS: usize = 128 * 1024;
const MAX_TITLE: usize = 4096;

/// Elements that only an HTML document can begin with, and those that an HTML fragment or a Markdown text may begin
/// with as well.
const HTML_ELEMENTS: [&str; 9] = ["html", "head", "body", "frameset", "meta", "title", "script", "style", "base"];
const AMBIGUOUS_ELEMENTS: [&str; 30] = [
    "a",
    "article",
    "b",
    "blockquote",
    "br",
    "center",
    "div",
    "em",
    "font",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "i",
    "iframe",
    "img",
    "li",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "span",
    "strong",
    "table",
    "ul",
];
/// Elements that begin a new line.
const BLOCKS: [&str; 34] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "br",
    "caption",
    "dd",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "li",
    "main",
    "nav",
    "ol",
    "option",
    "p",
    "pre",
    "section",
    "tr",
    "ul",
];

/// Return the MIME type of a text that begins like HTML.
pub(crate) fn detect(head: &str) -> Option<&'static str> {
    let text = head.trim_start_matches('\u{feff}').trim_start();
    let root = xml::first_element(text)?.to_ascii_lowercase();
    if text.starts_with("<?xml") {
        return (root == "html").then_some("application/xhtml+xml");
    }
    let doctype = text.get(..14).is_some_and(|start| start.eq_ignore_ascii_case("<!doctype html"));
    let weak = || AMBIGUOUS_ELEMENTS.contains(&root.as_str()) && !has_markdown(text);
    (doctype || HTML_ELEMENTS.contains(&root.as_str()) || weak()).then_some("text/html")
}

fn has_markdown(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("# ") || line.starts_with("## ") || line.starts_with("```"))
        || text.contains("](")
}

/// The content read from a document.
pub(crate) struct Page {
    pub(crate) text: String,
    pub(crate) cut: bool,
    pub(crate) title: Option<String>,
    /// A JSON array.
    pub(crate) links: Option<String>,
    pub(crate) links_omitted: u64,
    /// Its children, if it has any.
    pub(crate) walker: Option<HtmlWalker>,
}

/// Read the document in `source`, which has `bytes` bytes.
pub(crate) fn read(
    source: &mut dyn Source,
    bytes: u64,
    encoding: &'static Encoding,
    context: &mut Context<'_>,
    deadline: &Deadline,
) -> Result<Page, Failure> {
    let failed = |error| Failure::io("the part cannot be read", &error);
    source.rewind().map_err(failed)?;
    let limits = context.limits;
    let mut input = DecodedText::new(Read::take(source, limits.max_markup), encoding);
    let sink = Sink { state: RefCell::new(State::new(limits.max_text)) };
    let tokenizer = Tokenizer::new(sink, TokenizerOpts::default());
    let queue = BufferQueue::default();
    // Room for one more than the children allowed, so that the dehydrator notices when the limit is exceeded.
    let mut collector =
        DataCollector { spool: None, length: 0, embedded: Vec::new(), room: limits.children_of(bytes) + 1 };
    loop {
        context.check(deadline)?;
        let piece = input.next_piece().map_err(failed)?;
        let ended = piece.is_empty();
        if ended {
            tokenizer.end();
        } else {
            queue.push_back(StrTendril::from(piece));
            // The sink never pauses for a script, so the whole queue is consumed.
            let _ = tokenizer.feed(&queue);
        }
        let found = std::mem::take(&mut tokenizer.sink.state.borrow_mut().embedded);
        collector.put(found, context)?;
        if ended {
            break;
        }
    }
    let walker = collector.into_walker(bytes.saturating_sub(limits.max_markup));
    Ok(tokenizer.sink.state.take().finish(walker))
}

struct Sink {
    state: RefCell<State>,
}

/// The content found so far.
#[derive(Default)]
struct State {
    prose: Prose,
    title: Option<String>,
    /// Whether some of the title was cut off.
    title_cut: bool,
    /// The current element, if its content is not part of the text.
    inside: Inside,
    style: String,
    links: Vec<String>,
    links_length: usize,
    links_omitted: u64,
    embedded: Vec<(Hint, Result<Vec<u8>, Failure>)>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Inside {
    #[default]
    Body,
    Title,
    Style,
    Script,
}

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut state = self.state.borrow_mut();
        match token {
            Token::TagToken(tag) if tag.kind == TagKind::StartTag => return state.start(&tag),
            Token::TagToken(tag) => state.end(&tag.name),
            Token::CharacterTokens(text) => state.characters(&text),
            // A style sheet that is never closed is searched too.
            Token::EOFToken => state.end("style"),
            Token::DoctypeToken(_) | Token::CommentToken(_) | Token::NullCharacterToken | Token::ParseError(_) => {}
        }
        TokenSinkResult::Continue
    }
}

impl State {
    fn new(max_text: u64) -> Self {
        Self { prose: Prose::new(max_text), ..Self::default() }
    }

    fn start(&mut self, tag: &Tag) -> TokenSinkResult<()> {
        let name: &str = &tag.name;
        for attribute in &tag.attrs {
            self.attribute(name, &attribute.name.local, &attribute.value);
        }
        if BLOCKS.contains(&name) {
            self.prose.new_line();
        } else if matches!(name, "td" | "th") {
            self.prose.push_text(" ");
        }
        // This replaces a tree builder, which would tell the tokenizer that tags in these elements are text.
        let (inside, raw) = match name {
            "title" => (Inside::Title, RawKind::Rcdata),
            "textarea" => (Inside::Body, RawKind::Rcdata),
            "style" => (Inside::Style, RawKind::Rawtext),
            "script" => (Inside::Script, RawKind::ScriptData),
            "xmp" | "noembed" | "noframes" => (Inside::Body, RawKind::Rawtext),
            "plaintext" => return TokenSinkResult::Plaintext,
            _ => return TokenSinkResult::Continue,
        };
        self.inside = inside;
        TokenSinkResult::RawData(raw)
    }

    fn end(&mut self, name: &str) {
        if BLOCKS.contains(&name) {
            self.prose.new_line();
        }
        if name == "style" {
            let style = std::mem::take(&mut self.style);
            data_uri::scan(&style, |uri| self.embedded.extend(data_uri::decode(uri)));
        }
        if matches!(name, "title" | "style" | "script") {
            self.inside = Inside::Body;
        }
    }

    fn characters(&mut self, text: &str) {
        match self.inside {
            Inside::Body => self.prose.push_text(text),
            Inside::Title => self.push_title(text),
            Inside::Style => self.style.push_str(text),
            Inside::Script => {}
        }
    }

    fn push_title(&mut self, text: &str) {
        let title = self.title.get_or_insert_default();
        // After the cut a shorter character may still fit, but the title would then have a gap.
        if !self.title_cut {
            title.push_str(text);
            self.title_cut = name::cut(title, MAX_TITLE);
        }
    }

    fn attribute(&mut self, element: &str, attribute: &str, value: &str) {
        match attribute {
            "src" | "href" | "xlink:href" | "poster" | "data" | "background" if data_uri::is_data(value) => {
                self.embedded.extend(data_uri::decode(value.trim()));
            }
            "style" | "srcset" | "imagesrcset" => {
                data_uri::scan(value, |uri| self.embedded.extend(data_uri::decode(uri)));
            }
            "href" if matches!(element, "a" | "area") => self.link(value.trim()),
            "src" if matches!(element, "iframe" | "frame") => self.link(value.trim()),
            _ => {}
        }
    }

    fn link(&mut self, target: &str) {
        // The length of the link in the JSON array, with a comma.
        let length = serde_json::to_string(target).map_or(0, |text| text.len());
        self.links_length = self.links_length.saturating_add(length + 1);
        match self.links_length > MAX_LINKS {
            true => self.links_omitted += 1,
            false => self.links.push(target.to_owned()),
        }
    }

    fn finish(self, walker: Option<HtmlWalker>) -> Page {
        let (text, cut) = self.prose.finish();
        let title = self.title.map(|title| title.split_whitespace().collect::<Vec<_>>().join(" "));
        let links = (!self.links.is_empty()).then(|| serde_json::to_string(&self.links).unwrap_or_default());
        Page { text, cut, title, links, links_omitted: self.links_omitted, walker }
    }
}

/// The decoded embedded data, kept in one spool until it is requested.
struct DataCollector {
    spool: Option<Box<dyn Spool>>,
    length: u64,
    embedded: Vec<Embedded>,
    room: u64,
}

struct Embedded {
    hint: Hint,
    /// The start and length of the data in the spool.
    place: Result<(u64, u64), Failure>,
}

impl DataCollector {
    fn put(&mut self, found: Vec<(Hint, Result<Vec<u8>, Failure>)>, context: &mut Context<'_>) -> Result<(), Failure> {
        for (hint, bytes) in found {
            if self.embedded.len() as u64 >= self.room {
                return Ok(());
            }
            let place = match bytes {
                Ok(bytes) => Ok(self.write(&bytes, context)?),
                Err(failure) => Err(failure),
            };
            self.embedded.push(Embedded { hint, place });
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], context: &mut Context<'_>) -> Result<(u64, u64), Failure> {
        let spool = match &mut self.spool {
            Some(spool) => spool,
            None => self.spool.insert(context.spool()?),
        };
        spool.write_all(bytes).map_err(|error| Failure::io("the spool cannot be written", &error))?;
        let place = (self.length, bytes.len() as u64);
        self.length = self.length.saturating_add(place.1);
        Ok(place)
    }

    fn into_walker(self, unread: u64) -> Option<HtmlWalker> {
        let any = !self.embedded.is_empty() || unread > 0;
        any.then(|| HtmlWalker { spool: self.spool, embedded: self.embedded.into_iter(), unread })
    }
}

/// Walks the data that a document embeds.
pub(crate) struct HtmlWalker {
    spool: Option<Box<dyn Spool>>,
    embedded: vec::IntoIter<Embedded>,
    /// The number of bytes at the document's end that were not searched.
    unread: u64,
}

impl HtmlWalker {
    /// Return why the document fails if `refusal` forbids its children. If no data was found, the reason is that some
    /// may be in the bytes that were not searched.
    pub(crate) fn refused(mut self, refusal: Failure) -> Failure {
        match self.embedded.as_slice().is_empty() {
            true => self.take_unread().unwrap_or(refusal),
            false => refusal,
        }
    }

    /// Return the failure for the bytes that were not searched, if there are any, the first time.
    fn take_unread(&mut self) -> Option<Failure> {
        let unread = std::mem::take(&mut self.unread);
        let reason = || format!("the document's last {unread} bytes were not searched for embedded data");
        (unread > 0).then(|| Failure::limit(reason()))
    }
}

impl Walker for HtmlWalker {
    fn next_child(&mut self, context: &mut Context<'_>) -> Option<Child> {
        let Some(Embedded { hint, place }) = self.embedded.next() else {
            return self.take_unread().map(|failure| Child::failed(None, failure));
        };
        let fetched = place.and_then(|(start, length)| {
            let Some(spool) = &mut self.spool else { return context.keep(&[]) };
            spool.seek(SeekFrom::Start(start)).map_err(|error| Failure::io("the spool cannot be read back", &error))?;
            let meter = Meter::default();
            context.fetch(&mut meter.tap(Read::take(spool, length)), &meter, Origin::Plain)
        });
        let mut child = Child::fetched(None, fetched);
        child.hint = hint;
        Some(child)
    }
}
