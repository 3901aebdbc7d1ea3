//! The process at the other end of a connection, as the kernel reports it. It decides how shared memory may be used.

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::fs::{FileType, fstat};
use rustix::net::{AddressFamily, getsockname, sockopt::socket_peercred};
use rustix::process::{Pid, geteuid, getpid, getppid};

/// The process at the other end.
///
/// ```text
///  socket pair, Unix socket of the parent or a child ─▶ Kin     segments are mapped, batches read in place
///  Unix socket of another process, anonymous pipe ────▶ Local   segments of its user, 0600, are read by copying
///  TCP, TLS, files, anything else ────────────────────▶ Remote  no segments
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// This process, its parent or its child, with this user ID.
    Kin(u32),
    /// Another process on this machine, of the user with this ID.
    Local(u32),
    /// A process unknown to the kernel.
    Remote,
}

impl Peer {
    /// Return the peer of a connection with these two descriptors: the less trusted of the two.
    pub fn of(reader: &impl AsFd, writer: &impl AsFd) -> Self {
        match (Self::at(reader), Self::at(writer)) {
            (Self::Kin(one), Self::Kin(other)) if one == other => Self::Kin(one),
            (Self::Kin(one) | Self::Local(one), Self::Kin(other) | Self::Local(other)) if one == other => {
                Self::Local(one)
            }
            (Self::Kin(_) | Self::Local(_) | Self::Remote, _) => Self::Remote,
        }
    }

    /// Return a peer that is another process of this process's user.
    pub fn of_this_user() -> Self {
        Self::Local(geteuid().as_raw())
    }

    fn at(descriptor: &impl AsFd) -> Self {
        let Ok(stat) = fstat(descriptor) else { return Self::Remote };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Fifo && is_anonymous(descriptor) {
            // A pipe does not reveal the process at its other end; in a shell's pipeline it is a
            // sibling.
            return Self::of_this_user();
        }
        let is_unix = || getsockname(descriptor).is_ok_and(|at| at.address_family() == AddressFamily::UNIX);
        if kind != FileType::Socket || !is_unix() {
            return Self::Remote;
        }
        let Ok(credentials) = socket_peercred(descriptor) else { return Self::Remote };
        let uid = credentials.uid.as_raw();
        if is_kin(credentials.pid) { Self::Kin(uid) } else { Self::Local(uid) }
    }
}

/// Return whether a pipe is anonymous, so that no other process can have opened it by name.
fn is_anonymous(descriptor: &impl AsFd) -> bool {
    let path = format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd());
    std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with("pipe:"))
}

fn is_kin(pid: Pid) -> bool {
    // A process outside our PID namespace has the number 0, and so has a parent outside it.
    pid.as_raw_nonzero().get() > 0 && (pid == getpid() || getppid() == Some(pid) || parent(pid) == Some(getpid()))
}

/// Return the parent of a process: the second field after the name, which may contain spaces and
/// parentheses.
fn parent(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
    Pid::from_raw(parent.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_pair_is_kin_a_pipe_is_local_and_tcp_is_remote() {
        let (one, other) = UnixStream::pair().expect("a pair");
        assert_eq!(Peer::of(&one, &other), Peer::Kin(geteuid().as_raw()));
        let (read, write) = std::io::pipe().expect("a pipe");
        assert_eq!(Peer::of(&read, &write), Peer::Local(geteuid().as_raw()));
        assert_eq!(Peer::of(&read, &one), Peer::Local(geteuid().as_raw()));
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
        assert_eq!(Peer::of(&stream, &stream), Peer::Remote);
        assert_eq!(Peer::of(&stream, &one), Peer::Remote);
        let file = std::fs::File::open("/dev/null").expect("opens");
        assert_eq!(Peer::of(&file, &file), Peer::Remote);
    }

    #[test]
    fn a_child_is_kin_and_a_grandchild_is_not() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().expect("runs");
        let pid = Pid::from_child(&child);
        assert!(is_kin(pid));
        assert!(!is_kin(Pid::INIT) || getppid() == Some(Pid::INIT));
        child.kill().and_then(|()| child.wait().map(drop)).expect("ends");
    }
}
