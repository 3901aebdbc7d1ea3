//! Faults of shared memory and locations, and sizes above a limit.

use std::net::IpAddr;

use reqwest::StatusCode;

/// The reasons why a peer's segment of shared memory is not safe to use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SegmentViolation {
    /// The name is not a valid segment name.
    #[error("the name is not a valid segment name")]
    Name,
    /// The peer named a segment without its size.
    #[error("the segment {name} was named without its size (vgi_rpc.shm_segment_size)")]
    NoSize {
        /// The segment's name.
        name: String,
    },
    /// The name does not lead to a regular file.
    #[error("the segment {name} is not a regular file")]
    NotAFile {
        /// The segment's name.
        name: String,
    },
    /// The segment does not belong to the peer's user, or other users may open it.
    #[error("the segment {name} belongs to user {owner} with mode {mode:o}, not to user {user} with mode 600")]
    Access {
        /// The segment's name.
        name: String,
        /// The ID of the segment's owner.
        owner: u32,
        /// The segment's mode.
        mode: u32,
        /// The ID of the peer's user.
        user: u32,
    },
    /// The segment is shorter than the peer says, or too short for its header.
    #[error("the segment {name} has {actual} bytes, not {stated}")]
    Size {
        /// The segment's name.
        name: String,
        /// The segment's number of bytes.
        actual: u64,
        /// The number that the peer has stated.
        stated: u64,
    },
    /// The descriptor that the client has passed is not a sealed file in memory.
    #[error("the segment {name}, passed by its client, {fault}")]
    Passed {
        /// The segment's name.
        name: String,
        /// The fault of the file.
        fault: SealFault,
    },
}

/// The ways in which a file differs from a sealed file in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealFault {
    /// The descriptor is not a regular file.
    #[error("is not a regular file")]
    NotAFile,
    /// The file's size can change.
    #[error("is not sealed against a change of its size")]
    Unsealed,
    /// The file is on a disk, or has pages of another size.
    #[error("is not a file in memory with pages of the usual size")]
    Pages,
    /// The file's size differs from the size that the client says.
    #[error("has {actual} bytes, not {stated}")]
    Size {
        /// The file's number of bytes.
        actual: i64,
        /// The number that the client has stated.
        stated: u64,
    },
}

/// The ways in which a segment's content contradicts its header or a pointer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SegmentDamage {
    /// A pointer leads outside the segment.
    #[error("bytes outside their segment")]
    Outside,
    /// The segment has become shorter.
    #[error("the segment {name} was truncated")]
    Truncated {
        /// The segment's name.
        name: String,
    },
    /// A pointer leads to bytes that were never written.
    #[error("{length} bytes in a segment that has memory for {present}")]
    Sparse {
        /// The number of bytes to which the pointer refers.
        length: u64,
        /// The number of bytes for which the segment has memory.
        present: u64,
    },
    /// The segment is too short for its header.
    #[error("a segment without a header")]
    NoHeader,
    /// The header has a region beyond the segment's end.
    #[error("a region outside its segment")]
    Region,
}

/// The reasons why a location is neither fetched from nor uploaded to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationFault {
    /// The application or the server refuses the location, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The client may not upload anything.
    #[error("uploads are not configured")]
    NoUploads,
    /// The server has no URL for an upload.
    #[error("the server issued no upload URL")]
    NoUploadUrl,
    /// The server of the calls answers with a redirect.
    #[error("{request}: the server answers with a redirect (HTTP {status}) to {to:?}, which is not followed")]
    CallRedirect {
        /// The method and the path.
        request: String,
        /// The status.
        status: u16,
        /// The target of the redirect, without a signature.
        to: String,
    },
    /// The server of an object answers with a redirect.
    #[error("{url} answers with a redirect (HTTP {status}), which is not followed")]
    Redirect {
        /// The URL, without its signature.
        url: String,
        /// The status.
        status: StatusCode,
    },
    /// The server has sent the whole object instead of the requested part.
    #[error("{url}: bytes {first} to {last} were requested, and the server sent the whole object")]
    WholeObject {
        /// The URL, without its signature.
        url: String,
        /// The first byte of the part.
        first: u64,
        /// Its last byte.
        last: u64,
    },
    /// The server has sent a part of another length.
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
    /// A file:// URL does not lead to a regular file.
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
    /// A file:// URL is not a path on this machine.
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
    /// The object has an unsupported coding.
    #[error("{url}: its coding is {coding:?}; only zstd is supported")]
    Coding {
        /// The URL, without its signature.
        url: String,
        /// The coding.
        coding: String,
    },
    /// The location is not a URL.
    #[error("the location is not a URL: {reason}")]
    NoUrl {
        /// The parser's error message.
        reason: String,
    },
    /// The location has an unsupported scheme.
    #[error("the location has the scheme {scheme:?}; only https, http and file are supported")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
}

/// The sizes that are above a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeLimit {
    /// A segment is too large to map into this process.
    #[error("a segment beyond the memory")]
    Mapping,
    /// A batch in shared memory is above the limit.
    #[error("{bytes} bytes in shared memory, above the limit of {limit}")]
    Region {
        /// The batch's number of bytes.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A whole segment is above the limit.
    #[error("a segment of {bytes} bytes, above the limit of {limit}")]
    Segment {
        /// The segment's number of bytes.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// A copy out of shared memory does not fit into this process's memory.
    #[error("{bytes} bytes in shared memory are more than this process can copy")]
    Copy {
        /// The number of bytes.
        bytes: u64,
    },
    /// A request is too large to be uploaded.
    #[error("the request has {bytes} bytes, above the server's limit of {limit}")]
    Upload {
        /// The request's number of bytes.
        bytes: usize,
        /// The limit.
        limit: u64,
    },
    /// A response of the server of the calls is too long.
    #[error("{url}: the response has more than 2 GiB")]
    Response {
        /// The server's URL.
        url: String,
    },
    /// A file behind a file:// URL is above the limit.
    #[error("{url} has more than the {limit} bytes of max_fetch_bytes")]
    File {
        /// The file's URL.
        url: String,
        /// The limit.
        limit: u64,
    },
    /// An object is above the limit.
    #[error("{url} sends more than the {limit} bytes that were allowed (max_fetch_bytes)")]
    Object {
        /// The URL, without its signature.
        url: String,
        /// The limit.
        limit: u64,
    },
}
