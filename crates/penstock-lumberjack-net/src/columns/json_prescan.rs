//! A fast check whether bytes are a JSON object (RFC 8259).
//!
//! It accepts an object, or leaves the decision to a full parser, for malformed and for rare input.
//! Strings make up most of a document, so the scanner searches many bytes at a time for the
//! characters that may end one:
//!
//! ```text
//! {"log":{"level":"info"},"message":"a \"word\""}
//!  ^   ^  ^     ^ ^    ^   ^       ^ ^  ^^    ^^^      a bit for each quotation mark, backslash and control character
//! ```

/// The deepest nesting that the scanner tracks; deeper input goes to the full parser.
const DEPTH: u32 = 64;
/// The number of input bytes per word of bits.
const BLOCK: usize = 64;
const AHEAD: usize = 8 * BLOCK;

/// The character set of a JSON object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Charset {
    /// Only ASCII.
    Ascii,
    /// Also bytes beyond ASCII, not yet checked to be UTF-8.
    Utf8Unchecked,
}

/// Return the charset of the bytes if they are a JSON object; `None` if they are not, or if a full parser must decide.
pub(super) fn object(bytes: &[u8]) -> Option<Charset> {
    let mut look = JsonScanner { bytes, at: 0, from: usize::MAX, specials: [0; AHEAD / BLOCK], beyond: false };
    look.object()?;
    Some(if look.beyond { Charset::Utf8Unchecked } else { Charset::Ascii })
}

struct JsonScanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The offset of the first byte that `specials` covers.
    from: usize,
    /// A bit for each byte that is not an ordinary character of a string.
    specials: [u64; AHEAD / BLOCK],
    /// Whether a string has a byte beyond ASCII.
    beyond: bool,
}

