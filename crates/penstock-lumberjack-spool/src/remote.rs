//! A spool that is read from the receiver that writes it.

use std::ops::Range;
use std::time::Duration;

use penstock_io::runtime::{PerProcess, block_on};
use penstock_io::tls::ClientTls;
use penstock_io::{Addresses, DriverError as _};
use reqwest::{Client, Method, StatusCode};
use serde::Deserialize;

use crate::service::{ALPN, MAX_BYTES, MAX_SEGMENTS, escape};
use crate::store::{Position, SegmentInfo, Store};
use crate::{Error, Misuse, Result};

const CONNECT: Duration = Duration::from_secs(10);
/// How long an answer may send no bytes.
const SILENCE: Duration = Duration::from_secs(60);
/// The longest list of segments, in bytes.
const MAX_JSON: u64 = 256 << 20;
const MAX_REASON: u64 = 4 << 10;

/// The rows of a spool, from its service.
#[derive(Debug)]
pub struct RemoteStore {
    client: PerProcess<Client>,
    base: String,
    key: String,
}

#[derive(Deserialize)]
struct Welcome {
    spool: String,
}

impl RemoteStore {
    /// Make a client, without a request yet. The certificate must be for `server_name`, unless it
    /// is pinned. Default: the host.
    pub fn new(tls: &ClientTls, addresses: impl Into<Addresses>, server_name: Option<&str>, key: &str) -> Result<Self> {
        let addresses: Addresses = addresses.into();
        let server_name = addresses.server_name(server_name);
        let config = tls.config(ALPN)?;
        let client = Client::builder()
            .tls_backend_preconfigured(config)
            .resolve_to_addrs(server_name, &addresses.iter().collect::<Vec<_>>())
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .no_proxy()
            .build()
            .map_err(|error| Error::tls_from(error.to_string(), error))?;
        let host = if server_name.contains(':') { format!("[{server_name}]") } else { server_name.to_owned() };
        let base = format!("https://{host}:{}", addresses.port());
        Ok(Self { client: PerProcess::new(client), base, key: key.to_owned() })
    }

    fn ask(&self, method: Method, path: &str, max: u64) -> Result<Vec<u8>> {
        let failed = |error: reqwest::Error| {
            // Only the innermost reason is informative.
            let mut inner: &dyn std::error::Error = &error;
            while let Some(source) = inner.source() {
                inner = source;
            }
            Error::io(format!("cannot read the spool at {}", self.base), inner.to_string())
        };
        let request = self.client.get()?.request(method, format!("{}{path}", self.base)).bearer_auth(&self.key);
        block_on(async {
            let mut response = request.send().await.map_err(failed)?;
            let status = response.status();
            let max = if status.is_success() { max } else { MAX_REASON };
            let mut bytes = Vec::new();
            while let Some(chunk) = response.chunk().await.map_err(failed)? {
                bytes.extend_from_slice(&chunk);
                if bytes.len() as u64 > max {
                    return Err(self.wrong("it is longer than was asked for"));
                }
            }
            match status {
                StatusCode::UNAUTHORIZED => Err(Misuse::ReadKey { address: self.base.clone() }.into()),
                status if status.is_success() => Ok(bytes),
                _ => {
                    let said = String::from_utf8_lossy(&bytes).trim().to_owned();
                    Err(Error::io(format!("{} refused the request", self.base), said))
                }
            }
        })?
    }

    fn wrong(&self, what: &str) -> Error {
        Error::io(format!("an answer of {}", self.base), what.to_owned())
    }

    fn parse<'a, T: Deserialize<'a>>(&self, bytes: &'a [u8]) -> Result<T> {
        serde_json::from_slice(bytes).map_err(|error| self.wrong(&error.to_string()))
    }
}

impl Store for RemoteStore {
    fn spool(&self) -> Result<String> {
        let bytes = self.ask(Method::GET, "/v1/spool", MAX_REASON)?;
        Ok(self.parse::<Welcome>(&bytes)?.spool)
    }

    fn segments(&self, from: u64, max: usize) -> Result<Vec<SegmentInfo>> {
        let max = max.min(MAX_SEGMENTS);
        let bytes = self.ask(Method::GET, &format!("/v1/segments?from={from}&max={max}"), MAX_JSON)?;
        self.parse(&bytes)
    }

    fn read(&self, segment: u64, range: Range<u64>) -> Result<Vec<u8>> {
        let wanted = range.end.saturating_sub(range.start);
        if wanted > MAX_BYTES {
            // A record may be larger than the largest answer.
            let half = range.start + wanted / 2;
            return Ok([self.read(segment, range.start..half)?, self.read(segment, half..range.end)?].concat());
        }
        let path = format!("/v1/segments/{segment}?start={}&end={}", range.start, range.end);
        let bytes = self.ask(Method::GET, &path, wanted)?;
        if bytes.len() as u64 == wanted { Ok(bytes) } else { Err(self.wrong("it is shorter than was asked for")) }
    }

    fn commit(&self, reader: &str, position: Position) -> Result<()> {
        let Position { segment, row } = position;
        let path = format!("/v1/commit?reader={}&segment={segment}&row={row}", escape(reader));
        self.ask(Method::POST, &path, MAX_REASON).map(drop)
    }
}
