use crate::error::{Malformed, Result};
use crate::frame::{Frame, HEADER, Opcode, TaskId, VERSION};
use crate::limits::{LARGEST, REASON, SUBSCRIBE};

/// The direction of the frames that a decoder accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepts {
    /// Frames to a daemon.
    ToDaemon {
        /// The most bytes of a SUBMIT's payload: the largest size class.
        submit: usize,
    },
    /// Frames from a daemon.
    ToClient,
}

/// The result of decoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A frame.
    Frame(Frame<'a>),
    /// A frame to answer with ERROR. Its bytes are skipped as they arrive, unless the connection ends.
    Refused(Malformed),
}

/// A decoder that finds frames in bytes which arrive in pieces of any size.
///
/// A frame that arrives whole is borrowed from the input. Only an incomplete frame is buffered, so an idle connection
/// costs nothing, and a busy one at most the largest accepted frame.
///
/// ```text
///            6 bytes              payload whole
///  Header ─────────────▶ Payload ───────────────▶ Header
///    │ refused                │ beyond what is kept of a reason
///    ├─────────▶ Skip ◀───────┘
///    │             └── skipped ──▶ Header
///    └─ wrong version, above 64 MiB ─▶ Ended
/// ```
#[derive(Debug)]
pub struct Decoder {
    accepts: Accepts,
    state: State,
    /// The received part of an incomplete frame or header.
    kept: Vec<u8>,
    /// Whether `kept` was returned as a frame; it is then dropped at the next call.
    given: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Header,
    Payload { opcode: Opcode, keep: usize, skip: usize },
    Skip(usize),
    Ended,
}

impl Decoder {
    /// Make a decoder for the beginning of a connection.
    pub const fn new(accepts: Accepts) -> Self {
        Self { accepts, state: State::Header, kept: Vec::new(), given: false }
    }

    /// Return whether a frame has begun and is incomplete.
    pub fn is_mid_frame(&self) -> bool {
        match self.state {
            State::Header => !self.kept.is_empty() && !self.given,
            State::Payload { .. } | State::Skip(_) => true,
            State::Ended => false,
        }
    }

    /// Return the buffered bytes of an incomplete frame.
    pub fn kept(&self) -> usize {
        self.kept.capacity()
    }

    /// Drop the frame that was returned last.
    pub(crate) fn forget_given(&mut self) {
        if std::mem::take(&mut self.given) {
            self.kept = Vec::new();
        }
    }

    /// Skip the rest of an incomplete frame, and drop its buffered part; return whether there was one.
    pub(crate) fn abandon(&mut self) -> bool {
        let State::Payload { keep, skip, .. } = self.state else { return false };
        self.state = State::Skip(keep - self.kept.len() + skip);
        self.kept = Vec::new();
        true
    }

