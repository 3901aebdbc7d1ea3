//! The decoder that turns the control stream's bytes, in pieces of any size, into frames.

use bytes::{Buf, Bytes, BytesMut};

use super::variable::VARIABLE_HEAD;
use super::{Extent, Frame, Layers, StatusFrame, measure, parse};
use crate::error::Result;

/// A decoder that takes the control stream as it arrives and returns its frames one by one.
///
/// It holds at most one incomplete frame (16 MiB, section 6.1), and only the bytes that have
/// arrived: it checks a frame's length but allocates no memory for it. The payloads of private
/// frames are dropped as they arrive.
#[derive(Debug, Clone, Default)]
pub struct FrameDecoder {
    buffer: BytesMut,
    /// How many bytes of a skipped payload have not arrived yet.
    skip: usize,
    layers: Layers,
}

impl FrameDecoder {
    /// Make a decoder at the start of the stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parse the frames of layer 2 from here on, because both ends have agreed on it.
    pub fn expect_layer2(&mut self) {
        self.layers = Layers::UpTo2;
    }

    /// Take the next bytes of the stream. Then call [`next_frame`](Self::next_frame) until it returns `None`.
    pub fn push(&mut self, mut bytes: Bytes) {
        let skipped = self.skip.min(bytes.len());
        bytes.advance(skipped);
        self.skip -= skipped;
        self.buffer.extend_from_slice(&bytes);
    }

    /// Return the next frame; `None` until more bytes arrive. A private frame is returned once its length is known. An
    /// error is final: the stream cannot be read beyond it.
    pub fn next_frame(&mut self) -> Result<Option<Frame>> {
        if let Some((frame, length)) = StatusFrame::parse_plain(&self.buffer)? {
            // Nearly every frame takes this path.
            self.buffer.advance(length);
            return Ok(Some(Frame::Status(frame)));
        }
        match measure(&self.buffer, self.layers)? {
            None => Ok(None),
            Some(Extent::Whole(length)) if self.buffer.len() < length => Ok(None),
            Some(Extent::Whole(length)) => parse(&self.buffer.split_to(length).freeze()).map(Some),
            Some(Extent::Skipped { frame_type, payload }) => {
                self.buffer.advance(VARIABLE_HEAD);
                let there = payload.min(self.buffer.len());
                self.buffer.advance(there);
                self.skip = payload - there;
                Ok(Some(Frame::Private(frame_type)))
            }
        }
    }

    /// Return how many bytes have arrived but were not returned as frames.
    pub(crate) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Return whether the stream would end inside a frame if it ended here, which is ENTITY_INVALID (decision 4).
    pub fn is_mid_frame(&self) -> bool {
        self.skip > 0 || !self.buffer.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;
    use crate::frame::{Barrier, StatusFrame};

    #[test]
    fn a_private_frame_is_given_before_its_payload_and_nothing_of_it_is_kept() {
        let mut decoder = FrameDecoder::new();
        decoder.push(Bytes::from_static(&[0xC1, 0x00, 0xFF, 0xFF, 0xFF, 1, 2, 3]));
        assert_eq!(decoder.next_frame(), Ok(Some(Frame::Private(0xC1))));
        let mut left = 0xFF_FFFF - 3;
        while left > 0 {
            assert!(decoder.is_mid_frame());
            let piece = left.min(65_536);
            decoder.push(Bytes::from(vec![0x50; piece]));
            assert_eq!((decoder.next_frame(), decoder.buffer.capacity() < 1024), (Ok(None), true));
            left -= piece;
        }
        assert!(!decoder.is_mid_frame());
        decoder.push(StatusFrame::heartbeat().encode_to_vec().into());
        assert_eq!(decoder.next_frame(), Ok(Some(Frame::Status(StatusFrame::heartbeat()))));
    }

    #[test]
    fn a_length_above_the_limit_is_refused_at_once() {
        for frame_type in [0x80, 0x81, 0xC0, 0xC1, 0xFF] {
            let mut decoder = FrameDecoder::new();
            decoder.push(Bytes::copy_from_slice(&[frame_type, 0x01, 0, 0, 0]));
            assert_eq!(decoder.next_frame().expect_err("too long").code(), ErrorCode::EntityTooLarge);
        }
    }

    #[test]
    fn an_unknown_type_is_refused_by_its_first_byte() {
        let known = [0x50, 0x54, 0x55, 0x80, 0x81];
        for frame_type in (0x00..=0xBF).filter(|frame_type| !known.contains(frame_type)) {
            let mut decoder = FrameDecoder::new();
            decoder.push(Bytes::copy_from_slice(&[frame_type]));
            assert_eq!(decoder.next_frame().expect_err("unknown").code(), ErrorCode::EntityInvalid);
        }
    }

    #[test]
    fn a_length_is_believed_without_taking_memory_for_it() {
        let mut decoder = FrameDecoder::new();
        decoder.push(Bytes::from_static(&[0x81, 0x00, 0xFF, 0xFF, 0xFF]));
        assert_eq!(decoder.next_frame(), Ok(None));
        assert!(decoder.is_mid_frame() && decoder.buffer.capacity() < 1024);
    }

    #[test]
    fn frames_that_come_together_are_given_one_by_one() {
        let barrier = Barrier { released: true, barrier_id: 2, parent_id: 3 };
        let mut bytes = BytesMut::new();
        barrier.encode(&mut bytes);
        StatusFrame::heartbeat().encode(&mut bytes);
        let mut decoder = FrameDecoder::new();
        decoder.push(bytes.freeze());
        assert_eq!(decoder.next_frame(), Ok(Some(Frame::Barrier(barrier))));
        assert_eq!(decoder.next_frame(), Ok(Some(Frame::Status(StatusFrame::heartbeat()))));
        assert_eq!((decoder.next_frame(), decoder.is_mid_frame()), (Ok(None), false));
    }
}
