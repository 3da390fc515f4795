//! The headers that are sent to a receiver, and the certificate authorities that its certificate is checked
//! against. A thread reads their files again when they change.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    thread,
};

use rustls::{ClientConfig, crypto::ring};
use tokio_rustls::TlsConnector;
use tracing::{info, warn};

use super::{
    header::{self, Headers},
    target::{Protocol, Target},
};
use crate::{
    bounded_read,
    endpoint::authorities::{AuthorityError, authorities},
    sink::net::reloading_files::{CHECK_INTERVAL, ReloadingFiles},
};

/// The files, and the headers from the environment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// Certificate authorities instead of the system's.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) header_file: Option<PathBuf>,
    /// Headers from the environment. A header of the file replaces one with the same name.
    pub(crate) headers: Headers,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialsError {
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error("cannot read the headers in {path}: {why}", path = path.display())]
    NoHeaders { path: PathBuf, why: io::Error },
    #[error("{path}: {why}", path = path.display())]
    Header { path: PathBuf, why: String },
}

/// The current headers and TLS settings. A clone shares them.
#[derive(Clone)]
pub(crate) struct Credentials(Arc<RwLock<Arc<Current>>>);

pub(super) struct Current {
    pub(super) headers: Headers,
    /// `None` for a receiver without TLS.
    pub(super) tls: Option<TlsConnector>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    pub(crate) fn load(target: &Target, sources: &Sources) -> Result<Self, CredentialsError> {
        Ok(Self(Arc::new(RwLock::new(Arc::new(Current::load(target, sources)?)))))
    }

    /// Whether any header is sent to the receiver.
    pub(crate) fn has_headers(&self) -> bool {
        !self.current().headers.is_empty()
    }

    pub(super) fn current(&self) -> Arc<Current> {
        // No code panics while it holds the lock.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace(&self, current: Current) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(current);
    }

    /// Starts a thread that reads the files again when they change. Without files there is no thread.
    pub(crate) fn follow(&self, target: &Target, sources: &Sources) -> io::Result<()> {
        let paths = [&sources.ca, &sources.header_file].into_iter().flatten();
        let mut files = ReloadingFiles::new(paths.cloned().collect());
        if files.is_empty() {
            return Ok(());
        }
        let credentials = self.clone();
        let target = target.clone();
        let sources = sources.clone();
        thread::Builder::new().name("otlp-files".to_owned()).spawn(move || {
            loop {
                thread::sleep(CHECK_INTERVAL);
                match files.check(|| credentials.renew(&target, &sources)) {
                    None => {}
                    Some(Ok(())) => info!("the headers and authorities of --otlp were read again"),
                    Some(Err(why)) => {
                        warn!(%why, "--otlp goes on with the headers and authorities that it has")
                    }
                }
            }
        })?;
        Ok(())
    }

    fn renew(&self, target: &Target, sources: &Sources) -> Result<(), String> {
        self.replace(Current::load(target, sources).map_err(|why| why.to_string())?);
        Ok(())
    }
}

impl Current {
    fn load(target: &Target, sources: &Sources) -> Result<Self, CredentialsError> {
        let mut headers = match &sources.header_file {
            Some(path) => read_headers(path)?,
            None => Headers::new(),
        };
        let others =
            sources.headers.iter().filter(|(name, _)| headers.iter().all(|(known, _)| known != name));
        let others: Headers = others.cloned().collect();
        headers.extend(others);
        let tls =
            target.has_tls().then(|| connector(target.protocol(), sources.ca.as_deref())).transpose()?;
        Ok(Self { headers, tls })
    }
}

fn read_headers(path: &Path) -> Result<Headers, CredentialsError> {
    let text = bounded_read::read_text(path)
        .map_err(|why| CredentialsError::NoHeaders { path: path.to_owned(), why })?;
    header::in_file(&text).map_err(|why| CredentialsError::Header { path: path.to_owned(), why })
}

fn connector(protocol: Protocol, ca: Option<&Path>) -> Result<TlsConnector, CredentialsError> {
    let roots = authorities(ca, "--otlp-ca")?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(AuthorityError::Unusable)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let alpn: &[u8] = match protocol {
        Protocol::Grpc => b"h2",
        Protocol::Http => b"http/1.1",
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
