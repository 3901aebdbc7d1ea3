//! Decision 11: what is plainly another protocol is named.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// How long those who send nothing that we know have for a second look at it.
const LOOK: Duration = Duration::from_millis(200);
/// How long the answer to HTTP may take, and how much of the request is read.
const ANSWERING: Duration = Duration::from_secs(2);
const REQUEST: u64 = 64 << 10;
const HTTP: [&[u8]; 8] = [b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"CONN", b"PRI "];

/// What a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum DetectedProtocol {
    /// What belongs on this port, or nothing that can be told.
    Ours,
    /// HTTP.
    Http,
    /// TLS on a plain port.
    Tls,
    /// Lumberjack without TLS on a TLS port.
    PlainLumberjack,
    /// Plain text, with or without TLS on the port.
    Plain,
}

impl DetectedProtocol {
    /// Its name in the metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "lumberjack",
            Self::Http => "http",
            Self::Tls => "tls",
            Self::PlainLumberjack => "plain_lumberjack",
            Self::Plain => "plain_text",
        }
    }

    /// In plain words, and what to do.
    pub(super) const fn words(self, tls: bool) -> &'static str {
        match self {
            Self::Ours => "Lumberjack",
            Self::Http => "the client speaks HTTP, not Lumberjack: is this the port that its output is meant for?",
            Self::Tls => {
                "the client speaks TLS, and this port is plain: give the receiver a certificate, or turn TLS off there"
            }
            Self::PlainLumberjack => {
                "the client speaks Lumberjack without TLS, and this port wants TLS: turn it on there (ssl.enabled: true)"
            }
            Self::Plain if tls => "the client sends plain text, and this port wants TLS",
            Self::Plain => {
                "the client sends plain text, not Lumberjack: is this the port that its output is meant for?"
            }
        }
    }
}

/// Looks at the first bytes, which stay in the socket; None if the client went away before it sent any.
pub(super) async fn look(stream: &TcpStream, tls: bool) -> std::io::Result<Option<DetectedProtocol>> {
    let mut bytes = [0_u8; 8];
    let mut read = stream.peek(&mut bytes).await?;
    let first = bytes.first().copied().filter(|_| read > 0);
    let Some(first) = first else { return Ok(None) };
    if tls && first == 0x16 {
        return Ok(Some(DetectedProtocol::Ours));
    }
    let version = !tls && matches!(first, b'1' | b'2');
    if read < 4 && !version {
        // Little can be told from so few; they may come one by one.
        let more = async {
            loop {
                match stream.peek(&mut bytes).await {
                    Ok(few @ 1..4) => read = few,
                    Ok(0) | Err(_) => break,
                    Ok(enough) => {
                        read = enough;
                        break;
                    }
                }
                sleep(LOOK / 10).await;
            }
        };
        // What is there by then has to do.
        let _ = timeout(LOOK, more).await;
    }
    Ok(Some(name(bytes.get(..read).unwrap_or_default(), tls)))
}

/// Tells who speaks HTTP in its own words: a person with curl, a health check of the wrong kind.
pub(super) async fn answer_http(mut stream: TcpStream) {
    const ANSWER: &[u8] =
        b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 43\r\nConnection: close\r\n\r\n\
        This port takes Lumberjack, and not HTTP.\r\n";
    let answering = async {
        stream.write_all(ANSWER).await?;
        stream.shutdown().await?;
        // Unread bytes would cause a reset, and that could overtake the answer.
        tokio::io::copy(&mut stream.take(REQUEST), &mut tokio::io::sink()).await
    };
    // Whoever has gone wanted no answer.
    let _ = timeout(ANSWERING, answering).await;
}

fn name(bytes: &[u8], tls: bool) -> DetectedProtocol {
    match bytes {
        [0x16, 0x03, ..] if !tls => DetectedProtocol::Tls,
        [b'1' | b'2', b'W' | b'C' | b'J' | b'D', ..] if tls => DetectedProtocol::PlainLumberjack,
        bytes if HTTP.iter().any(|method| bytes.starts_with(method)) => DetectedProtocol::Http,
        _ if tls => DetectedProtocol::Plain,
        // Text where the high bytes of a size, a length or a count are would be half a billion.
        [b'1' | b'2', b'W' | b'C' | b'J' | b'D', rest @ ..] => {
            if rest.len() >= 6 && rest.iter().all(is_text) {
                DetectedProtocol::Plain
            } else {
                DetectedProtocol::Ours
            }
        }
        // No frame has four bytes of text at its beginning.
        [first @ .., _] if bytes.len() >= 4 && first.iter().all(is_text) => DetectedProtocol::Plain,
        _ => DetectedProtocol::Ours,
    }
}

fn is_text(byte: &u8) -> bool {
    byte.is_ascii_graphic() || byte.is_ascii_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_protocols_are_named() {
        for (bytes, tls, speaks) in [
            (&b"GET / HTTP/1.1"[..], false, DetectedProtocol::Http),
            (b"POST /_bulk", true, DetectedProtocol::Http),
            (b"PRI * HT", false, DetectedProtocol::Http),
            (&[0x16, 0x03, 0x01, 0x02], false, DetectedProtocol::Tls),
            (b"2W\0\0\0\x01", true, DetectedProtocol::PlainLumberjack),
            (b"<13>Oct 1", true, DetectedProtocol::Plain),
            (b"<13>Oct 1", false, DetectedProtocol::Plain),
            (b"HELO\r\n", false, DetectedProtocol::Plain),
            (b"3W\0\0\0\x01", false, DetectedProtocol::Ours),
            (b"<1", false, DetectedProtocol::Ours),
            (b"12345 he", false, DetectedProtocol::Plain),
            (b"2 hello", false, DetectedProtocol::Plain),
            (b"1Day aft", false, DetectedProtocol::Plain),
            (b"2", false, DetectedProtocol::Ours),
            (b"1Day", false, DetectedProtocol::Ours),
            (b"2W\0\0\0\x01", false, DetectedProtocol::Ours),
            (b"2J    \0\0", false, DetectedProtocol::Ours),
            (b"1A\0\0\0\x01", false, DetectedProtocol::Ours),
        ] {
            assert_eq!(name(bytes, tls), speaks, "{bytes:?}");
        }
    }
}