    /// Pass every frame in the input to a function until the function fails. A frame to refuse is
    /// an error here, because clients do not answer with ERROR.
    pub(crate) fn each_frame(&mut self, mut input: &[u8], mut take: impl FnMut(Frame<'_>) -> Result<()>) -> Result<()> {
        while let Some(decoded) = self.next_frame(&mut input) {
            match decoded {
                Decoded::Frame(frame) => take(frame)?,
                Decoded::Refused(malformed) => return Err(malformed.into()),
            }
        }
        Ok(())
    }

    /// Return the next frame in the input, and advance the input; `None` once the input is consumed.
    pub fn next_frame<'d, 'i: 'd>(&'d mut self, input: &mut &'i [u8]) -> Option<Decoded<'d>> {
        self.forget_given();
        loop {
            match self.state {
                State::Header => {
                    let header = self.header(input)?;
                    let (opcode, length) = match header {
                        Ok(header) => header,
                        Err(malformed) => return Some(Decoded::Refused(malformed)),
                    };
                    match self.begin(opcode, length) {
                        Ok(state) => self.state = state,
                        Err(malformed) => {
                            let skip = State::Skip(length as usize);
                            self.state = if malformed.is_fatal() { State::Ended } else { skip };
                            return Some(Decoded::Refused(malformed));
                        }
                    }
                }
                State::Skip(bytes) => {
                    let left = bytes - take(input, bytes).len();
                    if left > 0 {
                        self.state = State::Skip(left);
                        return None;
                    }
                    self.state = State::Header;
                }
                State::Payload { opcode, keep, skip } => {
                    if self.kept.is_empty() && input.len() >= keep {
                        self.state = State::Skip(skip);
                        return Some(decode(opcode, take(input, keep)));
                    }
                    let missing = keep - self.kept.len();
                    let fresh = take(input, missing);
                    // The buffer doubles as bytes arrive, up to the length of the whole frame.
                    if self.kept.capacity() - self.kept.len() < fresh.len() {
                        let room = (self.kept.capacity() * 2).clamp(self.kept.len() + fresh.len(), keep);
                        self.kept.reserve_exact(room - self.kept.len());
                    }
                    self.kept.extend_from_slice(fresh);
                    if self.kept.len() < keep {
                        return None;
                    }
                    (self.state, self.given) = (State::Skip(skip), true);
                    return Some(decode(opcode, &self.kept));
                }
                State::Ended => {
                    *input = &[];
                    return None;
                }
            }
        }
    }

    /// Return the next header once its six bytes have arrived, or an error as soon as its version is wrong.
    fn header(&mut self, input: &mut &[u8]) -> Option<Result<(u8, u32), Malformed>> {
        // The fast path: nearly every header arrives whole.
        if self.kept.is_empty()
            && let Some(([VERSION, opcode, length @ ..], rest)) = input.split_first_chunk::<HEADER>()
        {
            *input = rest;
            return Some(Ok((*opcode, u32::from_be_bytes(*length))));
        }
        let missing = HEADER - self.kept.len();
        let fresh = take(input, missing);
        let mut header = [0; HEADER];
        header.iter_mut().zip(self.kept.iter().chain(fresh)).for_each(|(to, from)| *to = *from);
        let [version, opcode, length @ ..] = header;
        if self.kept.len() + fresh.len() > 0 && version != VERSION {
            self.state = State::Ended;
            self.kept = Vec::new();
            return Some(Err(Malformed::Version(version)));
        }
        if fresh.len() < missing {
            self.kept.extend_from_slice(fresh);
            return None;
        }
        self.kept = Vec::new();
        Some(Ok((opcode, u32::from_be_bytes(length))))
    }

    /// Return the state that receives the payload of a frame. The length is checked before anything
    /// is buffered.
    fn begin(&self, byte: u8, length: u32) -> Result<State, Malformed> {
        if length > LARGEST {
            return Err(Malformed::FrameLength { length });
        }
        let Some(opcode) = Opcode::from_byte(byte) else {
            return Err(Malformed::Opcode(byte));
        };
        let payload = length as usize;
        let (expected, submit) = match self.accepts {
            Accepts::ToDaemon { submit } => (!opcode.is_daemons(), submit),
            Accepts::ToClient => (opcode.is_to_clients(), usize::MAX),
        };
        if !expected {
            return Err(Malformed::Direction(opcode));
        }
        if opcode.length().is_some_and(|length| length != payload) {
            return Err(Malformed::PayloadLength { opcode, length: payload });
        }
        if matches!(opcode, Opcode::Submit | Opcode::SubmitOnce) && payload > submit {
            return Err(Malformed::TaskLength { length: payload, largest: submit });
        }
        if opcode == Opcode::Subscribe && payload > SUBSCRIBE {
            return Err(Malformed::SubscribeLength { length: payload });
        }
        let keep = if opcode == Opcode::Failed { payload.min(TaskId::LENGTH + REASON) } else { payload };
        Ok(State::Payload { opcode, keep, skip: payload - keep })
    }
}

fn decode(opcode: Opcode, payload: &[u8]) -> Decoded<'_> {
    Frame::decode(opcode, payload).map_or_else(Decoded::Refused, Decoded::Frame)
}

/// Take at most this many bytes from the front.
fn take<'i>(input: &mut &'i [u8], bytes: usize) -> &'i [u8] {
    let (taken, rest) = input.split_at(bytes.min(input.len()));
    *input = rest;
    taken
}
