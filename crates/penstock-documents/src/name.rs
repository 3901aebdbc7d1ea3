//! Names of members. Each is one segment of a part's path, even with slashes in it, and is never used as a file path.

use std::fmt::Write;

/// Return a member's name from its bytes: UTF-8 is kept, any other byte is written as `\xhh` in lower case.
pub(crate) fn decode(bytes: &[u8], limit: usize) -> String {
    let mut name = String::new();
    for chunk in bytes.utf8_chunks() {
        if name.len() > limit {
            break;
        }
        name.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(name, "\\x{byte:02x}");
        }
    }
    cut(&mut name, limit);
    name
}

/// Cut `text` to at most `limit` bytes, between characters. Return whether something was cut off.
pub(crate) fn cut(text: &mut String, limit: usize) -> bool {
    if text.len() <= limit {
        return false;
    }
    let end = (0..=limit).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    text.truncate(end);
    true
}

/// Return the name of a part without one: its position among its container's children, counted from 1.
pub(crate) fn part(position: u64) -> String {
    format!("part {position}")
}

/// Return the name of a compressed stream's content from the stream's name: the suffix is removed, and `.tgz` and
/// similar become `.tar`.
pub(crate) fn stem(name: &str) -> Option<String> {
    let (stem, suffix) = name.rsplit_once('.')?;
    let plain = ["gz", "bz2", "xz", "zst"].iter().any(|known| suffix.eq_ignore_ascii_case(known));
    let tar = ["tgz", "tbz2", "txz", "tzst"].iter().any(|known| suffix.eq_ignore_ascii_case(known));
    match (plain, tar) {
        _ if stem.is_empty() => None,
        (true, _) => Some(stem.to_owned()),
        (_, true) => Some(format!("{stem}.tar")),
        (false, false) => None,
    }
}

/// Return whether `name` ends in `.` and one of `suffixes`, in any case.
pub(crate) fn has_suffix(name: &str, suffixes: &[&str]) -> bool {
    name.rsplit_once('.').is_some_and(|(_, own)| suffixes.iter().any(|suffix| own.eq_ignore_ascii_case(suffix)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_do_not_decode_are_written_in_hex() {
        assert_eq!(decode(b"caf\xe9/\xff.txt", 100), r"caf\xe9/\xff.txt");
        assert_eq!(decode("höhe/../x".as_bytes(), 100), "höhe/../x");
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        assert_eq!(decode("aéé".as_bytes(), 4), "aé");
        assert_eq!(decode(&[0xff; 100], 6), r"\xff\x");
    }

    #[test]
    fn a_stream_is_named_by_its_container_without_the_suffix() {
        assert_eq!(stem("a.tar.gz").as_deref(), Some("a.tar"));
        assert_eq!(stem("a.TGZ").as_deref(), Some("a.tar"));
        assert_eq!(stem("a.txt"), None);
        assert_eq!(stem(".gz"), None);
    }
}
