//! Reads the place of a server from its URL.

use std::net::IpAddr;

use http::uri::Authority;

/// Whether the host is this machine, by its name or address, so that data sent there without TLS stays here.
/// The host may have the brackets of IPv6.
pub(crate) fn is_loopback(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || address.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
}

/// The port, or the usual one if none is named. `None` if the named port is invalid, which the `http` crate
/// does not report.
pub(crate) fn port(authority: &Authority, usual: u16) -> Option<u16> {
    match authority.port_u16() {
        Some(0) => None,
        Some(port) => Some(port),
        None => authority.as_str().ends_with(authority.host()).then_some(usual),
    }
}

#[cfg(test)]
mod tests {
    use super::{is_loopback, port};

    #[test]
    fn this_machine_is_known_by_its_name_and_addresses() {
        for own in ["localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "::1", "[::1]", "[::ffff:127.0.0.1]"]
        {
            assert!(is_loopback(own), "{own}");
        }
        for other in
            ["", "localhost.example", "127.0.0.1.example", "10.0.0.1", "0.0.0.0", "[::]", "[fe80::1]"]
        {
            assert!(!is_loopback(other), "{other}");
        }
    }

    #[test]
    fn what_is_no_port_is_not_taken_for_none() {
        for (text, wanted) in [
            ("a:1", Some(1)),
            ("a", Some(80)),
            ("[::1]", Some(80)),
            ("[::1]:65535", Some(65535)),
            ("a:0", None),
            ("a:65536", None),
            ("a:", None),
        ] {
            assert_eq!(port(&text.parse().expect("an authority"), 80), wanted, "{text}");
        }
    }
}
