//! A pipe or a socket, read and written by system calls. Over a Unix socket it can also pass descriptors.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::net::sockopt::socket_type;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketType, getsockname, recvmsg, sendmsg,
};

use super::byte_stream::{Sink, Source};

/// One end of a pipe or a socket.
///
/// A peer may pass descriptors with any byte. The last one is kept until it is taken; the others
/// are closed.
pub(super) struct Descriptor {
    file: File,
    /// Whether the descriptor is a Unix stream socket, the only kind that can pass descriptors.
    is_unix: bool,
    received: Option<OwnedFd>,
    /// The descriptor to pass with the next byte that is written.
    passing: Option<OwnedFd>,
}

impl Descriptor {
    pub(super) fn new(descriptor: OwnedFd) -> Self {
        let family = getsockname(&descriptor).map(|address| address.address_family());
        let is_unix = family == Ok(AddressFamily::UNIX) && socket_type(&descriptor) == Ok(SocketType::STREAM);
        Self { file: descriptor.into(), is_unix, received: None, passing: None }
    }
}

impl Read for Descriptor {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        if !self.is_unix {
            return self.file.read(space);
        }
        let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let message = recvmsg(&self.file, &mut [IoSliceMut::new(space)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for descriptor in control.drain().filter_map(rights).flatten() {
            self.received = Some(descriptor);
        }
        Ok(message.bytes)
    }
}

/// Return the descriptors of a message.
fn rights(message: RecvAncillaryMessage<'_>) -> Option<impl Iterator<Item = OwnedFd>> {
    if let RecvAncillaryMessage::ScmRights(descriptors) = message { Some(descriptors) } else { None }
}

impl Write for Descriptor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(passing) = &self.passing else { return self.file.write_vectored(pieces) };
        let passed = [passing.as_fd()];
        let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !control.push(SendAncillaryMessage::ScmRights(&passed)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let count = sendmsg(&self.file, pieces, &mut control, SendFlags::NOSIGNAL)?;
        if count > 0 {
            self.passing = None;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Source for Descriptor {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn receives_descriptors(&self) -> bool {
        self.is_unix
    }

    fn received(&mut self) -> Option<OwnedFd> {
        self.received.take()
    }
}

impl Sink for Descriptor {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn passes_descriptors(&self) -> bool {
        self.is_unix
    }

    fn pass(&mut self, descriptor: OwnedFd) {
        self.passing = Some(descriptor);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (Descriptor, Descriptor) {
        let (one, other) = UnixStream::pair().expect("a pair");
        (Descriptor::new(one.into()), Descriptor::new(other.into()))
    }

    fn file() -> OwnedFd {
        tempfile::tempfile().expect("a file").into()
    }

    fn open() -> usize {
        std::fs::read_dir("/proc/self/fd").expect("a list").count()
    }

    #[test]
    fn a_descriptor_goes_with_one_byte_and_no_other() {
        let (mut one, mut other) = pair();
        assert!(one.passes_descriptors() && other.receives_descriptors());
        one.pass(file());
        let mut space = [0; 8];
        for passed in [true, false] {
            one.write_all(b"abc").expect("written");
            assert_eq!(other.read(&mut space).expect("read"), 3);
            assert_eq!(other.received().is_some(), passed);
            assert!(other.received().is_none());
        }
    }

    #[test]
    fn of_many_descriptors_one_is_kept_and_none_leaks() {
        let (one, mut other) = pair();
        let (files, mut space) = ([file(), file(), file()], [0; 1]);
        let first = other.file.as_raw_fd();
        let send = || {
            let passed = [files[0].as_fd(), files[1].as_fd(), files[2].as_fd()];
            let mut room = [MaybeUninit::uninit(); cmsg_space!(ScmRights(3))];
            let mut control = SendAncillaryBuffer::new(&mut room);
            assert!(control.push(SendAncillaryMessage::ScmRights(&passed)));
            sendmsg(&one.file, &[IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL).expect("sent");
        };
        send();
        other.read_exact(&mut space).expect("read");
        let before = open();
        for _ in 0..100 {
            send();
            other.read_exact(&mut space).expect("read");
        }
        assert!(open() <= before + 8, "the tests beside this one have a few");
        assert!(other.received().is_some() && other.file.as_raw_fd() == first);
    }

    #[test]
    fn a_pipe_and_tcp_pass_none() {
        let (read, write) = std::io::pipe().expect("a pipe");
        assert!(!Descriptor::new(read.into()).receives_descriptors());
        assert!(!Descriptor::new(write.into()).passes_descriptors());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
        let stream = std::net::TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
        assert!(!Descriptor::new(stream.into()).passes_descriptors());
    }
}
