//! The certificate authorities that a remote server's certificate is checked against.

use std::path::Path;

use rustls::RootCertStore;

use super::pem::{PemSource, Unreadable};

#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorityError {
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("this system has no certificate authorities{why}: give the server's with {flag} FILE")]
    None { why: String, flag: &'static str },
    #[error("TLS with these authorities does not work: {0}")]
    Unusable(rustls::Error),
}

/// Returns the authorities of the file, or the system's without one. `flag` is the option that names the
/// file.
pub(crate) fn authorities(ca: Option<&Path>, flag: &'static str) -> Result<RootCertStore, AuthorityError> {
    match ca {
        Some(path) => authorities_in(&PemSource::File(path.to_owned())),
        None => authorities_of_system(flag),
    }
}

/// Returns the authorities in this PEM text, at least one.
pub(crate) fn authorities_in(source: &PemSource) -> Result<RootCertStore, AuthorityError> {
    let mut roots = RootCertStore::empty();
    for certificate in source.certificates("a certificate authority")? {
        roots.add(certificate).map_err(AuthorityError::Unusable)?;
    }
    Ok(roots)
}

fn authorities_of_system(flag: &'static str) -> Result<RootCertStore, AuthorityError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    // The system may have old certificates that rustls no longer accepts. They are skipped.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|why| format!(" ({why})")).unwrap_or_default();
        return Err(AuthorityError::None { why, flag });
    }
    Ok(roots)
}
