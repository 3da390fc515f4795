//! Connects to a receiver: resolves its name, and opens a TCP connection, with TLS if the URL has it.

use std::{io, net::SocketAddr, pin::Pin, time::Duration};

use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
    time::{Instant, timeout},
};
use tokio_rustls::TlsConnector;

use super::{
    failure::{Failure, Reason, said},
    target::Target,
};

/// How long resolving a name may take. The C library asks the next name server after 5 seconds without an
/// answer.
const LOOKUP: Duration = Duration::from_secs(6);

/// An open connection.
pub(super) type Stream = Pin<Box<dyn Duplex>>;

pub(super) trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// Connects early enough to leave time for an answer before `until`.
pub(super) async fn connect(
    target: &Target,
    tls: Option<&TlsConnector>,
    until: Instant,
) -> Result<Stream, Failure> {
    let addresses = resolve(target, until).await?;
    let stream = reach(target, &addresses, until).await?;
    // A request is one write, and the next one waits for its answer.
    stream.set_nodelay(true).ok();
    let Some(tls) = tls else { return Ok(Box::pin(stream)) };
    let host = target.host().to_owned();
    let name = ServerName::try_from(host)
        .map_err(|why| Failure::lasting(Reason::Tls, format!("no certificate can have its name: {why}")))?;
    let encrypted = tls.connect(name, stream).await.map_err(|why| mistrust(&why))?;
    Ok(Box::pin(encrypted))
}

async fn resolve(target: &Target, until: Instant) -> Result<Vec<SocketAddr>, Failure> {
    let limit = LOOKUP.min(left(until));
    let Ok(found) = timeout(limit, lookup_host((target.host(), target.port()))).await else {
        let host = target.host();
        let seconds = limit.as_secs_f64();
        let text = format!(
            "the name {host} was not resolved within {seconds:.1} s; see the name servers in this node's \
             /etc/resolv.conf: a firewall may drop what is sent to them"
        );
        return Err(Failure::passing(Reason::Resolve, text));
    };
    Ok(found.map_err(|why| unresolved(target, &why))?.collect())
}

/// Connects to the first address that answers. Each address has a share of the time, and so has the request.
async fn reach(target: &Target, addresses: &[SocketAddr], until: Instant) -> Result<TcpStream, Failure> {
    let mut failure = unresolved(target, &io::Error::other("the list is empty"));
    for (address, shares) in addresses.iter().zip((2..addresses.len() + 2).rev()) {
        let limit = left(until) / u32::try_from(shares).unwrap_or(u32::MAX);
        failure = match timeout(limit, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(why)) => unreached(*address, &why),
            Err(_elapsed) => unanswered(*address, limit),
        };
    }
    Err(failure)
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

fn unresolved(target: &Target, why: &io::Error) -> Failure {
    let why = said(&why.to_string());
    let text = format!(
        "the name {} has no address{why}; correct it, or this node's /etc/resolv.conf",
        target.host()
    );
    Failure::passing(Reason::Resolve, text)
}

fn unreached(address: SocketAddr, why: &io::Error) -> Failure {
    let todo = match why.kind() {
        io::ErrorKind::ConnectionRefused => "; start the receiver or correct the URL",
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "; correct the URL or the routes"
        }
        // The agent's own confinement or a network policy refuses it.
        io::ErrorKind::PermissionDenied => "; a policy of this node forbids it",
        _ => "",
    };
    Failure::passing(Reason::Connect, format!("no connection to {address}{}{todo}", said(&why.to_string())))
}

fn unanswered(address: SocketAddr, limit: Duration) -> Failure {
    let seconds = limit.as_secs_f64();
    let todo = "correct the URL or the routes; a firewall may drop it";
    Failure::passing(Reason::Connect, format!("no connection to {address} within {seconds:.1} s; {todo}"))
}

fn mistrust(why: &io::Error) -> Failure {
    let inner = why.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let todo = match inner {
        Some(rustls::Error::InvalidCertificate(_)) => {
            "; give its authority with --otlp-ca, or correct the name in the URL"
        }
        Some(rustls::Error::InvalidMessage(_)) => "; it seems to speak no TLS: take http:// for that",
        _ => "",
    };
    Failure::passing(Reason::Tls, format!("TLS fails{}{todo}", said(&why.to_string())))
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv4Addr, TcpStream as Connected},
        os::fd::AsRawFd as _,
    };

    use nix::sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, getsockname, listen, socket,
    };
    use tokio::net::TcpListener;

    use super::{Duration, Instant, Reason, SocketAddr, Target, reach};

    #[tokio::test]
    async fn an_address_that_does_not_answer_leaves_time_for_the_next() {
        let target = Target::new("http://a:1".parse().expect("a URL"), None).expect("a receiver");
        // While the backlog of the listener is full, the kernel drops new connections, as a firewall does.
        let silent =
            socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None).expect("a socket");
        bind(silent.as_raw_fd(), &SockaddrIn::from(std::net::SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)))
            .expect("a port");
        listen(&silent, Backlog::new(0).expect("a length")).expect("it listens");
        let at: SockaddrIn = getsockname(silent.as_raw_fd()).expect("an address");
        let dropping = SocketAddr::from((at.ip(), at.port()));
        let mut full = Vec::new();
        while let Ok(stream) = Connected::connect_timeout(&dropping, Duration::from_millis(300)) {
            full.push(stream);
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let good = listener.local_addr().expect("an address");
        let begun = Instant::now();
        let stream =
            reach(&target, &[dropping, good], begun + Duration::from_secs(3)).await.expect("the other");
        assert_eq!(stream.peer_addr().expect("an address"), good);
        assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());

        let failed = reach(&target, &[dropping], Instant::now() + Duration::from_secs(1)).await;
        let failed = failed.expect_err("nobody answers");
        assert_eq!(failed.reason, Reason::Connect);
        let told = format!("no connection to {dropping} within 0.5 s; ");
        assert!(
            failed.text.starts_with(&told) && failed.text.ends_with("a firewall may drop it"),
            "{failed}"
        );
        let failed = reach(&target, &[], Instant::now()).await.expect_err("no address");
        assert_eq!((failed.reason, failed.is_passing), (Reason::Resolve, true), "{failed}");
    }
}
