//! TLS for those who come over the network, and certificates of theirs by which they are known.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;

/// Where the keys lie, PEM files.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// The server's certificate, then those between it and its authority.
    pub certificate: &'a Path,
    pub key: &'a Path,
    /// The authority of clients' certificates, if those are asked for.
    pub client_authority: Option<&'a Path>,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {what} in {path}: {why}", path = path.display())]
    Unreadable { what: &'static str, path: PathBuf, why: String },
    #[error("TLS with these files does not work: {0}")]
    Unusable(String),
}

/// Reads the files once. Clients may come without a certificate: those whom a kubelet sends to `/healthz` have none.
pub fn acceptor(files: Files<'_>) -> Result<TlsAcceptor, TlsError> {
    let unusable = |why: &dyn std::error::Error| TlsError::Unusable(why.to_string());
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|why| unusable(&why))?;
    let builder = match files.client_authority {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates("the authority of clients", path)? {
                roots.add(certificate).map_err(|why| unusable(&why))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|why| unusable(&why))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let chain = certificates("a certificate", files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(files.key)
        .map_err(|why| unreadable("a private key", files.key, &why))?;
    let mut config = builder.with_single_cert(chain, key).map_err(|why| unusable(&why))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
    match read() {
        Ok(found) if found.is_empty() => Err(unreadable(what, path, &pem::Error::NoItemsFound)),
        Ok(found) => Ok(found),
        Err(why) => Err(unreadable(what, path, &why)),
    }
}

fn unreadable(what: &'static str, path: &Path, why: &pem::Error) -> TlsError {
    let why = match why {
        pem::Error::Io(why) => why.to_string(),
        pem::Error::NoItemsFound => io::Error::other("there is none in it").to_string(),
        other => other.to_string(),
    };
    TlsError::Unreadable { what, path: path.to_owned(), why }
}

#[cfg(test)]
pub(super) mod tests;
