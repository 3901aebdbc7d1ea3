//! HTTP/1.1 as a load generator needs it: a connection that is kept, requests that are bytes, answers of a known length.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// A connection.
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// How much of the buffer was read and not used.
    filled: usize,
    host: String,
}

/// An answer: its status, and how long its body is. The body itself is in the client's buffer until the next request.
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Client {
    pub fn connect(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self { stream, buffer: vec![0; 256 << 10], filled: 0, host: address.to_owned() })
    }

    /// The bytes of a request.
    pub fn request(&self, method: &str, path: &str, key: Option<&str>, body: &[u8]) -> Vec<u8> {
        let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n", self.host);
        if let Some(key) = key {
            bytes.push_str(&format!("Authorization: Bearer {key}\r\n"));
        }
        if !body.is_empty() || method != "GET" {
            bytes.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
        }
        bytes.push_str("\r\n");
        [bytes.as_bytes(), body].concat()
    }

    pub fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request)
    }

    /// Sends a request and reads its answer.
    pub fn ask(&mut self, request: &[u8]) -> io::Result<Answer> {
        self.send(request)?;
        self.answer()
    }

    fn fill(&mut self) -> io::Result<usize> {
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let read = self.stream.read(&mut self.buffer[self.filled..])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.filled += read;
        Ok(read)
    }

    /// Reads the head: its status, the body's length (`None`: in pieces), and how long the head is.
    fn head(&mut self) -> io::Result<(u16, Option<usize>, usize)> {
        loop {
            if let Some(end) = self.buffer[..self.filled].windows(4).position(|window| window == b"\r\n\r\n") {
                let text = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
                let status =
                    text.get(9..12).and_then(|status| status.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
                let length = text.lines().find_map(|line| {
                    let (name, value) = line.split_once(':')?;
                    name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
                });
                let pieces = text.to_ascii_lowercase().contains("transfer-encoding: chunked");
                return Ok((status, if pieces { None } else { Some(length.unwrap_or(0)) }, end + 4));
            }
            self.fill()?;
        }
    }

    pub fn answer(&mut self) -> io::Result<Answer> {
        let (status, length, head) = self.head()?;
        let length = length.ok_or_else(|| io::Error::other("an answer in pieces"))?;
        while self.filled < head + length {
            self.fill()?;
        }
        let body = self.buffer[head..head + length].to_vec();
        self.buffer.copy_within(head + length..self.filled, 0);
        self.filled -= head + length;
        Ok(Answer { status, body })
    }

    /// Reads an answer in pieces to its end; gives its bytes without the pieces' lengths.
    pub fn download(&mut self) -> io::Result<Vec<u8>> {
        let (_, length, head) = self.head()?;
        if length.is_some() {
            return Err(io::Error::other("an answer of a known length"));
        }
        let (mut at, mut bytes) = (head, Vec::new());
        loop {
            let line = loop {
                match self.buffer[at..self.filled].windows(2).position(|window| window == b"\r\n") {
                    Some(end) => break at..at + end,
                    None => self.fill()?,
                };
            };
            let size = String::from_utf8_lossy(&self.buffer[line.clone()]).into_owned();
            let size = usize::from_str_radix(&size, 16).map_err(io::Error::other)?;
            at = line.end + 2;
            while self.filled < at + size + 2 {
                self.fill()?;
            }
            bytes.extend_from_slice(&self.buffer[at..at + size]);
            self.buffer.copy_within(at + size + 2..self.filled, 0);
            self.filled -= at + size + 2;
            at = 0;
            if size == 0 {
                return Ok(bytes);
            }
        }
    }
}
