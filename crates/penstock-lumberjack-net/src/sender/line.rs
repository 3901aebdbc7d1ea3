use super::Chunk;
use crate::columns::is_object;

/// Lines of a file, or of standard input, as events.
///
/// A line that is a JSON object is sent unchanged. Any other line becomes `{"@timestamp": ..,
/// "message": LINE, "host": {"name": ..}, "log": {"offset": .., "file": {"path": ..}}}`, in the
/// names that Filebeat uses; as pairs, it becomes `line`, `@timestamp`, `host`, `file` and
/// `offset`, which except for `@timestamp` are the names of logstash-forwarder. Bytes that are not
/// UTF-8 are written as `\xHH`, with the tag `_charsetfailure`. The time distinguishes equal lines,
/// which a receiver would otherwise treat as one line sent again.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// The time at which the lines were read, in the format of RFC 3339.
    pub time: &'a str,
    /// The host name.
    pub host: &'a str,
    /// The file; `None` for standard input.
    pub path: Option<&'a str>,
}

impl Line<'_> {
    /// Append each line of a text that starts at an offset of the file. Empty lines are skipped.
    pub fn push_all(&self, chunk: &mut Chunk, text: &[u8], offset: u64, map: bool) {
        let mut at = offset;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let content = line.strip_suffix(b"\n").unwrap_or(line);
            let content = content.strip_suffix(b"\r").unwrap_or(content);
            if !content.is_empty() {
                self.push(chunk, content, at, map);
            }
            at += line.len() as u64;
        }
    }

    fn push(&self, chunk: &mut Chunk, line: &[u8], offset: u64, map: bool) {
        let escaped;
        let (text, valid) = match std::str::from_utf8(line) {
            Ok(text) => (text, true),
            Err(_) => {
                escaped = escape(line);
                (escaped.as_str(), false)
            }
        };
        if map {
            let number = offset.to_string();
            let mut pairs = vec![("line", text), ("@timestamp", self.time), ("host", self.host)];
            if let Some(path) = self.path {
                pairs.extend([("file", path), ("offset", number.as_str())]);
            }
            if !valid {
                pairs.push(("tags", "_charsetfailure"));
            }
            chunk.push_map(pairs.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())));
        } else if valid && is_object(line) {
            chunk.push_json(line);
        } else {
            chunk.push_json_with(|out| self.write(out, text, offset, valid));
        }
    }

    fn write(&self, out: &mut Vec<u8>, text: &str, offset: u64, valid: bool) {
        // Writing into memory cannot fail.
        let string = |out: &mut Vec<u8>, text: &str| drop(serde_json::to_writer(out, text));
        out.extend_from_slice(b"{\"@timestamp\":");
        string(out, self.time);
        out.extend_from_slice(b",\"message\":");
        string(out, text);
        out.extend_from_slice(b",\"host\":{\"name\":");
        string(out, self.host);
        out.push(b'}');
        if let Some(path) = self.path {
            out.extend_from_slice(b",\"log\":{\"offset\":");
            out.extend_from_slice(offset.to_string().as_bytes());
            out.extend_from_slice(b",\"file\":{\"path\":");
            string(out, path);
            out.extend_from_slice(b"}}");
        }
        if !valid {
            out.extend_from_slice(b",\"tags\":[\"_charsetfailure\"]");
        }
        out.push(b'}');
    }
}

fn escape(line: &[u8]) -> String {
    let mut text = String::with_capacity(line.len() + 16);
    for part in line.utf8_chunks() {
        text.push_str(part.valid());
        for byte in part.invalid() {
            text.push_str(&format!("\\x{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_objects_go_as_they_are_and_other_lines_as_messages() {
        let mut out = Vec::new();
        Line { time: "t", host: "h", path: Some("/f") }.write(&mut out, &escape(b"a\xFFb\""), 7, false);
        let text = String::from_utf8(out).unwrap();
        let expected = r#"{"@timestamp":"t","message":"a\\xFFb\"","host":{"name":"h"},"log":{"offset":7,"file":{"path":"/f"}},"tags":["_charsetfailure"]}"#;
        assert_eq!(text, expected);
        let mut chunk = Chunk::default();
        Line { time: "t", host: "h", path: None }.push_all(&mut chunk, b"{\"a\":1}\r\n\nplain\nlast", 0, false);
        assert_eq!(chunk.len(), 3);
    }
}
