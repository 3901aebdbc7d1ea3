//! Bytes as hex digits: digests, names of sessions and of stores.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Return the bytes as lower-case hex digits, two for each byte.
///
/// ```
/// assert_eq!(penstock_wire::hex::encode([0x00, 0x9f, 0xff]), "009fff");
/// ```
pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes.as_ref();
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        for nibble in [byte >> 4, byte & 0x0F] {
            text.push(DIGITS.get(usize::from(nibble)).map_or('0', |digit| char::from(*digit)));
        }
    }
    text
}

/// Return the `N` bytes that `2 * N` hex digits of either case stand for; `None` for any other text.
///
/// ```
/// assert_eq!(penstock_wire::hex::decode("009FfF"), Some([0x00, 0x9f, 0xff]));
/// assert_eq!(penstock_wire::hex::decode::<3>("009f"), None);
/// ```
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = nibble(*high)? << 4 | nibble(*low)?;
    }
    Some(bytes)
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back_from_its_digits() {
        let all: [u8; 256] = std::array::from_fn(|index| index as u8);
        let text = encode(all);
        assert_eq!(&text[..8], "00010203");
        assert_eq!(decode(&text), Some(all));
        assert_eq!(decode(&text.to_uppercase()), Some(all));
    }

    #[test]
    fn only_as_many_digits_as_the_bytes_need_are_decoded() {
        for text in ["", "0", "000", "0000", "+1", " 1", "g0", "0g", "é"] {
            assert_eq!(decode::<1>(text), None, "{text:?}");
        }
        assert_eq!(decode::<0>(""), Some([]));
    }
}
