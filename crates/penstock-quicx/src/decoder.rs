use crate::error::{Malformed, Result};
use crate::frame::{Frame, HEADER, Opcode, TaskId, VERSION};
use crate::limits::{LARGEST, REASON, SUBSCRIBE};

/// Whose frames a decoder takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepts {
    /// Those that a daemon gets. A SUBMIT may have so many bytes of payload: the largest size class.
    ToDaemon {
        /// Bytes.
        submit: usize,
    },
    /// Those that a daemon sends.
    ToClient,
}

/// What a decoder has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A frame.
    Frame(Frame<'a>),
    /// A frame to answer with ERROR. Its bytes are skipped as they come, unless the connection ends.
    Refused(Malformed),
}

/// Finds frames in bytes that come in any pieces.
///
/// A frame that is whole in what arrives is borrowed from there; only one that is cut is kept, so an idle connection costs
/// nothing and a busy one at most the largest frame that is taken.
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
    /// What has come of a frame, or of a header, that is cut.
    kept: Vec<u8>,
    /// `kept` was given as a frame, and goes with the next call.
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
    /// A decoder at the beginning of a connection.
    pub const fn new(accepts: Accepts) -> Self {
        Self { accepts, state: State::Header, kept: Vec::new(), given: false }
    }

    /// Whether a frame has begun that is not whole.
    pub fn is_mid_frame(&self) -> bool {
        match self.state {
            State::Header => !self.kept.is_empty() && !self.given,
            State::Payload { .. } | State::Skip(_) => true,
            State::Ended => false,
        }
    }

    /// Bytes kept of a frame that is cut.
    pub fn kept(&self) -> usize {
        self.kept.capacity()
    }

    /// Gives up the frame that was given last.
    pub(crate) fn forget_given(&mut self) {
        if std::mem::take(&mut self.given) {
            self.kept = Vec::new();
        }
    }

    /// Skips the rest of a frame that is not whole, and forgets what has come of it; says whether there was one.
    pub(crate) fn abandon(&mut self) -> bool {
        let State::Payload { keep, skip, .. } = self.state else { return false };
        self.state = State::Skip(keep - self.kept.len() + skip);
        self.kept = Vec::new();
        true
    }

    /// Hands every frame in what arrived to somebody, until one is not taken. What is refused is malformed: for the
    /// ends that have nobody to answer.
    pub(crate) fn each_frame(&mut self, mut input: &[u8], mut take: impl FnMut(Frame<'_>) -> Result<()>) -> Result<()> {
        while let Some(decoded) = self.next_frame(&mut input) {
            match decoded {
                Decoded::Frame(frame) => take(frame)?,
                Decoded::Refused(malformed) => return Err(malformed.into()),
            }
        }
        Ok(())
    }

    /// The next frame in what arrived, from which what was read is taken away; None when all of it was.
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
                    // It doubles as it comes, and has no more room than the whole needs.
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

    /// The next header, as soon as its six bytes are there; what is wrong with it as soon as that is there.
    fn header(&mut self, input: &mut &[u8]) -> Option<Result<(u8, u32), Malformed>> {
        // One that is whole, as nearly all are.
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

    /// What to do with the payload of a frame, whose length is looked at before anything of it is kept.
    fn begin(&self, byte: u8, length: u32) -> Result<State, Malformed> {
        if length > LARGEST {
            return Err(Malformed::FrameLength { length });
        }
        let Some(opcode) = Opcode::from_byte(byte) else {
            return Err(Malformed::Opcode(byte));
        };
        let payload = length as usize;
        let (ours, submit) = match self.accepts {
            Accepts::ToDaemon { submit } => (!opcode.is_daemons(), submit),
            Accepts::ToClient => (opcode.is_to_clients(), usize::MAX),
        };
        if !ours {
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

/// At most so many bytes from the front.
fn take<'i>(input: &mut &'i [u8], bytes: usize) -> &'i [u8] {
    let (taken, rest) = input.split_at(bytes.min(input.len()));
    *input = rest;
    taken
}
