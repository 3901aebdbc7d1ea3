//! The endpoints of a service.

/// The endpoint of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `PREFIX/METHOD`.
    Unary,
    /// `PREFIX/METHOD/init`.
    Init,
    /// `PREFIX/METHOD/exchange`.
    Exchange,
    /// `PREFIX/__upload_url__/init`.
    UploadUrls,
}

/// The meaning of a path.
pub(super) enum Route<'p> {
    Method(&'p str, Kind),
    Health,
    Landing,
    Describe,
    Capabilities,
    Nothing,
}
