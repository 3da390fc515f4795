//! The address of a receiver, and the protocol that it speaks.

use std::{fmt, str::FromStr};

use http::{Uri, uri::Scheme};

use super::signal::Signal;
use crate::endpoint::url::{is_loopback, port};

/// The conventional port of OTLP over gRPC.
const GRPC_PORT: u16 = 4317;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Grpc,
    Http,
}

impl FromStr for Protocol {
    type Err = String;

    /// Parses a name as in `OTEL_EXPORTER_OTLP_PROTOCOL`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "grpc" => Ok(Self::Grpc),
            "http/protobuf" => Ok(Self::Http),
            "http/json" => Err("\"http/json\" is not supported: take \"http/protobuf\"".to_owned()),
            other => Err(format!("{other:?} is neither \"grpc\" nor \"http/protobuf\"")),
        }
    }
}

impl Protocol {
    #[must_use]
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http/protobuf",
        }
    }
}

/// A URL of the form `http://HOST:PORT/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    has_tls: bool,
    /// Without the brackets of IPv6.
    host: String,
    port: u16,
    /// Without a slash at the end.
    path: String,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The text may have a password, so it is not repeated.
        if text.contains('@') {
            return Err("no user or password in the URL: put them in --otlp-header-file".to_owned());
        }
        let uri: Uri = text.parse().map_err(|_error| invalid(text))?;
        let has_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err(invalid(text)),
        };
        if uri.query().is_some() {
            return Err(format!("{text:?} has a query, which no receiver has"));
        }
        let authority = uri.authority().ok_or_else(|| invalid(text))?;
        let port = port(authority, if has_tls { 443 } else { 80 }).ok_or_else(|| invalid(text))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(invalid(text));
        }
        Ok(Self { has_tls, host, port, path: uri.path().trim_end_matches('/').to_owned() })
    }
}

fn invalid(text: &str) -> String {
    format!("{text:?} is no URL of a receiver, as http://127.0.0.1:4318 or https://collector.example:4317")
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme(), self.authority(), self.path)
    }
}

impl Url {
    fn scheme(&self) -> &'static str {
        if self.has_tls { "https" } else { "http" }
    }

    fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// A receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    url: Url,
    protocol: Protocol,
}

impl Target {
    /// Makes a target. Without a protocol, it follows from the port.
    pub(crate) fn new(url: Url, protocol: Option<Protocol>) -> Result<Self, String> {
        let usual = if url.port == GRPC_PORT { Protocol::Grpc } else { Protocol::Http };
        let protocol = protocol.unwrap_or(usual);
        if protocol == Protocol::Grpc && !url.path.is_empty() {
            return Err(format!("gRPC has no path: leave {:?} out of {url}", url.path));
        }
        Ok(Self { url, protocol })
    }

    #[must_use]
    pub(super) fn protocol(&self) -> Protocol {
        self.protocol
    }

    #[must_use]
    pub(crate) fn has_tls(&self) -> bool {
        self.url.has_tls
    }

    #[must_use]
    pub(super) fn host(&self) -> &str {
        &self.url.host
    }

    #[must_use]
    pub(crate) fn port(&self) -> u16 {
        self.url.port
    }

    /// Whether the receiver is on this machine, by its address.
    #[must_use]
    pub(crate) fn is_local(&self) -> bool {
        is_loopback(self.host())
    }

    /// `HOST:PORT`
    #[must_use]
    pub(super) fn authority(&self) -> String {
        self.url.authority()
    }

    /// The URL without a path, for gRPC.
    #[must_use]
    pub(super) fn origin(&self) -> String {
        format!("{}://{}", self.url.scheme(), self.url.authority())
    }

    /// The HTTP path.
    #[must_use]
    pub(super) fn path(&self, signal: Signal) -> String {
        format!("{}{}", self.url.path, signal.path())
    }

    /// The flag for the other protocol, with its usual port.
    #[must_use]
    pub(super) fn other_protocol(&self) -> &'static str {
        match self.protocol {
            Protocol::Grpc => "--otlp-protocol http/protobuf (usually on port 4318)",
            Protocol::Http => "--otlp-protocol grpc (usually on port 4317)",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.url, self.protocol.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::{Protocol, Signal, Target};

    fn target(url: &str, protocol: Option<Protocol>) -> Result<Target, String> {
        Target::new(url.parse()?, protocol)
    }

    #[test]
    fn a_receiver_is_named_by_a_url_and_the_port_tells_the_protocol() {
        for (url, said, path) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318 (http/protobuf)", "/v1/traces"),
            ("http://collector:4317", "http://collector:4317 (grpc)", "/v1/traces"),
            ("https://a.example", "https://a.example:443 (http/protobuf)", "/v1/traces"),
            ("http://[::1]:9/x/", "http://[::1]:9/x (http/protobuf)", "/x/v1/traces"),
            ("http://h/otlp/v1", "http://h:80/otlp/v1 (http/protobuf)", "/otlp/v1/v1/traces"),
        ] {
            let target = target(url, None).expect("a receiver");
            assert_eq!((target.to_string(), target.path(Signal::Traces)), (said.to_owned(), path.to_owned()));
        }
        let grpc = target("https://[::1]:4318", Some(Protocol::Grpc)).expect("a receiver");
        assert_eq!((grpc.origin(), grpc.host()), ("https://[::1]:4318".to_owned(), "::1"));
    }

    #[test]
    fn what_is_no_receiver_is_one_line_that_says_why() {
        for (url, told) in [
            ("", "is no URL"),
            ("collector:4317", "is no URL"),
            ("http://", "is no URL"),
            ("http://:4317", "is no URL"),
            ("http://a:0", "is no URL"),
            ("http://a:x", "is no URL"),
            ("http://a:99999", "is no URL"),
            ("ftp://a", "is no URL"),
            ("http://a\n", "is no URL"),
            ("http://a/?key=1", "has a query"),
            ("http://user:secret@a", "no user or password"),
            ("http://a:4317/v1/traces", "gRPC has no path"),
        ] {
            let error = target(url, None).expect_err("no receiver");
            assert!(error.contains(told) && !error.contains(['\n', '@']), "{url:?}: {error}");
        }
        for (name, protocol) in [("grpc", Ok(Protocol::Grpc)), ("http/protobuf", Ok(Protocol::Http))] {
            assert_eq!(name.parse(), protocol);
        }
        assert!("http/json".parse::<Protocol>().expect_err("not supported").contains("not supported"));
        assert!("udp".parse::<Protocol>().expect_err("unknown").contains("neither"));
    }
}
