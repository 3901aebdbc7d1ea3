//! Decoders from bytes to bytes, as state machines.

use std::io::{self, BufRead, BufReader, Read};

/// A decoder from bytes to bytes, with its state between calls.
pub(super) trait TransferDecoder {
    /// Decode bytes from the front of `input` into `buffer` as long as that needs no state. Return how many bytes were
    /// consumed and produced. The next byte then goes to [`Self::step`].
    fn run(&mut self, _input: &[u8], _buffer: &mut [u8]) -> (usize, usize) {
        (0, 0)
    }

    fn step(&mut self, byte: u8, out: &mut Out);
    fn finish(&mut self, out: &mut Out) -> io::Result<()>;
}

/// The most bytes that one step produces: the missing rest of a uuencoded line.
const STEP: usize = 64;

/// The bytes that steps have produced and that are still to be read.
pub(super) struct Out {
    bytes: [u8; STEP],
    length: usize,
    read: usize,
}

impl Default for Out {
    fn default() -> Self {
        Self { bytes: [0; STEP], length: 0, read: 0 }
    }
}

impl Out {
    pub(super) fn push(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.length) {
            *slot = byte;
            self.length += 1;
        }
    }

    pub(super) fn pop(&mut self) -> Option<u8> {
        let byte = self.bytes.get(..self.length)?.get(self.read).copied();
        match byte {
            Some(_) => self.read += 1,
            None => (self.length, self.read) = (0, 0),
        }
        byte
    }
}

/// Reads the output of a machine that decodes an input.
pub(super) struct Decoder<R, M> {
    input: BufReader<R>,
    machine: M,
    out: Out,
    ended: bool,
}

impl<R: Read, M: TransferDecoder> Decoder<R, M> {
    pub(super) fn new(input: R, machine: M) -> Self {
        Self { input: BufReader::new(input), machine, out: Out::default(), ended: false }
    }
}

impl<R: Read, M: TransferDecoder> Read for Decoder<R, M> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut written = 0;
        while let Some(slot) = buffer.get_mut(written) {
            if let Some(byte) = self.out.pop() {
                *slot = byte;
                written += 1;
                continue;
            }
            if self.ended {
                break;
            }
            let ahead = self.input.fill_buf()?;
            let (taken, count) = self.machine.run(ahead, buffer.get_mut(written..).unwrap_or_default());
            written += count;
            if let Some(&byte) = ahead.get(taken) {
                self.machine.step(byte, &mut self.out);
                self.input.consume(taken + 1);
            } else if taken > 0 {
                self.input.consume(taken);
            } else {
                self.ended = true;
                self.machine.finish(&mut self.out)?;
            }
        }
        Ok(written)
    }
}
