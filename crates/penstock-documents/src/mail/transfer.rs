//! Transfer encodings (RFC 2045, section 6), decoded as the bytes are read.

use std::io::{self, Read};

use super::machine::{Decoder, Out, TransferDecoder};
use super::uu::Uu;

/// The encoding of a part of a mail.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Encoding {
    /// 7bit, 8bit, binary: the bytes are unencoded.
    #[default]
    Identity,
    Base64,
    QuotedPrintable,
    /// Not defined by MIME, but used in mails.
    Uuencode,
    /// Any other encoding, with its name.
    Unknown(String),
}

/// The number of characters of an unknown encoding's name that are kept for messages.
const MAX_NAMED: usize = 64;

impl Encoding {
    /// Return the encoding that a Content-Transfer-Encoding header names. Mistakes with
    /// hyphens, blanks and plurals are common, so they are accepted.
    pub(crate) fn named(name: &str) -> Self {
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
        match plain.as_str() {
            "" | "7bit" | "7bits" | "8bit" | "8bits" | "binary" => Self::Identity,
            "base64" => Self::Base64,
            "quotedprintable" => Self::QuotedPrintable,
            "xuuencode" | "uuencode" | "xuue" | "uue" => Self::Uuencode,
            _ => Self::Unknown(name.trim().chars().take(MAX_NAMED).collect()),
        }
    }

    /// Remove this encoding from `input`. An unknown encoding is left as it is.
    pub(crate) fn decode<'r>(&self, input: impl Read + 'r) -> Box<dyn Read + 'r> {
        match self {
            Self::Identity | Self::Unknown(_) => Box::new(input),
            Self::Base64 => Box::new(Decoder::new(input, Base64::default())),
            Self::QuotedPrintable => Box::new(Decoder::new(input, Quoted::default())),
            Self::Uuencode => Box::new(Decoder::new(input, Uu::default())),
        }
    }
}

/// Base64. Bytes outside the alphabet are skipped (RFC 2045, 6.8); padding ends a group, so that concatenated encoded
/// texts can be decoded.
#[derive(Default)]
struct Base64 {
    bits: u32,
    sextets: u8,
    /// Whether a group ended after one sextet, which is not a byte.
    cut: bool,
}

impl Base64 {
    fn flush(&mut self, out: &mut Out) {
        let (bits, sextets) = (self.bits, self.sextets);
        (self.bits, self.sextets) = (0, 0);
        match sextets {
            0 => {}
            2 => out.push((bits >> 4) as u8),
            3 => {
                out.push((bits >> 10) as u8);
                out.push((bits >> 2) as u8);
            }
            _ => self.cut = true,
        }
    }
}

/// Return the value of a byte of the alphabet.
fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

impl TransferDecoder for Base64 {
    /// Decode whole groups, which are nearly all of a line.
    fn run(&mut self, input: &[u8], buffer: &mut [u8]) -> (usize, usize) {
        if self.sextets > 0 {
            return (0, 0);
        }
        let mut groups = 0;
        for (group, places) in input.as_chunks::<4>().0.iter().zip(buffer.as_chunks_mut::<3>().0) {
            let [Some(a), Some(b), Some(c), Some(d)] = group.map(sextet) else { break };
            *places = [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d];
            groups += 1;
        }
        (groups * 4, groups * 3)
    }

    fn step(&mut self, byte: u8, out: &mut Out) {
        let Some(value) = sextet(byte) else {
            if byte == b'=' {
                self.flush(out);
            }
            return;
        };
        self.bits = (self.bits << 6) | u32::from(value);
        self.sextets += 1;
        if self.sextets == 4 {
            let [_, a, b, c] = self.bits.to_be_bytes();
            [a, b, c].into_iter().for_each(|byte| out.push(byte));
            (self.bits, self.sextets) = (0, 0);
        }
    }

    fn finish(&mut self, out: &mut Out) -> io::Result<()> {
        self.flush(out);
        match self.cut {
            true => Err(io::Error::new(io::ErrorKind::InvalidData, "the base64 text is cut off")),
            false => Ok(()),
        }
    }
}

/// Quoted-printable (RFC 2045, 6.7). An invalid escape is left as it is.
#[derive(Default)]
enum Quoted {
    #[default]
    Plain,
    Equals,
    EqualsCr,
    EqualsHex(u8),
}

impl TransferDecoder for Quoted {
    /// Copy unescaped bytes.
    fn run(&mut self, input: &[u8], buffer: &mut [u8]) -> (usize, usize) {
        if !matches!(self, Self::Plain) {
            return (0, 0);
        }
        let end = input.iter().position(|&byte| byte == b'=').unwrap_or(input.len()).min(buffer.len());
        if let (Some(places), Some(bytes)) = (buffer.get_mut(..end), input.get(..end)) {
            places.copy_from_slice(bytes);
        }
        (end, end)
    }

    fn step(&mut self, byte: u8, out: &mut Out) {
        let hex = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        let state = std::mem::take(self);
        match (state, byte) {
            (Self::Equals, b'\r') => *self = Self::EqualsCr,
            (Self::Equals | Self::EqualsCr, b'\n') => {}
            (Self::Equals, first) if hex(first).is_some() => *self = Self::EqualsHex(first),
            (Self::EqualsHex(first), second) if hex(second).is_some() => {
                out.push(hex(first).unwrap_or_default() << 4 | hex(second).unwrap_or_default());
            }
            (state, byte) => {
                state.unread(out);
                match byte {
                    b'=' => *self = Self::Equals,
                    _ => out.push(byte),
                }
            }
        }
    }

