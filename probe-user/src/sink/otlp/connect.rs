//! A connection to a receiver: its name's addresses, TCP, and TLS where the URL has it.

use std::{io, net::SocketAddr, pin::Pin};

use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
};
use tokio_rustls::TlsConnector;

use super::{
    failure::{Failure, Reason, said},
    target::Target,
};

/// An open connection.
pub(super) type Stream = Pin<Box<dyn Duplex>>;

pub(super) trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

pub(super) async fn connect(target: &Target, tls: Option<&TlsConnector>) -> Result<Stream, Failure> {
    let stream = reach(target).await?;
    // A request is one write, and its answer is waited for.
    stream.set_nodelay(true).ok();
    let Some(tls) = tls else { return Ok(Box::pin(stream)) };
    let host = target.host().to_owned();
    let name = ServerName::try_from(host)
        .map_err(|why| Failure::lasting(Reason::Tls, format!("no certificate can have its name: {why}")))?;
    let encrypted = tls.connect(name, stream).await.map_err(|why| mistrust(&why))?;
    Ok(Box::pin(encrypted))
}

/// Connects to the first address that answers.
async fn reach(target: &Target) -> Result<TcpStream, Failure> {
    let found = lookup_host((target.host(), target.port())).await;
    let addresses: Vec<SocketAddr> = found.map_err(|why| unresolved(target, &why))?.collect();
    let mut last = None;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(why) => last = Some((address, why)),
        }
    }
    Err(match last {
        Some((address, why)) => unreached(address, &why),
        None => unresolved(target, &io::Error::other("it has no address")),
    })
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
        // By the agent's own confinement, or by a policy of the network.
        io::ErrorKind::PermissionDenied => "; a policy of this node forbids it",
        _ => "",
    };
    Failure::passing(Reason::Connect, format!("no connection to {address}{}{todo}", said(&why.to_string())))
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
