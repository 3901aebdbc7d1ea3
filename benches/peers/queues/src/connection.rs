//! A socket, and a buffer for what is read from it.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

const READ: usize = 64 << 10;

/// A connection to a queue.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

/// Ends a connection from another thread.
pub(crate) struct Closer(TcpStream);

impl Closer {
    pub(crate) fn close(&self) {
        // An error means that it is over already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Connection {
    pub(crate) fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; 2 * READ].into_boxed_slice(), start: 0, end: 0 })
    }

    pub(crate) fn closer(&self) -> io::Result<Closer> {
        self.stream.try_clone().map(Closer)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.buffer.len() - self.end < READ {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let read = self.stream.read(&mut self.buffer[self.end..])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.end += read;
        Ok(())
    }

    /// So many bytes. They are at most 64 KiB.
    pub(crate) fn exactly(&mut self, count: usize) -> io::Result<&[u8]> {
        while self.end - self.start < count {
            self.fill()?;
        }
        self.start += count;
        Ok(&self.buffer[self.start - count..self.start])
    }

    /// Up to the next CR LF, without it.
    pub(crate) fn line(&mut self) -> io::Result<&[u8]> {
        let mut looked = 0;
        loop {
            let waiting = &self.buffer[self.start + looked..self.end];
            if let Some(at) = waiting.iter().position(|byte| *byte == b'\n') {
                let start = self.start;
                self.start += looked + at + 1;
                return Ok(&self.buffer[start..self.start - 2]);
            }
            looked = self.end - self.start;
            self.fill()?;
        }
    }
}
