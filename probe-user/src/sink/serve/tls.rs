//! TLS for network clients, and client certificates.

mod validity;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{RootCertStore, ServerConfig, crypto::ring, server::WebPkiClientVerifier};
use tokio_rustls::TlsAcceptor;

use crate::{
    endpoint::pem::{Unreadable, certificates, private_key},
    sink::metrics::agent_stats::Expiry,
};

/// The paths of the PEM files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files<'a> {
    /// The server's certificate, followed by the intermediate certificates.
    pub(crate) certificate: &'a Path,
    pub(crate) key: &'a Path,
    /// The authority of client certificates, if they are accepted.
    pub(crate) client_authority: Option<&'a Path>,
}

/// The owned form of [`Files`].
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) client_authority: Option<PathBuf>,
}

impl Paths {
    #[must_use]
    pub(crate) fn files(&self) -> Files<'_> {
        let Self { certificate, key, client_authority } = self;
        Files { certificate, key, client_authority: client_authority.as_deref() }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Path> {
        let Files { certificate, key, client_authority } = self.files();
        [certificate, key].into_iter().chain(client_authority)
    }
}

/// The loaded files.
pub(crate) struct Loaded {
    acceptor: TlsAcceptor,
    /// When the first certificate of the chain expires, seconds since the epoch.
    expires: Option<i64>,
}

/// The TLS acceptor, which is replaced when its files change.
#[derive(Clone)]
pub(crate) struct Tls {
    acceptor: Arc<RwLock<TlsAcceptor>>,
    expiry: Expiry,
}

impl Tls {
    #[must_use]
    pub(crate) fn new(loaded: Loaded) -> Self {
        let expiry = Expiry::default();
        expiry.set(loaded.expires);
        Self { acceptor: Arc::new(RwLock::new(loaded.acceptor)), expiry }
    }

    pub(super) fn current(&self) -> TlsAcceptor {
        // No code panics while it holds the lock.
        self.acceptor.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the acceptor. New connections use the new one.
    pub(super) fn replace(&self, loaded: Loaded) {
        *self.acceptor.write().unwrap_or_else(PoisonError::into_inner) = loaded.acceptor;
        self.expiry.set(loaded.expires);
    }

    #[must_use]
    pub(crate) fn expiry(&self) -> Expiry {
        self.expiry.clone()
    }
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("TLS with these files does not work: {0}")]
    Unusable(String),
}

/// Reads the files. A client certificate is optional, because the kubelet's probes of `/healthz` have none.
pub(crate) fn load(files: Files<'_>) -> Result<Loaded, TlsError> {
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
    // The chain is valid until the first of its certificates expires.
    let expires = chain.iter().filter_map(|certificate| validity::expires(certificate)).min();
    let key = private_key(files.key)?;
    let mut config = builder.with_single_cert(chain, key).map_err(|why| unusable(&why))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Loaded { acceptor: TlsAcceptor::from(Arc::new(config)), expires })
}

fn unusable(why: &dyn std::error::Error) -> TlsError {
    TlsError::Unusable(why.to_string())
}

#[cfg(test)]
pub(super) mod tests;
