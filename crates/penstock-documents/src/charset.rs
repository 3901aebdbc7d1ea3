//! Charsets: choosing the one of a text, and decoding the text as it is read.

use std::io::{self, BufRead, Read};

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Decoder, Encoding, REPLACEMENT, UTF_8};

use crate::context::PIECE;
use crate::workspace::Source;

/// The number of bytes at the beginning of markup that are searched for a declared charset.
const DECLARED_WITHIN: usize = 4096;

/// Choose the charset of the first `limit` bytes of `source` and rewind it. A byte order mark takes precedence; then
/// UTF-8 if the bytes can hardly be anything else, because declarations in mails are often wrong; then the declared
/// charset; then a guess. A declaration of UTF-8 or ASCII is ignored, because the bytes themselves show that.
pub(crate) fn choose(source: &mut dyn Source, declared: Option<&str>, limit: u64) -> io::Result<&'static Encoding> {
    source.rewind()?;
    let mut survey = Survey::default();
    let mut bom = None;
    each_piece(source, limit, |bytes, first| {
        bom = if first { Encoding::for_bom(bytes) } else { bom };
        survey.feed(bytes);
        bom.is_none()
    })?;
    if let Some((encoding, _)) = bom {
        return Ok(encoding);
    }
    match survey.finish(declared.and_then(label)) {
        Some(encoding) => Ok(encoding),
        None => guess(source, limit, survey.invalid > 0),
    }
}

/// Guess the charset of a text that declares none and may not be UTF-8. Guessing costs a hundred times as much as
/// [`Survey`], so only such a text is read a second time.
fn guess(source: &mut dyn Source, limit: u64, broken: bool) -> io::Result<&'static Encoding> {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    each_piece(source, limit, |bytes, _| {
        detector.feed(bytes, bytes.is_empty());
        true
    })?;
    let guess = detector.guess(None, Utf8Detection::Allow);
    // Valid UTF-8 may still be ISO-2022-JP, which the detector recognises by its escapes.
    Ok(if broken || !guess.is_ascii_compatible() { guess } else { UTF_8 })
}

/// Pass the first `limit` bytes to `wanted` in pieces, the last one empty, until it returns `false`; then rewind
/// `source`.
fn each_piece(source: &mut dyn Source, limit: u64, mut wanted: impl FnMut(&[u8], bool) -> bool) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut input = Read::take(&mut *source, limit);
    let mut first = true;
    loop {
        let count = read_some(&mut input, &mut piece)?;
        if !wanted(piece.get(..count).unwrap_or_default(), first) || count == 0 {
            break;
        }
        first = false;
    }
    source.rewind()
}

/// Return the encoding that `label` names, unless it is ASCII or UTF-8, which the bytes themselves show.
pub(crate) fn label(label: &str) -> Option<&'static Encoding> {
    let label = label.trim();
    let ascii = ["us-ascii", "ascii", "ansi_x3.4-1968"].iter().any(|known| label.eq_ignore_ascii_case(known));
    Encoding::for_label(label.as_bytes()).filter(|&encoding| !ascii && encoding != UTF_8 && encoding != REPLACEMENT)
}

/// A text is certainly UTF-8 if it has at least this many characters beyond ASCII, and this many of them for each
/// invalid sequence. If it declares another charset, it must have no invalid sequence either.
const MIN_UTF8_CHARACTERS: u64 = 4;
const CHARACTERS_PER_INVALID: u64 = 16;
/// The byte that begins each shift of ISO-2022-JP.
const ESCAPE: u8 = 0x1b;

/// Determines whether bytes are UTF-8, piece by piece.
#[derive(Default)]
struct Survey {
    /// The numbers of valid UTF-8 characters beyond ASCII and of invalid sequences.
    characters: u64,
    invalid: u64,
    /// Whether there are escapes, as in ISO-2022-JP.
    escapes: bool,
    /// The incomplete character at the end of the last piece.
    rest: Vec<u8>,
}

impl Survey {
    /// Examine the next piece; an empty one is the end.
    fn feed(&mut self, bytes: &[u8]) {
        self.escapes |= bytes.contains(&ESCAPE);
        if self.rest.is_empty()
            && let Ok(text) = std::str::from_utf8(bytes)
        {
            self.count(text);
            return;
        }
        let ended = bytes.is_empty();
        let mut joined = std::mem::take(&mut self.rest);
        joined.extend_from_slice(bytes);
        for chunk in joined.utf8_chunks() {
            self.count(chunk.valid());
            let incomplete =
                std::str::from_utf8(chunk.invalid()).err().is_some_and(|error| error.error_len().is_none());
            if incomplete && !ended {
                // Only the last chunk can be an incomplete character.
                self.rest = chunk.invalid().to_vec();
            } else {
                self.invalid = self.invalid.saturating_add(u64::from(!chunk.invalid().is_empty()));
            }
        }
    }

    fn count(&mut self, text: &str) {
        let leading = text.bytes().filter(|&byte| byte >= 0xc0).count();
        self.characters = self.characters.saturating_add(leading as u64);
    }

