//! Certificates and keys in PEM files.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject as _};

use crate::bounded_read;

/// Where PEM text is. It may be a secret, so it has no `Debug`.
#[derive(Clone)]
pub(crate) enum PemSource {
    File(PathBuf),
    /// The text itself, from the file that has this name.
    Inline {
        file: PathBuf,
        text: Vec<u8>,
    },
}

/// PEM text that cannot be read, or does not have what it should.
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
    PemSource::File(path.to_owned()).certificates(what)
}

/// The private key of a file.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Unreadable> {
    PemSource::File(path.to_owned()).private_key()
}

impl PemSource {
    /// Returns the file; `None` if this is the text itself.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Inline { .. } => None,
        }
    }

    /// Returns the certificates, at least one.
    pub(crate) fn certificates(
        &self,
        what: &'static str,
    ) -> Result<Vec<CertificateDer<'static>>, Unreadable> {
        let found = self.bytes().and_then(|bytes| CertificateDer::pem_slice_iter(&bytes).collect());
        match found {
            Ok(found) if Vec::is_empty(&found) => Err(self.unreadable(what, &pem::Error::NoItemsFound)),
            Ok(found) => Ok(found),
            Err(why) => Err(self.unreadable(what, &why)),
        }
    }

    /// Returns the private key.
    pub(crate) fn private_key(&self) -> Result<PrivateKeyDer<'static>, Unreadable> {
        self.bytes()
            .and_then(|bytes| PrivateKeyDer::from_pem_slice(&bytes))
            .map_err(|why| self.unreadable("a private key", &why))
    }

    fn bytes(&self) -> Result<Cow<'_, [u8]>, pem::Error> {
        match self {
            Self::File(path) => bounded_read::read(path).map(Cow::Owned).map_err(pem::Error::Io),
            Self::Inline { text, .. } => Ok(Cow::Borrowed(text)),
        }
    }

    /// Returns the error of PEM text in which nothing can be used.
    pub(super) fn unusable(&self, what: &'static str, why: &rustls::Error) -> Unreadable {
        let (Self::File(path) | Self::Inline { file: path, .. }) = self;
        Unreadable { what, path: path.clone(), why: why.to_string() }
    }

    fn unreadable(&self, what: &'static str, why: &pem::Error) -> Unreadable {
        let why = match why {
            pem::Error::Io(why) => why.to_string(),
            pem::Error::NoItemsFound => "there is none in it".to_owned(),
            other => other.to_string(),
        };
        let (Self::File(path) | Self::Inline { file: path, .. }) = self;
        Unreadable { what, path: path.clone(), why }
    }
}
