//! The headers of a tar archive: what describes one member, and what the members before it add to that (GNU long
//! names, pax records).

use std::io;

use ::tar::{EntryType, Header, PaxExtensions};

use crate::failure::Failure;

/// The unit of a tar archive.
pub(crate) const BLOCK: u64 = 512;

/// Whether `block` is a header: the sum over its octets is in it (POSIX ustar; some old writers summed signed octets).
pub(crate) fn is_header(block: &[u8]) -> bool {
    decode(block).is_some()
}

/// The header in `block`, if its checksum holds.
pub(crate) fn decode(block: &[u8]) -> Option<Header> {
    let mut header = Header::new_old();
    header.as_mut_bytes().copy_from_slice(block.first_chunk::<{ BLOCK as usize }>()?);
    let expected = i64::from(header.cksum().ok()?);
    // The checksum's own field counts as spaces.
    let blank = (148..156).fold(0, |sum, _| sum + i64::from(b' '));
    let counted = || block.iter().take(BLOCK as usize).enumerate().filter(|(at, _)| !(148..156).contains(at));
    let unsigned = counted().fold(blank, |sum, (_, octet)| sum + i64::from(*octet));
    let signed = counted().fold(blank, |sum, (_, octet)| sum + i64::from(octet.cast_signed()));
    (expected != 0 && (expected == unsigned || expected == signed)).then_some(header)
}

/// What the headers before a member's own say of it.
#[derive(Default)]
pub(crate) struct Ahead {
    pub(crate) name: Option<Vec<u8>>,
    pub(crate) link: Option<Vec<u8>>,
    pub(crate) size: Option<u64>,
    pub(crate) sparse: bool,
    /// What was wrong with one of them: the member cannot be trusted.
    pub(crate) damage: Option<Failure>,
}

impl Ahead {
    /// Takes in the octets of a GNU long name (`L`) or long link (`K`).
    pub(crate) fn take_long(&mut self, kind: EntryType, octets: &[u8]) {
        let text = octets.split(|&octet| octet == 0).next().unwrap_or_default().to_vec();
        if kind.is_gnu_longlink() {
            self.link = Some(text);
        } else {
            self.name = Some(text);
        }
    }

    /// Takes in a member's pax records.
    pub(crate) fn take_pax(&mut self, octets: &[u8]) {
        for record in PaxExtensions::new(octets) {
            match record.and_then(|record| self.take_record(record.key_bytes(), record.value_bytes())) {
                Ok(()) => {}
                Err(error) => self.damage = Some(Failure::broken(format!("the member's pax header: {error}"))),
            }
        }
    }

    fn take_record(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        match key {
            b"path" | b"GNU.sparse.name" => self.name = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => {
                let size = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                self.size = Some(size.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "malformed size"))?);
            }
            _ if key.starts_with(b"GNU.sparse.") => self.sparse = true,
            _ => {}
        }
        Ok(())
    }
}
