//! Listening Unix sockets: only their own user can connect, and the file of a socket is removed
//! with its listener.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::admission::BACKLOG;
use crate::{Busy, DriverError as _, Error, Misuse, Result};

/// The file of a Unix socket. Dropping this removes the file, unless another file has replaced it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// The device and the inode of the file that was made.
    made: Option<(u64, u64)>,
    removed: AtomicBool,
}

impl SocketFile {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), made: identity(path), removed: AtomicBool::new(false) }
    }

    /// Remove the file, but only once: a later file at this path belongs to another process, even
    /// if it has the same inode.
    pub fn remove(&self) {
        if !self.removed.swap(true, Ordering::Relaxed) && identity(&self.path) == self.made {
            // An error means that the file no longer exists.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Listen on a Unix socket to which only this user may connect, as `serve_unix` of vgi does. A socket that a dead
/// daemon left behind is replaced; a socket with a live listener and any other file are not.
pub fn listen(path: &Path) -> Result<(UnixListener, SocketFile)> {
    let context = |error: io::Error| Error::file("cannot listen on", path, error);
    let _lock = ListenLock::take(path);
    clear(path)?;
    let (socket, file) = bind(path).map_err(context)?;
    socket.listen(BACKLOG).map_err(context)?;
    Ok((socket.into(), file))
}

/// Bind a socket that clients cannot connect to yet, because it does not listen.
fn bind(path: &Path) -> io::Result<(Socket, SocketFile)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    let address = SockAddr::unix(path)?;
    // Linux gives the file the mode of the socket. Other systems reject this call; there the file gets its mode before
    // the socket listens.
    let _ = fchmod(&socket, Mode::RUSR | Mode::WUSR);
    socket.bind(&address)?;
    let file = SocketFile::new(path);
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok((socket, file))
}

/// Remove the socket that a dead daemon left behind.
fn clear(path: &Path) -> Result<()> {
    let context = |error: io::Error| Error::file("cannot tell who listens on", path, error);
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => return Err(Misuse::NoSocket { path: path.to_owned() }.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(context(error)),
    }
    let client = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(context)?;
    // The connect must not block, because a daemon whose queue is full is alive too.
    client.set_nonblocking(true).map_err(context)?;
    match client.connect(&SockAddr::unix(path).map_err(context)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file("cannot remove", path, error)),
            Ok(()) | Err(_) => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(context(error)),
        Ok(()) | Err(_) => Err(Error::Busy(Busy::Socket { path: path.to_owned() })),
    }
}

/// The lock of the socket's folder: another daemon that saw this socket before it listens would
/// take it for one that was left behind. In a folder that cannot be locked, daemons must be started
/// one after the other.
struct ListenLock(Option<File>);

impl ListenLock {
    fn take(path: &Path) -> Self {
        Self(File::open(penstock_log::parent(path)).and_then(|folder| folder.lock().map(|()| folder)).ok())
    }
}

impl Drop for ListenLock {
    fn drop(&mut self) {
        // Closing the folder is not enough: a child process that was forked meanwhile has it open too.
        if let Some(folder) = &self.0 {
            let _ = folder.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_socket_is_its_users_alone_before_anybody_can_connect() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (socket, file) = bind(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(UnixStream::connect(&path).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        socket.listen(1).unwrap();
        UnixStream::connect(&path).unwrap();
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_socket_that_was_left_behind_is_replaced_and_one_whose_queue_is_full_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        let (listener, file) = listen(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
        // Accept nothing, so that the queue fills.
        socket2::SockRef::from(&listener).listen(0).unwrap();
        let waiting: Vec<Socket> = std::iter::from_fn(|| {
            let client = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            client.set_nonblocking(true).unwrap();
            client.connect(&SockAddr::unix(&path).unwrap()).is_ok().then_some(client)
        })
        .take(100)
        .collect();
        assert!((1..100).contains(&waiting.len()), "{}", waiting.len());
        let refused = listen(&path).unwrap_err();
        assert!(matches!(&refused, Error::Busy(Busy::Socket { path: busy }) if *busy == path), "{refused}");
        assert!(path.exists());
        drop((listener, file));
        assert!(!path.exists());
    }

    #[test]
    fn neither_another_file_nor_the_socket_of_a_successor_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        fs::write(&path, "mine").unwrap();
        let refused = listen(&path).unwrap_err();
        assert!(matches!(&refused, Error::Misuse(Misuse::NoSocket { path: found }) if *found == path), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        fs::remove_file(&path).unwrap();
        let (_listener, file) = listen(&path).unwrap();
        fs::rename(&path, folder.path().join("moved")).unwrap();
        let (_successor, _kept) = listen(&path).unwrap();
        drop(file);
        assert!(path.exists());
    }

    #[test]
    fn a_name_that_is_too_long_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s".repeat(200));
        let error = listen(&path).unwrap_err();
        assert!(error.to_string().starts_with("cannot listen on") && error.to_string().contains("sss"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
