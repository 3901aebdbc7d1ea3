use crate::frame::ACK;

/// The sender whose frames a decoder accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepts {
    /// A writer: windows, data, JSON, compressed frames.
    Writer,
    /// A reader: acknowledgements.
    Reader,
}

impl Accepts {
    pub(crate) const fn accepts(self, kind: u8) -> bool {
        match self {
            Self::Writer => kind != ACK,
            Self::Reader => kind == ACK,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Writer => "writer",
            Self::Reader => "reader",
        }
    }
}