    fn finish(&mut self, out: &mut Out) -> io::Result<()> {
        std::mem::take(self).unread(out);
        Ok(())
    }
}

impl Quoted {
    /// Output the bytes of an escape that turned out to be invalid.
    fn unread(self, out: &mut Out) {
        match self {
            Self::Plain => {}
            Self::Equals => out.push(b'='),
            Self::EqualsCr => [b'=', b'\r'].into_iter().for_each(|byte| out.push(byte)),
            Self::EqualsHex(first) => [b'=', first].into_iter().for_each(|byte| out.push(byte)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(encoding: &Encoding, text: &[u8]) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        encoding.decode(text).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn base64_skips_what_is_not_in_the_alphabet() {
        assert_eq!(decode(&Encoding::Base64, b"aGVs\r\nbG8g d29ybGQ=").unwrap(), b"hello world");
        assert_eq!(decode(&Encoding::Base64, b"aGk=aGk=").unwrap(), b"hihi");
        assert_eq!(decode(&Encoding::Base64, b"aGk").unwrap(), b"hi");
    }

    #[test]
    fn base64_that_is_cut_off_is_damage() {
        assert!(decode(&Encoding::Base64, b"aGVsb").is_err());
        assert!(decode(&Encoding::Base64, b"aGVsb===").is_err());
    }

    #[test]
    fn uuencoded_lines_stand_between_begin_and_end() {
        let text = b"some words\r\nbegin 644 x.txt\r\n+:&5L;&\\@=V]R;&0\r\n`\r\nend\r\nmore";
        assert_eq!(decode(&Encoding::Uuencode, text).unwrap(), b"hello world");
        // Spaces that were lost at a line's end stand for zeros.
        assert_eq!(decode(&Encoding::Uuencode, b"begin 644 x\n(:0\n`\nend\n").unwrap(), b"i\0\0\0\0\0\0\0");
        // The line of length zero may have lost its only character, a space.
        assert_eq!(decode(&Encoding::Uuencode, b"begin 644 x\n!:0\n\nend\n").unwrap(), b"i");
        assert!(decode(&Encoding::Uuencode, b"begin 644 x\n+:&5L;&\\@=V]R;&0\n").is_err());
        assert!(decode(&Encoding::Uuencode, b"nothing").is_err());
    }

    #[test]
    fn a_uuencoded_line_without_a_length_is_damage_and_another_file_is_not_appended() {
        for text in [
            b"begin 644 a\n!:0\njunk\nbegin 644 b\n!:0\n`\nend\n".as_slice(),
            b"begin 644 a\n!:0\nenough\nbegin 644 b\n!:0\n`\nend\n",
            b"begin 644 a\n!:0\nbegin 644 b\n!:0\n`\nend\n",
            b"begin 644 a\njunk\nbegin 644 b\n!:0\n`\nend\n",
        ] {
            let error = decode(&Encoding::Uuencode, text).unwrap_err();
            assert!(error.to_string().contains("length"), "{error}");
        }
        // Prose that begins with the same word has no mode behind it.
        let prose = b"begin with this:\nbegin \nbegin 644 a\n!:0\n`\nend\n";
        assert_eq!(decode(&Encoding::Uuencode, prose).unwrap(), b"i");
    }

    #[test]
    fn quoted_printable_joins_lines_and_keeps_what_is_no_escape() {
        let text = b"caf=C3=A9 =\r\nsoft=\nbreak = =ZZ =4";
        assert_eq!(decode(&Encoding::QuotedPrintable, text).unwrap(), "café softbreak = =ZZ =4".as_bytes());
    }

    proptest! {
        #[test]
        fn base64_decodes_however_its_lines_are_broken(lines in prop::collection::vec("[A-Za-z0-9+/]{0,90}", 0..9)) {
            let text = lines.join("\r\n");
            let mut machine = Base64::default();
            let mut out = Out::default();
            let mut slowly = Vec::new();
            for byte in text.bytes() {
                machine.step(byte, &mut out);
                slowly.extend(std::iter::from_fn(|| out.pop()));
            }
            let ended = machine.finish(&mut out);
            slowly.extend(std::iter::from_fn(|| out.pop()));
            let decoded = decode(&Encoding::Base64, text.as_bytes());
            prop_assert_eq!(decoded.is_ok(), ended.is_ok());
            if let Ok(bytes) = decoded {
                prop_assert_eq!(bytes, slowly);
            }
        }

        #[test]
        fn quoted_printable_without_escapes_is_identity(text in "[a-zA-Z0-9 \r\n.]*") {
            prop_assert_eq!(decode(&Encoding::QuotedPrintable, text.as_bytes()).unwrap(), text.as_bytes());
        }

        #[test]
        fn nothing_panics(bytes: Vec<u8>) {
            let _ = decode(&Encoding::Base64, &bytes);
            let _ = decode(&Encoding::QuotedPrintable, &bytes);
            let _ = decode(&Encoding::Uuencode, &[b"begin 6\n", bytes.as_slice()].concat());
        }
    }
}
