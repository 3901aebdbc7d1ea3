//! Jobs as a client writes them, to a buffer and to Redis behind webdis.

/// A job of the bare endpoint.
pub const JOB: &str = "550e8400-e29b-41d4-a716-446655440000";

/// The ID of the job of this number.
pub fn id(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-{:012x}", std::process::id())
}

/// Envelopes from an index on.
pub fn chunks(job: &str, first: usize, count: usize, size: usize) -> Vec<String> {
    let value = "x".repeat(size);
    let envelope = |index| {
        format!(
            r#"{{"jobId":"{job}","index":{index},"value":"{value}","done":false,"error":null,"createdAt":1713600000000}}"#
        )
    };
    (first..first + count).map(envelope).collect()
}

/// The body of a poll's answer.
pub fn poll(chunks: &[String], next: usize) -> String {
    format!(r#"{{"chunks":[{}],"nextIndex":{next}}}"#, chunks.join(","))
}

/// The body of a write.
pub fn write(chunks: &[String]) -> String {
    format!(r#"{{"chunks":[{}]}}"#, chunks.join(","))
}

/// The same for webdis: RPUSH of the envelopes, whose quotes and the like are written so that it takes them.
pub fn push(job: &str, chunks: &[String]) -> String {
    let mut body = format!("RPUSH/{job}");
    for chunk in chunks {
        body.push('/');
        for byte in chunk.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => body.push(byte as char),
                _ => body.push_str(&format!("%{byte:02x}")),
            }
        }
    }
    body
}
