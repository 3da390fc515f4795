//! Handshakes in memory. The certificates beside this file are for these tests only, and are valid for a
//! hundred years.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
    runtime,
};
use tokio_rustls::TlsConnector;

use super::{Files, TlsError, load};

pub(in crate::sink::serve) fn file(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "src/sink/serve/tls", name].iter().collect()
}

pub(in crate::sink::serve) fn connector(client: Option<&str>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("ca.pem")).expect("a certificate")).expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let certificate =
                CertificateDer::from_pem_file(file(&format!("{name}.pem"))).expect("a certificate");
            let key = PrivateKeyDer::from_pem_file(file(&format!("{name}.key"))).expect("a key");
            builder.with_client_auth_cert(vec![certificate], key).expect("they fit")
        }
    };
    TlsConnector::from(Arc::new(config))
}

/// Whether the server recognized the client's certificate; `None` if the handshake failed.
fn shake(asks: bool, client: Option<&str>) -> Option<bool> {
    let (certificate, key, authority) = (file("server.pem"), file("server.key"), file("ca.pem"));
    let client_authority = asks.then_some(&*authority);
    let files = Files { certificate: &certificate, key: &key, client_authority };
    let acceptor = load(files).expect("good files").acceptor;
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (near, far) = duplex(64 << 10);
        let name = ServerName::try_from("localhost").expect("a name");
        let client = async {
            let mut stream = connector(client).connect(name, near).await?;
            stream.write_all(b"x").await?;
            // With TLS 1.3 a refused client learns of it only now.
            stream.read_u8().await
        };
        let server = async {
            let mut stream = acceptor.accept(far).await?;
            stream.read_u8().await?;
            stream.write_all(b"y").await?;
            stream.flush().await?;
            Ok::<bool, std::io::Error>(stream.get_ref().1.peer_certificates().is_some())
        };
        let (client, server) = tokio::join!(client, server);
        client.ok().and(server.ok())
    })
}

#[test]
fn a_client_is_known_by_its_certificate_and_may_come_without_one() {
    assert_eq!(shake(false, None), Some(false));
    assert_eq!(shake(false, Some("client")), Some(false), "none was asked for");
    assert_eq!(shake(true, None), Some(false));
    assert_eq!(shake(true, Some("client")), Some(true));
    assert_eq!(shake(true, Some("other")), None, "of another authority");
}

#[test]
fn files_that_do_not_serve_are_named() {
    let with = |certificate: &str, key: &str, authority: Option<&str>| {
        let (certificate, key, authority) = (file(certificate), file(key), authority.map(file));
        let files = Files { certificate: &certificate, key: &key, client_authority: authority.as_deref() };
        load(files).expect_err("they are wrong").to_string()
    };
    for (told, words) in [
        (with("absent.pem", "server.key", None), "cannot read a certificate in"),
        (with("server.key", "server.key", None), "there is none in it"),
        (with("server.pem", "server.pem", None), "cannot read a private key in"),
        (with("server.pem", "server.key", Some("client.key")), "cannot read the authority of clients in"),
        (with("server.pem", "client.key", None), "TLS with these files does not work"),
    ] {
        assert!(told.contains(words) && !told.contains('\n'), "{told}");
    }
    assert!(matches!(
        load(Files { certificate: &file("x"), key: &file("y"), client_authority: None }),
        Err(TlsError::Unreadable { .. })
    ));
}
