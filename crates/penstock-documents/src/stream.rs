//! Compressed streams: gzip, bzip2, xz, zstd. Each is a container with exactly one child.

use std::io::{BufReader, Read};

use crate::child::{Child, Walker};
use crate::codec;
use crate::context::{Context, Fetched, Meter, Origin};
use crate::failure::Failure;
use crate::gzip;
use crate::name;
use crate::workspace::Source;

/// The compression of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    Gzip,
    Bzip2,
    Xz,
    Zstd,
}

impl Codec {
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Gzip => "application/gzip",
            Self::Bzip2 => "application/x-bzip2",
            Self::Xz => "application/x-xz",
            Self::Zstd => "application/zstd",
        }
    }
}

/// Walks to the only child.
pub(crate) struct StreamWalker {
    codec: Codec,
    /// `None` once the child was returned.
    source: Option<Box<dyn Source>>,
    own_name: String,
}

impl StreamWalker {
    /// Make a walker; `own_name` is the name of the stream itself.
    pub(crate) fn new(codec: Codec, source: Box<dyn Source>, own_name: &str) -> Self {
        Self { codec, source: Some(source), own_name: own_name.to_owned() }
    }
}

impl Walker for StreamWalker {
    fn next_child(&mut self, context: &mut Context<'_>) -> Option<Child> {
        let mut source = self.source.take()?;
        let declared = match self.codec {
            Codec::Gzip => gzip::file_name(&mut source, context.limits.max_name),
            Codec::Bzip2 | Codec::Xz | Codec::Zstd => None,
        };
        let name = declared.or_else(|| name::stem(&self.own_name));
        Some(Child::fetched(name, inflate(self.codec, source, context)))
    }

    fn declared(&self) -> Option<u64> {
        Some(1)
    }

    fn divisible(&self) -> bool {
        true
    }
}

fn inflate(codec: Codec, mut source: Box<dyn Source>, context: &mut Context<'_>) -> Result<Fetched, Failure> {
    source.rewind().map_err(|error| Failure::io("reading the container failed", &error))?;
    let meter = Meter::default();
    let input = BufReader::new(meter.tap(source));
    let mut reader: Box<dyn Read + '_> = match codec {
        Codec::Gzip => Box::new(gzip::Members::new(input)),
        Codec::Bzip2 => Box::new(codec::bzip2(input)),
        Codec::Xz => Box::new(codec::xz(input).map_err(|error| meter.blame(&error))?),
        Codec::Zstd => Box::new(codec::zstd(input).map_err(|error| meter.blame(&error))?),
    };
    context.fetch(&mut reader, &meter, Origin::Compressed)
}
