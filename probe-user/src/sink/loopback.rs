//! Whether a secret that is sent to a server without TLS stays on this machine.

use std::net::IpAddr;

/// Whether this host of a URL is this machine, by its name or address. It may have the brackets of IPv6.
pub(crate) fn is_loopback(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost")
        || address.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

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
}
