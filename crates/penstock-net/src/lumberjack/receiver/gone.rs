//! Whether a writer has closed its connection, which matters before everything that it sent has been read: what it sends
//! again over a new connection may be taken first (decision 12).

use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::admission::FirstByte;

/// A connection whose other end may be closed.
pub(super) trait Gone {
    /// Whether it is, as the system knows it now.
    fn is_gone(&self) -> bool;
}

impl Gone for TcpStream {
    #[cfg(target_os = "linux")]
    fn is_gone(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};

        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(self, PollFlags::RDHUP)], Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    /// Elsewhere the end is known when it is read.
    #[cfg(not(target_os = "linux"))]
    fn is_gone(&self) -> bool {
        false
    }
}

impl Gone for TlsStream<TcpStream> {
    fn is_gone(&self) -> bool {
        self.get_ref().0.is_gone()
    }
}

impl<S: Gone> Gone for FirstByte<S> {
    fn is_gone(&self) -> bool {
        self.get_ref().is_gone()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Write as _;

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_end_is_known_before_everything_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut writer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        writer.write_all(b"2W\0\0\0\x01").unwrap();
        stream.readable().await.unwrap();
        assert!(!stream.is_gone());
        drop(writer);
        assert!(stream.is_gone());
        let mut octets = [0; 6];
        assert_eq!(stream.try_read(&mut octets).unwrap(), 6);
    }
}
