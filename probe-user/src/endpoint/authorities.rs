//! The certificate authorities that a remote server's certificate is checked against.

use std::path::Path;

use rustls::RootCertStore;

use super::pem::{PemSource, Unreadable};

const AUTHORITY: &str = "a certificate authority";

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

/// Returns the authorities in this PEM text, at least one. Those that rustls does not accept are skipped.
pub(crate) fn authorities_in(source: &PemSource) -> Result<RootCertStore, AuthorityError> {
    let mut roots = RootCertStore::empty();
    let mut refused = None;
    for certificate in source.certificates(AUTHORITY)? {
        if let Err(why) = roots.add(certificate) {
            refused.get_or_insert(why);
        }
    }
    match refused {
        Some(why) if roots.is_empty() => Err(source.unusable(AUTHORITY, &why).into()),
        Some(_) | None => Ok(roots),
    }
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

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::{PemSource, authorities_in};

    /// PEM text around bytes that are no certificate.
    const OTHER: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

    #[test]
    fn an_authority_that_cannot_be_used_does_not_spoil_the_others() {
        let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "src/sink/serve/tls/ca.pem"].iter().collect();
        let good = fs::read_to_string(path).expect("a file");
        let source = |text: String| PemSource::Inline { file: "bundle.pem".into(), text: text.into_bytes() };
        assert_eq!(authorities_in(&source(format!("{OTHER}{good}"))).map(|it| it.len()).ok(), Some(1));
        let why = authorities_in(&source(OTHER.repeat(2))).err().map(|why| why.to_string());
        let why = why.expect("none is left");
        assert!(why.starts_with("cannot read a certificate authority in bundle.pem: "), "{why}");
    }
}
