//! Certificates and keys in PEM files.

use std::{
    io,
    path::{Path, PathBuf},
};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject as _};

use crate::bounded_read;

/// A file that cannot be read, or does not have what it should.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {what} in {path}: {why}", path = path.display())]
pub(crate) struct Unreadable {
    what: &'static str,
    path: PathBuf,
    why: String,
}

/// The certificates of a file, at least one.
pub(crate) fn certificates(
    what: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, Unreadable> {
    let bytes = bounded_read::read(path).map_err(pem::Error::Io);
    match bytes.and_then(|bytes| CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>()) {
        Ok(found) if found.is_empty() => Err(Unreadable::new(what, path, &pem::Error::NoItemsFound)),
        Ok(found) => Ok(found),
        Err(why) => Err(Unreadable::new(what, path, &why)),
    }
}

/// The private key of a file.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Unreadable> {
    let read = bounded_read::read(path).map_err(pem::Error::Io);
    read.and_then(|bytes| PrivateKeyDer::from_pem_slice(&bytes))
        .map_err(|why| Unreadable::new("a private key", path, &why))
}

impl Unreadable {
    fn new(what: &'static str, path: &Path, why: &pem::Error) -> Self {
        let why = match why {
            pem::Error::Io(why) => why.to_string(),
            pem::Error::NoItemsFound => io::Error::other("there is none in it").to_string(),
            other => other.to_string(),
        };
        Self { what, path: path.to_owned(), why }
    }
}
