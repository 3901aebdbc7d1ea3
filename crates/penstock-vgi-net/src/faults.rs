//! What is wrong with shared memory, locations and sizes.

use std::net::IpAddr;

use reqwest::StatusCode;

/// Why a peer's segment of shared memory is not safe to use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SegmentViolation {
    /// Its name is not one that a segment may have.
    #[error("the name is not a valid segment name")]
    Name,
    /// The peer has not said how large it is.
    #[error("the segment {name} was named without its size (vgi_rpc.shm_segment_size)")]
    NoSize {
        /// Its name.
        name: String,
    },
    /// Its name leads to something else than a file.
    #[error("the segment {name} is not a regular file")]
    NotAFile {
        /// Its name.
        name: String,
    },
    /// Others may use it, too.
    #[error("the segment {name} belongs to user {owner} with mode {mode:o}, not to user {user} with mode 600")]
    Access {
        /// Its name.
        name: String,
        /// The ID of its owner.
        owner: u32,
        /// Its mode.
        mode: u32,
        /// The ID of the peer's user.
        user: u32,
    },
    /// It has another size than the peer says.
    #[error("the segment {name} has {actual} bytes, not {stated}")]
    Size {
        /// Its name.
        name: String,
        /// Its number of bytes.
        actual: u64,
        /// The number that the peer has stated.
        stated: u64,
    },
    /// The client has passed the descriptor of something that is not a sealed file in memory.
    #[error("the segment {name}, passed by its client, {fault}")]
    Passed {
        /// Its name.
        name: String,
        /// What is wrong with it.
        fault: SealFault,
    },
}

/// How a file differs from a sealed one in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealFault {
    /// It is no file.
    #[error("is not a regular file")]
    NotAFile,
    /// Its size can change.
    #[error("is not sealed against a change of its size")]
    Unsealed,
    /// It is on a disk, or has pages of another size.
    #[error("is not a file in memory with pages of the usual size")]
    Pages,
    /// It has another size than the client says.
    #[error("has {actual} bytes, not {stated}")]
    Size {
        /// Its number of bytes.
        actual: i64,
        /// The number that the client has stated.
        stated: u64,
    },
}

/// How the content of a segment contradicts its header or a pointer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SegmentDamage {
    /// A pointer leads outside.
    #[error("bytes outside their segment")]
    Outside,
    /// It has become shorter.
    #[error("the segment {name} was truncated")]
    Truncated {
        /// Its name.
        name: String,
    },
    /// A pointer leads to bytes that were never written.
    #[error("{length} bytes in a segment that has memory for {present}")]
    Sparse {
        /// The number of bytes that are pointed to.
        length: u64,
        /// The number of bytes that have memory.
        present: u64,
    },
    /// It is too short for its header.
    #[error("a segment without a header")]
    NoHeader,
    /// Its header has a region beyond its end.
    #[error("a region outside its segment")]
    Region,
}

/// Why nothing is fetched from a location or uploaded to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationFault {
    /// The application, or the server, refuses it for this reason.
    #[error("{0}")]
    Refused(String),
    /// The client may not upload anything.
    #[error("uploads are not configured")]
    NoUploads,
    /// The server has no URL for an upload.
    #[error("the server issued no upload URL")]
    NoUploadUrl,
    /// The server of the calls redirects.
    #[error("{request}: the server answers with a redirect (HTTP {status}) to {to:?}, which is not followed")]
    CallRedirect {
        /// The method and the path.
        request: String,
        /// The status.
        status: u16,
        /// Where it leads, without a signature.
        to: String,
    },
    /// The server of an object redirects.
    #[error("{url} answers with a redirect (HTTP {status}), which is not followed")]
    Redirect {
        /// The URL, without its signature.
        url: String,
        /// The status.
        status: StatusCode,
    },
    /// The server sends the whole object, and a part was requested.
    #[error("{url}: bytes {first} to {last} were requested, and the server sent the whole object")]
    WholeObject {
        /// The URL, without its signature.
        url: String,
        /// The first byte of the part.
        first: u64,
        /// Its last byte.
        last: u64,
    },
    /// The server sends a part of another length.
    #[error("{url}: bytes {first} to {last} were requested, and the server sent {bytes} bytes")]
    PartLength {
        /// The URL, without its signature.
        url: String,
        /// The first byte of the part.
        first: u64,
        /// Its last byte.
        last: u64,
        /// The number of bytes that the server has sent.
        bytes: usize,
    },
    /// A file:// URL leads to something else than a file.
    #[error("{url} is not a file")]
    NotAFile {
        /// The URL.
        url: String,
    },
    /// There is no folder for file:// URLs.
    #[error("{url}: file:// URLs are read only where the storage is a FileStorage")]
    NoFolder {
        /// The URL.
        url: String,
    },
    /// A file:// URL has no path of this machine.
    #[error("{url}: it does not name a file on this machine")]
    NoPath {
        /// The URL.
        url: String,
    },
    /// A file:// URL leads out of the folder.
    #[error("{url}: it lies outside the folder of the storage")]
    OutsideFolder {
        /// The URL.
        url: String,
    },
    /// The address of a host is not public.
    #[error("{host} leads to {address}, which is not a public address; allow_private_addresses allows it")]
    Private {
        /// The host.
        host: String,
        /// The address.
        address: IpAddr,
    },
    /// The name of a host leads to an address that is not public.
    #[error("{url}: {host} leads to {address}, which is not a public address; allow_private_addresses allows it")]
    Resolved {
        /// The URL, without its signature.
        url: String,
        /// The host.
        host: String,
        /// The address.
        address: IpAddr,
    },
    /// The object has a coding that is not known here.
    #[error("{url}: its coding is {coding:?}; only zstd is supported")]
    Coding {
        /// The URL, without its signature.
        url: String,
        /// The coding.
        coding: String,
    },
    /// It is no URL.
    #[error("the location is not a URL: {reason}")]
    NoUrl {
        /// What the library said.
        reason: String,
    },
    /// It has a scheme that is not known here.
    #[error("the location has the scheme {scheme:?}; only https, http and file are supported")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
}

/// What there is too much of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeLimit {
    /// A segment does not fit into this process.
    #[error("a segment beyond the memory")]
    Mapping,
    /// A batch in shared memory.
    #[error("{bytes} bytes in shared memory, above the limit of {limit}")]
    Region {
        /// Its number of bytes.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A whole segment.
    #[error("a segment of {bytes} bytes, above the limit of {limit}")]
    Segment {
        /// Its number of bytes.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A copy out of shared memory does not fit into this process.
    #[error("{bytes} bytes in shared memory are more than this process can copy")]
    Copy {
        /// The number of bytes.
        bytes: u64,
    },
    /// A request that is uploaded.
    #[error("the request has {bytes} bytes, above the server's limit of {limit}")]
    Upload {
        /// Its number of bytes.
        bytes: usize,
        /// The limit.
        limit: u64,
    },
    /// A response of the server of the calls.
    #[error("{url}: the response has more than 2 GiB")]
    Response {
        /// The server's URL.
        url: String,
    },
    /// A file.
    #[error("{url} has more than the {limit} bytes of max_fetch_bytes")]
    File {
        /// Its URL.
        url: String,
        /// The limit.
        limit: u64,
    },
    /// An object.
    #[error("{url} sends more than the {limit} bytes that were allowed (max_fetch_bytes)")]
    Object {
        /// The URL, without its signature.
        url: String,
        /// The limit.
        limit: u64,
    },
}