    /// Return the charset; `None` if it must be guessed.
    fn finish(&self, declared: Option<&'static Encoding>) -> Option<&'static Encoding> {
        let certain = self.characters >= MIN_UTF8_CHARACTERS
            && self.invalid.saturating_mul(CHARACTERS_PER_INVALID) <= self.characters;
        match declared {
            Some(declared) if !certain || self.invalid > 0 => Some(declared),
            None if !certain && (self.invalid > 0 || self.escapes) => None,
            Some(_) | None => Some(UTF_8),
        }
    }
}

/// Return the charset that an HTML or XML text declares.
pub(crate) fn declared_in_markup(head: &[u8]) -> Option<String> {
    let start = head.get(..head.len().min(DECLARED_WITHIN)).unwrap_or_default();
    let text = String::from_utf8_lossy(start).to_ascii_lowercase();
    let key = ["charset", "encoding"];
    let rest = text.split('<').find_map(|tag| {
        let (content, _) = tag.split_once('>').unwrap_or((tag, ""));
        let declares = content.starts_with("meta") || content.starts_with("?xml");
        let (_, rest) = key.iter().filter(|_| declares).find_map(|key| content.split_once(key))?;
        rest.trim_start().strip_prefix('=').map(|rest| rest.trim_start().to_owned())
    })?;
    let rest = rest.trim_start_matches(['"', '\'']);
    let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';' | '/' | '?')).unwrap_or(rest.len());
    rest.get(..end).filter(|label| !label.is_empty()).map(str::to_owned)
}

/// A source decoded as text, piece by piece. Invalid bytes become U+FFFD.
pub(crate) struct DecodedText<R> {
    input: R,
    decoder: Decoder,
    piece: Vec<u8>,
    text: String,
    /// The number of bytes of `text` that were consumed through [`BufRead`].
    consumed: usize,
    ended: bool,
}

impl<R: Read> DecodedText<R> {
    pub(crate) fn new(input: R, encoding: &'static Encoding) -> Self {
        let decoder = encoding.new_decoder_with_bom_removal();
        Self { input, decoder, piece: vec![0; PIECE], text: String::new(), consumed: 0, ended: false }
    }

    /// Return the next piece of text; empty only at the end.
    pub(crate) fn next_piece(&mut self) -> io::Result<&str> {
        self.text.clear();
        self.consumed = 0;
        while self.text.is_empty() && !self.ended {
            let count = read_some(&mut self.input, &mut self.piece)?;
            self.ended = count == 0;
            let bytes = self.piece.get(..count).unwrap_or_default();
            let room = self.decoder.max_utf8_buffer_length(count).unwrap_or(count.saturating_mul(3));
            self.text.reserve(room);
            // The reserved capacity is the most that the bytes can become, so all of them are decoded.
            let _ = self.decoder.decode_to_string(bytes, &mut self.text, self.ended);
        }
        Ok(&self.text)
    }
}

impl<R: Read> Read for DecodedText<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut ahead = self.fill_buf()?;
        let count = ahead.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl<R: Read> BufRead for DecodedText<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.consumed >= self.text.len() {
            self.next_piece()?;
        }
        Ok(self.text.as_bytes().get(self.consumed..).unwrap_or_default())
    }

    fn consume(&mut self, count: usize) {
        self.consumed += count;
    }
}

fn read_some(input: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use encoding_rs::{SHIFT_JIS, UTF_16LE, WINDOWS_1252};

    use super::*;

    fn chosen(bytes: &[u8], declared: Option<&str>) -> &'static Encoding {
        choose(&mut Cursor::new(bytes.to_vec()), declared, u64::MAX).unwrap()
    }

    #[test]
    fn a_byte_order_mark_comes_first_then_certain_utf_8_then_the_declaration_then_a_guess() {
        assert_eq!(chosen(b"\xff\xfea\0", Some("shift_jis")), UTF_16LE);
        assert_eq!(chosen("é".as_bytes(), Some("shift_jis")), SHIFT_JIS);
        assert_eq!(chosen("é".as_bytes(), Some("us-ascii")), UTF_8);
        assert_eq!(chosen("é".as_bytes(), None), UTF_8);
        assert_eq!(chosen(b"Le caf\xe9 est tr\xe8s bon, n'est-ce pas?", Some("utf-8")), WINDOWS_1252);
        assert_eq!(chosen("Привет".as_bytes(), Some("gb2312")), UTF_8);
        assert_eq!(chosen(b"\xc4\xe3\xba\xc3", Some("gb2312")), encoding_rs::GBK);
        assert_eq!(chosen("日本語のテキスト".as_bytes(), None), UTF_8);
        assert_eq!(chosen(b"\x1b$BF|K\\8l\x1b(B", None), encoding_rs::ISO_2022_JP);
    }

    #[test]
    fn markup_declares_its_charset() {
        let html = b"<html><head><meta http-equiv=x content=\"text/html; charset=ISO-8859-2\">";
        assert_eq!(declared_in_markup(html).as_deref(), Some("iso-8859-2"));
        assert_eq!(declared_in_markup(b"<meta charset='koi8-r'/>").as_deref(), Some("koi8-r"));
        assert_eq!(declared_in_markup(b"<?xml version=\"1.0\" encoding=\"UTF-16\"?>").as_deref(), Some("utf-16"));
        assert_eq!(declared_in_markup(b"<p>charset=x</p>"), None);
    }

    #[test]
    fn a_character_across_two_pieces_decodes() {
        let mut bytes = vec![b'a'; PIECE - 1];
        bytes.extend_from_slice("éz".as_bytes());
        let mut text = String::new();
        DecodedText::new(bytes.as_slice(), UTF_8).read_to_string(&mut text).unwrap();
        assert!(text.ends_with("aéz"));
        assert_eq!(chosen(&bytes, None), UTF_8);
    }
}
