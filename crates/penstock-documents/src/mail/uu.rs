//! Uuencode (POSIX): lines between `begin MODE NAME` and a line of length zero, or `end`. Each line begins with its
//! length.

use std::io;

use super::machine::{Out, TransferDecoder};

const BEGIN: &[u8] = b"begin ";
const END: &[u8] = b"end";
/// The first byte of the alphabet; the grave accent is an alternative to it.
const ZERO: u8 = b' ';

/// Decodes the first uuencoded file; the text around it is skipped.
#[derive(Default)]
pub(super) struct Uu {
    state: State,
}

#[derive(Default, Clone, Copy)]
enum State {
    /// At a line's beginning, after this many bytes of `begin`.
    #[default]
    Search,
    Begin(usize),
    /// In a line that does not begin the file.
    Skip,
    /// After `begin `: a mode follows, unless this is prose.
    Mode,
    /// In the line that begins the file.
    Name,
    /// The next byte is a line's length.
    Length,
    /// The number of bytes left in the line, and the number and bits of the sextets of an incomplete group.
    Data {
        left: u8,
        sextets: u8,
        bits: u32,
    },
    /// In place of a length, after this many bytes of `end`.
    End(usize),
    Ended,
    /// After a line of the file without a length. A later `begin` belongs to another file, so nothing more is decoded.
    Damaged,
}

impl TransferDecoder for Uu {
    fn step(&mut self, byte: u8, out: &mut Out) {
        self.state = match (self.state, byte) {
            (State::Ended | State::Damaged, _) => self.state,
            (State::Search | State::Begin(_) | State::Skip | State::Mode, b'\n') => State::Search,
            (State::Search, _) => begin(0, byte),
            (State::Begin(matched), _) => begin(matched, byte),
            (State::Mode, b'0'..=b'7') => State::Name,
            (State::Skip | State::Mode, _) => State::Skip,
            (State::Name, b'\n') => State::Length,
            (State::Name, _) => State::Name,
            (State::Length, b'\r' | b'\n') => State::Length,
            (State::Length, b'`' | ZERO) => State::Ended,
            (State::Length, b'!'..=b'_') => State::Data { left: byte - ZERO, sextets: 0, bits: 0 },
            (State::Length, b'e') => State::End(1),
            (State::End(matched), _) if END.get(matched) != Some(&byte) => State::Damaged,
            (State::End(matched), _) if matched + 1 == END.len() => State::Ended,
            (State::End(matched), _) => State::End(matched + 1),
            (State::Length, _) => State::Damaged,
            (State::Data { left, sextets, bits }, b'\n') => {
                pad(left, sextets, bits, out);
                State::Length
            }
            (State::Data { .. }, b'\r') => self.state,
            (State::Data { left, sextets, bits }, _) => group(left, sextets, bits, byte, out),
        }
    }

    fn finish(&mut self, _out: &mut Out) -> io::Result<()> {
        let reason = match matches!(self.state, State::Damaged) {
            true => "a line of the uuencoded text does not begin with its length",
            false => "the uuencoded text is cut off or none at all",
        };
        match matches!(self.state, State::Ended) {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, reason)),
        }
    }
}

fn begin(matched: usize, byte: u8) -> State {
    match BEGIN.get(matched) {
        Some(&wanted) if wanted == byte && matched + 1 == BEGIN.len() => State::Mode,
        Some(&wanted) if wanted == byte => State::Begin(matched + 1),
        _ => State::Skip,
    }
}

/// End a line. Mail systems drop spaces at a line's end, so the zeros that these stand for are restored.
fn pad(left: u8, sextets: u8, bits: u32, out: &mut Out) {
    let bits = bits << (6 * u32::from(4_u8.saturating_sub(sextets)));
    let [_, bytes @ ..] = bits.to_be_bytes();
    bytes.into_iter().chain(std::iter::repeat(0)).take(usize::from(left)).for_each(|byte| out.push(byte));
}

/// Add one sextet. Four sextets produce three bytes, or fewer if the line has fewer bytes left.
fn group(mut left: u8, sextets: u8, bits: u32, byte: u8, out: &mut Out) -> State {
    let bits = (bits << 6) | u32::from(byte.wrapping_sub(ZERO) & 0x3f);
    if sextets < 3 {
        return State::Data { left, sextets: sextets + 1, bits };
    }
    let [_, bytes @ ..] = bits.to_be_bytes();
    for byte in bytes.into_iter().take(usize::from(left)) {
        out.push(byte);
        left -= 1;
    }
    State::Data { left, sextets: 0, bits: 0 }
}
