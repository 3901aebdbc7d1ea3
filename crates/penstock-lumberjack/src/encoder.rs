//! Frames put together into what a writer sends.

use std::io::Write as _;

use bytes::{BufMut as _, BytesMut};
use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::frame::COMPRESSED;
use crate::{Error, Result, Version};

/// Appends a compressed frame that holds the frames given, whole ones, at zlib's level 1 to 9.
///
/// Fails as a misuse if what they are compressed to has 4 GiB or more; nothing is appended then.
pub fn compress(version: Version, frames: &[u8], level: u32, out: &mut BytesMut) -> Result<()> {
    let start = out.len();
    out.put_slice(&[version.octet(), COMPRESSED, 0, 0, 0, 0]);
    let body = out.len();
    let mut encoder = ZlibEncoder::new(out.writer(), Compression::new(level.min(9)));
    // Nothing fails that is written into memory.
    let written = encoder.write_all(frames).and_then(|()| encoder.try_finish());
    drop(encoder);
    let length = out.len().checked_sub(body).and_then(|length| u32::try_from(length).ok());
    match (written, length, out.get_mut(start + 2..body)) {
        (Ok(()), Some(length), Some(field)) => {
            field.copy_from_slice(&length.to_be_bytes());
            Ok(())
        }
        _ => {
            out.truncate(start);
            Err(Error::misuse("what is to be compressed is too long for one frame"))
        }
    }
}
