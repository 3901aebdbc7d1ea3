//! The rule about the addresses that a peer's URL may lead to.
//!
//! Names are resolved here, and the connection uses the addresses that were checked, so a name
//! server gains nothing by answering differently the next time.

use std::error::Error as StdError;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// A host that resolves to an address of this machine or of its network.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) host: String,
    pub(super) address: IpAddr,
}

impl Refused {
    /// Check a host that is an address; the resolver checks a name.
    pub(super) fn check(host: &str) -> Result<(), Self> {
        match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(address) if !is_public(address) => Err(Self { host: host.to_owned(), address }),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Return this refusal if it is among the causes of an error.
    pub(super) fn within<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e Self> {
        std::iter::successors(Some(error), |error| (*error).source()).find_map(|error| error.downcast_ref())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, address } = self;
        write!(f, "{host} leads to {address}, which is not a public address; allow_private_addresses allows it")
    }
}

impl StdError for Refused {}

/// A resolver that resolves names as the system does, and refuses a name with any private address.
pub(super) struct Guard;

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            if let Some(address) = found.iter().map(SocketAddr::ip).find(|address| !is_public(*address)) {
                return Err(Refused { host, address }.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Return whether an address is public: neither this machine's nor in its network (RFC 6890).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

const fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || a == 0
        || (a == 100 && b & 0xC0 == 64)
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && b & 0xFE == 18)
        // Multicast and reserved addresses.
        || a >= 224)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| is_public_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match (a, b, c, d, e, f) {
        // IPv4-mapped and IPv4-compatible addresses (including the unspecified address and
        // loopback), and NAT64.
        (0, 0, 0, 0, 0, 0 | 0xFFFF) | (0x64, 0xFF9B, 0, 0, 0, 0) => v4(g, h),
        // A 6to4 address leads to the IPv4 address inside it.
        (0x2002, ..) => v4(b, c),
        // Global unicast, except Teredo and documentation addresses.
        (0x2000..=0x3FFF, ..) => !(a == 0x2001 && matches!(b, 0 | 0xDB8)) && a != 0x3FFF,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "192.0.0.8",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::7f00:1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2002:c0a8:101::1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "100::1",
        ] {
            assert!(Refused::check(private).is_err(), "{private}");
            assert!(Refused::check(&format!("[{private}]")).is_err(), "{private}");
        }
        for public in ["1.1.1.1", "52.216.0.1", "2606:4700::1111", "2a00:1450::1", "::ffff:1.1.1.1", "64:ff9b::808:808"]
        {
            assert!(Refused::check(public).is_ok(), "{public}");
        }
        assert!(Refused::check("bucket.s3.amazonaws.com").is_ok());
    }
}