impl JsonScanner<'_> {
    #[inline(always)]
    fn object(&mut self) -> Option<()> {
        // The containers that are open, the innermost in the lowest bit: 1 is an object, 0 an array.
        let (mut objects, mut depth) = (0_u64, 0_u32);
        let mut token = self.token()?;
        if token != b'{' {
            return None;
        }
        loop {
            // This token starts a value.
            match token {
                b'"' => self.string()?,
                b'{' | b'[' if depth < DEPTH => {
                    let object = token == b'{';
                    (objects, depth) = (objects << 1 | u64::from(object), depth + 1);
                    token = self.token()?;
                    match (token, object) {
                        (b'"', true) => {
                            token = self.key()?;
                            continue;
                        }
                        (b'}', true) | (b']', false) => (objects, depth) = (objects >> 1, depth - 1),
                        (_, false) => continue,
                        (_, true) => return None,
                    }
                }
                b'-' => {
                    let first = self.byte()?;
                    self.number(first)?;
                }
                b'0'..=b'9' => self.number(token)?,
                b't' => self.word(b"rue")?,
                b'f' => self.word(b"alse")?,
                b'n' => self.word(b"ull")?,
                _ => return None,
            }
            // A value has ended, and perhaps the containers around it.
            loop {
                if depth == 0 {
                    return self.ends().then_some(());
                }
                match (self.token()?, objects & 1 == 1) {
                    (b',', true) => {
                        token = self.token().filter(|token| *token == b'"').and_then(|_| self.key())?;
                        break;
                    }
                    (b',', false) => {
                        token = self.token()?;
                        break;
                    }
                    (b'}', true) | (b']', false) => (objects, depth) = (objects >> 1, depth - 1),
                    _ => return None,
                }
            }
        }
    }

    #[inline(always)]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline(always)]
    fn byte(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Return the next byte that is not white space.
    #[inline(always)]
    fn token(&mut self) -> Option<u8> {
        loop {
            let byte = self.byte()?;
            if !is_space(byte) {
                return Some(byte);
            }
        }
    }

    /// Return whether only white space is left.
    fn ends(&self) -> bool {
        self.bytes.get(self.at..).unwrap_or_default().iter().all(|byte| is_space(*byte))
    }

    /// Skip a key, after its opening quotation mark, and its colon; return the next token.
    #[inline(always)]
    fn key(&mut self) -> Option<u8> {
        self.string()?;
        self.token().filter(|token| *token == b':').and_then(|_| self.token())
    }

    fn word(&mut self, rest: &[u8]) -> Option<()> {
        let found = self.bytes.get(self.at..)?.starts_with(rest);
        self.at += rest.len();
        found.then_some(())
    }

    #[inline]
    fn number(&mut self, first: u8) -> Option<()> {
        match first {
            b'0' => {}
            b'1'..=b'9' => _ = self.digits(),
            _ => return None,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    /// Skip one or more digits.
    #[inline]
    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    /// Skip a string up to and including its closing quotation mark.
    #[inline(always)]
    fn string(&mut self) -> Option<()> {
        loop {
            let ahead = self.at.wrapping_sub(self.from);
            let Some(specials) = self.specials.get(ahead / BLOCK).filter(|_| self.from <= self.at) else {
                self.search()?;
                continue;
            };
            let specials = specials >> (ahead % BLOCK);
            if specials == 0 {
                self.at = self.from + (ahead / BLOCK + 1) * BLOCK;
                continue;
            }
            self.at += specials.trailing_zeros() as usize;
            match self.byte()? {
                b'"' => return Some(()),
                b'\\' => self.escape()?,
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        match self.byte()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => {
                let digits = self.bytes.get(self.at..)?.first_chunk::<4>()?;
                self.at += digits.len();
                digits.iter().all(u8::is_ascii_hexdigit).then_some(())
            }
            _ => None,
        }
    }

    /// Compute `specials` for the next bytes; fail at the end of the input.
    #[inline(never)]
    fn search(&mut self) -> Option<()> {
        let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
        self.from = self.at;
        self.beyond |= search(rest, &mut self.specials);
        Some(())
    }
}

#[inline(always)]
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Set a bit for each quotation mark, backslash and control character in the bytes that the words
/// cover. Return whether any of these bytes is beyond ASCII.
fn search(bytes: &[u8], specials: &mut [u64; AHEAD / BLOCK]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V3::try_new() {
        return simd.vectorize(avx2::Search { simd, bytes, specials });
    }
    each(bytes, specials, portable)
}

/// Call `look` for each block. The last one is padded with zeros, which end every string.
#[inline(always)]
fn each(bytes: &[u8], specials: &mut [u64; AHEAD / BLOCK], look: impl Fn(&[u8; BLOCK]) -> (u64, bool)) -> bool {
    let (blocks, rest) = bytes.as_chunks();
    let mut any = false;
    let mut words = specials.iter_mut();
    for (block, word) in blocks.iter().zip(&mut words) {
        let (found, beyond) = look(block);
        *word = found;
        any |= beyond;
    }
    let Some(word) = words.next() else { return any };
    let mut last = [0; BLOCK];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    let (found, beyond) = look(&last);
    *word = found;
    any | beyond
}

fn portable(bytes: &[u8; BLOCK]) -> (u64, bool) {
    let special = |byte: u8| byte == b'"' || byte == b'\\' || byte < 0x20;
    let bits = bytes.iter().rev().fold(0, |bits, byte| bits << 1 | u64::from(special(*byte)));
    (bits, !bytes.is_ascii())
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::__m256i;

    use pulp::x86::V3;
    use pulp::{NullaryFnOnce, cast};

    use crate::columns::json_prescan::{AHEAD, BLOCK, each};

    pub(super) struct Search<'a> {
        pub(super) simd: V3,
        pub(super) bytes: &'a [u8],
        pub(super) specials: &'a mut [u64; AHEAD / BLOCK],
    }

    impl NullaryFnOnce for Search<'_> {
        type Output = bool;

        #[inline(always)]
        fn call(self) -> bool {
            let Self { simd, bytes, specials } = self;
            each(
                bytes,
                specials,
                #[inline(always)]
                |block| {
                    let [first, second]: [__m256i; 2] = cast(*block);
                    let beyond = simd.avx2._mm256_movemask_epi8(simd.avx2._mm256_or_si256(first, second));
                    (u64::from(half(simd, first)) | u64::from(half(simd, second)) << 32, beyond != 0)
                },
            )
        }
    }

    #[inline(always)]
    fn half(simd: V3, bytes: __m256i) -> u32 {
        let (avx, avx2) = (simd.avx, simd.avx2);
        let quotes = avx2._mm256_cmpeq_epi8(bytes, avx._mm256_set1_epi8(0x22));
        let backslashes = avx2._mm256_cmpeq_epi8(bytes, avx._mm256_set1_epi8(0x5C));
        let control = avx2._mm256_cmpeq_epi8(avx2._mm256_min_epu8(bytes, avx._mm256_set1_epi8(0x1F)), bytes);
        let found = avx2._mm256_or_si256(avx2._mm256_or_si256(quotes, backslashes), control);
        avx2._mm256_movemask_epi8(found).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IgnoredAny;

    use super::*;

    const DOCUMENTS: &[&str] = &[
        "{}",
        " \t\r\n{ } \n",
        r#"{"a":1}"#,
        r#"{"@timestamp":"2026-01-01T00:00:00.000Z","log":{"level":"info","offset":123456},"message":"x","status":200}"#,
        r#"{"a":[],"b":[1,-0.5e+10,0,10,1E5,true,false,null,{},[[]],{"c":{}}] , "d" : "\"\\\/\b\f\n\r\t\u00e9" }"#,
        r#"{"message":"10.1.2.3 - - [01/Mar/2026:12:34:56 +0000] \"GET / HTTP/1.1\" 200 1234 \"-\" \"Mozilla/5.0 (X11)\""}"#,
        r#"{"":"","é":"日本語 ","long":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}"#,
    ];

    fn is_json(bytes: &[u8]) -> bool {
        // The parser skips strings without checking that they are UTF-8.
        std::str::from_utf8(bytes).is_ok() && serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
    }

    #[test]
    fn what_is_plainly_an_object_takes_no_closer_look() {
        for document in DOCUMENTS {
            let made_of = if document.is_ascii() { Charset::Ascii } else { Charset::Utf8Unchecked };
            assert_eq!(object(document.as_bytes()), Some(made_of), "{document}");
        }
        for length in 0..2_000 {
            let document = format!("{{\"a\":\"{}\"}}", "x".repeat(length));
            assert_eq!(object(document.as_bytes()), Some(Charset::Ascii), "{length}");
            assert_eq!(object(&document.as_bytes()[..document.len() - 2]), None, "{length}");
        }
        let nested = |depth: usize| r#"{"a":"#.repeat(depth) + "1" + &"}".repeat(depth);
        assert_eq!(object(nested(64).as_bytes()), Some(Charset::Ascii));
        assert_eq!(object(nested(65).as_bytes()), None);
    }

    #[test]
    fn it_never_takes_what_a_parser_refuses() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut taken, mut refused) = (0, 0);
        for round in 0..200_000 {
            let document = DOCUMENTS[round % DOCUMENTS.len()];
            let mut bytes = document.as_bytes().to_vec();
            for _ in 0..random.usize(1..3) {
                let at = random.usize(..bytes.len());
                let new = *random.choice(b"{}[]:,\"\\ \n\x00\x1f0123456789-+.eEtrufalsn/bx\x7f\x80\xff").unwrap();
                match random.u8(..4) {
                    0 => bytes[at] = new,
                    1 => bytes.insert(at, new),
                    2 if bytes.len() > 1 => _ = bytes.remove(at),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            let object = bytes.trim_ascii_start().starts_with(b"{");
            match object_of(&bytes) {
                Some(Charset::Ascii) => assert!(bytes.is_ascii() && is_json(&bytes), "{bytes:?}"),
                Some(Charset::Utf8Unchecked) => {
                    assert_eq!(is_json(&bytes), std::str::from_utf8(&bytes).is_ok(), "{bytes:?}")
                }
                None => assert!(!(object && is_json(&bytes)), "{bytes:?}"),
            }
            *if is_json(&bytes) { &mut taken } else { &mut refused } += 1;
        }
        assert!(taken > 10_000 && refused > 10_000, "{taken} {refused}");
    }

    fn object_of(bytes: &[u8]) -> Option<Charset> {
        let found = object(bytes);
        // Both implementations of the search find the same characters.
        let (mut one, mut other) = ([0; AHEAD / BLOCK], [0; AHEAD / BLOCK]);
        assert_eq!(search(bytes, &mut one), each(bytes, &mut other, portable));
        assert_eq!(one, other);
        found
    }
}
