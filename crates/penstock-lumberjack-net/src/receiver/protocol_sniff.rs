//! Detects clients that speak another protocol (decision 11).

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// How long the sniffer waits for more bytes if the first ones are not recognised.
const SNIFF_INTERVAL: Duration = Duration::from_millis(200);
/// The time limit of the answer to HTTP, and the most bytes of the request that are read.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const REQUEST: u64 = 64 << 10;
const HTTP: [&[u8]; 8] = [b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"CONN", b"PRI "];

/// The protocol that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum DetectedProtocol {
    /// The expected protocol, or an unrecognised one.
    Expected,
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
    /// Return its name in the metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Expected => "lumberjack",
            Self::Http => "http",
            Self::Tls => "tls",
            Self::PlainLumberjack => "plain_lumberjack",
            Self::Plain => "plain_text",
        }
    }

    /// Return an explanation with a remedy.
    pub(super) const fn explanation(self, tls: bool) -> &'static str {
        match self {
            Self::Expected => "Lumberjack",
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

/// Peek at the first bytes, which stay in the socket; `None` if the client closed before it sent any.
pub(super) async fn sniff(stream: &TcpStream, tls: bool) -> std::io::Result<Option<DetectedProtocol>> {
    let mut bytes = [0_u8; 8];
    let mut read = stream.peek(&mut bytes).await?;
    let first = bytes.first().copied().filter(|_| read > 0);
    let Some(first) = first else { return Ok(None) };
    if tls && first == 0x16 {
        return Ok(Some(DetectedProtocol::Expected));
    }
    let version = !tls && matches!(first, b'1' | b'2');
    if read < 4 && !version {
        // These bytes are too few to decide; more may follow.
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
                sleep(SNIFF_INTERVAL / 10).await;
            }
        };
        // Decide with the bytes that have arrived by then.
        let _ = timeout(SNIFF_INTERVAL, more).await;
    }
    Ok(Some(classify(bytes.get(..read).unwrap_or_default(), tls)))
}

/// Answer an HTTP client, such as curl or a misconfigured health check, in HTTP.
pub(super) async fn answer_http(mut stream: TcpStream) {
    const ANSWER: &[u8] =
        b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 43\r\nConnection: close\r\n\r\n\
        This port takes Lumberjack, and not HTTP.\r\n";
    let answering = async {
        stream.write_all(ANSWER).await?;
        stream.shutdown().await?;
        // Unread bytes would cause a reset, which could overtake the response.
        tokio::io::copy(&mut stream.take(REQUEST), &mut tokio::io::sink()).await
    };
    // The client may have disconnected.
    let _ = timeout(ANSWER_TIMEOUT, answering).await;
}

fn classify(bytes: &[u8], tls: bool) -> DetectedProtocol {
    match bytes {
        [0x16, 0x03, ..] if !tls => DetectedProtocol::Tls,
        [b'1' | b'2', b'W' | b'C' | b'J' | b'D', ..] if tls => DetectedProtocol::PlainLumberjack,
        bytes if HTTP.iter().any(|method| bytes.starts_with(method)) => DetectedProtocol::Http,
        _ if tls => DetectedProtocol::Plain,
        // Text in the high bytes of a size, a length or a count would mean half a billion.
        [b'1' | b'2', b'W' | b'C' | b'J' | b'D', rest @ ..] => {
            if rest.len() >= 6 && rest.iter().all(is_text) {
                DetectedProtocol::Plain
            } else {
                DetectedProtocol::Expected
            }
        }
        // No frame starts with four bytes of text.
        [first @ .., _] if bytes.len() >= 4 && first.iter().all(is_text) => DetectedProtocol::Plain,
        _ => DetectedProtocol::Expected,
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
            (b"3W\0\0\0\x01", false, DetectedProtocol::Expected),
            (b"<1", false, DetectedProtocol::Expected),
            (b"12345 he", false, DetectedProtocol::Plain),
            (b"2 hello", false, DetectedProtocol::Plain),
            (b"1Day aft", false, DetectedProtocol::Plain),
            (b"2", false, DetectedProtocol::Expected),
            (b"1Day", false, DetectedProtocol::Expected),
            (b"2W\0\0\0\x01", false, DetectedProtocol::Expected),
            (b"2J    \0\0", false, DetectedProtocol::Expected),
            (b"1A\0\0\0\x01", false, DetectedProtocol::Expected),
        ] {
            assert_eq!(classify(bytes, tls), speaks, "{bytes:?}");
        }
    }
}
