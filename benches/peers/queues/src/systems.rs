//! What the systems say: how a task is submitted, taken and acknowledged.

use std::io;

use crate::connection::Connection;

/// A task queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    Quicx,
    Redis,
    Beanstalkd,
    Gearmand,
}

const QUICX_OK: u8 = 0x02;
const QUICX_TASK: u8 = 0x05;
const QUICX_WAIT: u8 = 0x08;
const GEARMAN_NOOP: u32 = 6;
const GEARMAN_JOB_CREATED: u32 = 8;
const GEARMAN_NO_JOB: u32 = 10;
const GEARMAN_JOB_ASSIGN: u32 = 11;
const GRAB_JOB: &[u8] = b"\0REQ\0\0\0\x09\0\0\0\0";

fn odd(what: &str, found: &[u8]) -> io::Error {
    io::Error::other(format!("{what}: {}", String::from_utf8_lossy(found)))
}

impl System {
    pub(crate) fn named(name: &str) -> io::Result<Self> {
        match name {
            "quicx" => Ok(Self::Quicx),
            "redis" => Ok(Self::Redis),
            "beanstalkd" => Ok(Self::Beanstalkd),
            "gearmand" => Ok(Self::Gearmand),
            _ => Err(io::Error::other(format!("no such system: {name}"))),
        }
    }

    /// Appends the request that submits a task.
    pub(crate) fn submit(self, payload: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Quicx => {
                quicx(0x01, 2 + payload.len(), out);
                out.extend_from_slice(b"\x01t");
                out.extend_from_slice(payload);
            }
            Self::Redis => redis(&[b"RPUSH", b"tasks", payload], out),
            Self::Beanstalkd => {
                out.extend_from_slice(format!("put 0 0 60 {}\r\n", payload.len()).as_bytes());
                out.extend_from_slice(payload);
                out.extend_from_slice(b"\r\n");
            }
            // SUBMIT_JOB_BG: function, unique (none), payload.
            Self::Gearmand => gearman(18, &[b"t\0\0", payload], out),
        }
    }

    /// Reads the answer.
    pub(crate) fn submitted(self, connection: &mut Connection) -> io::Result<()> {
        match self {
            Self::Quicx => match quicx_frame(connection)? {
                (QUICX_OK, _) => Ok(()),
                (_, found) => Err(odd("not OK", found)),
            },
            Self::Redis => {
                let line = connection.line()?;
                if line.starts_with(b":") { Ok(()) } else { Err(odd("no length", line)) }
            }
            Self::Beanstalkd => {
                let line = connection.line()?;
                if line.starts_with(b"INSERTED") { Ok(()) } else { Err(odd("not inserted", line)) }
            }
            Self::Gearmand => match gearman_packet(connection)? {
                (GEARMAN_JOB_CREATED, _) => Ok(()),
                (_, found) => Err(odd("not created", found)),
            },
        }
    }

    /// A worker begins: what it says before the first task.
    pub(crate) fn begin(self, worker: usize, prefetch: usize, connection: &mut Connection) -> io::Result<()> {
        let mut out = Vec::new();
        match self {
            Self::Quicx => {
                quicx(0x21, 2, &mut out);
                out.extend_from_slice(&u16::try_from(prefetch).unwrap_or(u16::MAX).to_be_bytes());
                quicx(0x04, 0, &mut out);
            }
            Self::Redis => take(worker, &mut out),
            Self::Beanstalkd => out.extend_from_slice(b"reserve\r\n"),
            Self::Gearmand => {
                gearman(1, &[b"t"], &mut out);
                out.extend_from_slice(GRAB_JOB);
            }
        }
        connection.write(&out)
    }

    /// Takes a task, acknowledges it, and asks for the next.
    pub(crate) fn work(self, worker: usize, connection: &mut Connection) -> io::Result<()> {
        let mut out = Vec::new();
        match self {
            Self::Quicx => loop {
                match quicx_frame(connection)? {
                    (QUICX_WAIT, _) => {}
                    (QUICX_TASK, task) => {
                        quicx(0x06, 4, &mut out);
                        out.extend_from_slice(&task[..4]);
                        break;
                    }
                    (_, found) => return Err(odd("no task", found)),
                }
            },
            Self::Redis => {
                let length = number(&connection.line()?[1..])?;
                let task = connection.exactly(length + 2)?[..length].to_vec();
                redis(&[b"LREM", format!("taken:{worker}").as_bytes(), b"1", &task], &mut out);
                take(worker, &mut out);
                connection.write(&out)?;
                let removed = connection.line()?;
                return if removed == b":1" { Ok(()) } else { Err(odd("not removed", removed)) };
            }
            Self::Beanstalkd => {
                let line = String::from_utf8_lossy(connection.line()?).into_owned();
                let mut words = line.split(' ').skip(1);
                let (Some(id), Some(length)) = (words.next(), words.next()) else {
                    return Err(odd("not reserved", line.as_bytes()));
                };
                connection.exactly(number(length.as_bytes())? + 2)?;
                out.extend_from_slice(format!("delete {id}\r\nreserve\r\n").as_bytes());
                connection.write(&out)?;
                let deleted = connection.line()?;
                return if deleted == b"DELETED" { Ok(()) } else { Err(odd("not deleted", deleted)) };
            }
            Self::Gearmand => loop {
                match gearman_packet(connection)? {
                    // PRE_SLEEP: NOOP comes when there is something.
                    (GEARMAN_NO_JOB, _) => connection.write(b"\0REQ\0\0\0\x04\0\0\0\0")?,
                    (GEARMAN_NOOP, _) => connection.write(GRAB_JOB)?,
                    (GEARMAN_JOB_ASSIGN, job) => {
                        let handle = job.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
                        gearman(13, &[&handle, b"\0"], &mut out);
                        out.extend_from_slice(GRAB_JOB);
                        break;
                    }
                    (_, found) => return Err(odd("no job", found)),
                }
            },
        }
        connection.write(&out)
    }
}

fn number(text: &[u8]) -> io::Result<usize> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(|| odd("no number", text))
}

fn quicx(opcode: u8, length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&[1, opcode]);
    out.extend_from_slice(&(length as u32).to_be_bytes());
}

fn quicx_frame(connection: &mut Connection) -> io::Result<(u8, &[u8])> {
    let mut header = [0; 6];
    header.copy_from_slice(connection.exactly(6)?);
    let [_, opcode, length @ ..] = header;
    Ok((opcode, connection.exactly(u32::from_be_bytes(length) as usize)?))
}

fn redis(words: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Takes the next task into the worker's own list, so that it is not lost with the worker.
fn take(worker: usize, out: &mut Vec<u8>) {
    redis(&[b"BLMOVE", b"tasks", format!("taken:{worker}").as_bytes(), b"LEFT", b"RIGHT", b"0"], out);
}

fn gearman(kind: u32, parts: &[&[u8]], out: &mut Vec<u8>) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(b"\0REQ");
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(length as u32).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

fn gearman_packet(connection: &mut Connection) -> io::Result<(u32, &[u8])> {
    let mut header = [0; 12];
    header.copy_from_slice(connection.exactly(12)?);
    let [_, _, _, _, k0, k1, k2, k3, length @ ..] = header;
    let kind = u32::from_be_bytes([k0, k1, k2, k3]);
    Ok((kind, connection.exactly(u32::from_be_bytes(length) as usize)?))
}
