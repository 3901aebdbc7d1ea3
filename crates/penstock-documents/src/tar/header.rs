//! The headers of a tar archive: the one that describes a member, and the extensions before it (GNU long names, pax
//! records).

use ::tar::{EntryType, Header};

use crate::failure::Failure;

/// The unit of a tar archive.
pub(crate) const BLOCK: u64 = 512;

/// Return whether `block` is a header: it contains the sum of its bytes (POSIX ustar; some old writers summed signed
/// bytes).
pub(crate) fn is_header(block: &[u8]) -> bool {
    decode(block).is_some()
}

/// Return the header in `block`, if its checksum is right.
pub(crate) fn decode(block: &[u8]) -> Option<Header> {
    let mut header = Header::new_old();
    header.as_mut_bytes().copy_from_slice(block.first_chunk::<{ BLOCK as usize }>()?);
    let expected = i64::from(header.cksum().ok()?);
    // The checksum field itself counts as spaces.
    let blank = (148..156).fold(0, |sum, _| sum + i64::from(b' '));
    let counted = || block.iter().take(BLOCK as usize).enumerate().filter(|(at, _)| !(148..156).contains(at));
    let unsigned = counted().fold(blank, |sum, (_, byte)| sum + i64::from(*byte));
    let signed = counted().fold(blank, |sum, (_, byte)| sum + i64::from(byte.cast_signed()));
    (expected != 0 && (expected == unsigned || expected == signed)).then_some(header)
}

/// The properties that the extension headers before a member's own header declare.
#[derive(Default)]
pub(crate) struct ExtendedHeaders {
    pub(crate) name: Option<Vec<u8>>,
    pub(crate) link: Option<Vec<u8>>,
    pub(crate) size: Option<u64>,
    pub(crate) sparse: bool,
    /// What is wrong with one of these headers; the member then fails.
    pub(crate) damage: Option<Failure>,
}

impl ExtendedHeaders {
    /// Add the bytes of a GNU long name (`L`) or long link (`K`).
    pub(crate) fn take_long(&mut self, kind: EntryType, bytes: &[u8]) {
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default().to_vec();
        if kind.is_gnu_longlink() {
            self.link = Some(text);
        } else {
            self.name = Some(text);
        }
    }

    /// Add a member's pax records: `LENGTH KEY=VALUE` and a line feed each. The length determines the record's end,
    /// because a value may contain line feeds.
    pub(crate) fn take_pax(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && bytes.first() != Some(&0) {
            let taken = record(bytes).ok_or(()).and_then(|(key, value, rest)| {
                bytes = rest;
                self.take_record(key, value)
            });
            if taken.is_err() {
                self.damage = Some(Failure::broken("the member's pax header is malformed"));
                return;
            }
        }
    }

    fn take_record(&mut self, key: &[u8], value: &[u8]) -> Result<(), ()> {
        match key {
            b"path" | b"GNU.sparse.name" => self.name = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(number(value).ok_or(())?),
            _ if key.starts_with(b"GNU.sparse.") => self.sparse = true,
            _ => {}
        }
        Ok(())
    }
}

/// Return the first record's key and value, and the bytes after the record.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().position(|&byte| byte == b' ')?;
    let length = usize::try_from(number(bytes.get(..space)?)?).ok()?;
    let (record, rest) = bytes.split_at_checked(length)?;
    let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|&byte| byte == b'=')?;
    Some((record.get(..equals)?, record.get(equals + 1..)?, rest))
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pax_value_may_hold_line_feeds() {
        let mut extended = ExtendedHeaders::default();
        extended.take_pax(b"14 xattr=a\nbc\n12 path=x\ny\n");
        assert_eq!((extended.name.as_deref(), extended.damage.is_none()), (Some(b"x\ny".as_slice()), true));
        for wrong in [b"9 path=xy\n".as_slice(), b"12 path=xy\n", b"path=xy\n", b"11 size=-1\n", b"99 a=b\n"] {
            let mut extended = ExtendedHeaders::default();
            extended.take_pax(wrong);
            assert!(extended.damage.is_some(), "{wrong:?}");
        }
    }
}
