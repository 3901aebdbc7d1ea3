//! The basis of `penstock.vgi`: vgi-rpc for Python.

pub(crate) mod batches;
pub(crate) mod client;
pub(crate) mod codec;
pub(crate) mod errors;
pub(crate) mod external;
pub(crate) mod files;
pub(crate) mod http_call;
pub(crate) mod http_client;
pub(crate) mod http_server;
pub(crate) mod listening;
pub(crate) mod logger;
pub(crate) mod protocol;
pub(crate) mod segment;
pub(crate) mod server;
pub(crate) mod stop;
pub(crate) mod values;
