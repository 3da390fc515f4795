//! The token with which this agent authenticates to the API server.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use http::HeaderValue;
use kube::config::AuthInfo;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use crate::bounded_read;

/// How often the file is read while the token is needed. The kubelet replaces a token long before it expires.
const PERIOD: Duration = Duration::from_secs(60);

/// Why a token cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("cannot read the token in {path}: {why}")]
    Unreadable { path: String, why: io::Error },
    #[error("the token in {0} is empty")]
    Empty(String),
    #[error("the token in {0} has a line break or another control character in it")]
    Unsendable(String),
}

/// The file of a token, which is read again from time to time.
#[derive(Clone, Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    read_at: Option<Instant>,
    /// Why the token could not be used when the file was last read.
    trouble: Option<String>,
}

/// Checks the token, and puts it into `auth` as it is sent. Returns the token's file, if it is from a file.
pub(crate) fn check(auth: &mut AuthInfo) -> Result<Option<TokenFile>, TokenError> {
    if let Some(token) = &auth.token {
        // The kube library also prefers it to the file.
        auth.token = Some(sendable(token.expose_secret(), "the kubeconfig")?);
        auth.token_file = None;
        return Ok(None);
    }
    let Some(path) = auth.token_file.take() else { return Ok(None) };
    let mut file = TokenFile { path: path.into(), read_at: None, trouble: None };
    auth.token = Some(file.read()?);
    Ok(Some(file))
}

impl TokenFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file must be read again.
    pub(super) fn is_due(&self) -> bool {
        self.read_at.is_none_or(|at| at.elapsed() >= PERIOD)
    }

    pub(super) fn read(&mut self) -> Result<SecretString, TokenError> {
        self.read_at = Some(Instant::now());
        let path = self.path.display().to_string();
        let token = match bounded_read::read_text(&self.path) {
            Ok(text) => sendable(&text, &path),
            Err(why) => Err(TokenError::Unreadable { path, why }),
        };
        self.trouble = token.as_ref().err().map(TokenError::to_string);
        token
    }

    /// Adds what is wrong with the file to the API server's reason for not accepting the token.
    pub(super) fn explain(&self, said: String) -> String {
        match &self.trouble {
            Some(trouble) => format!("{said}; {trouble}"),
            None => said,
        }
    }
}

/// Checks that the token can be sent. The line break with which many editors and commands end a file is
/// removed.
fn sendable(text: &str, whose: &str) -> Result<SecretString, TokenError> {
    let token = text.trim();
    if token.is_empty() {
        return Err(TokenError::Empty(whose.to_owned()));
    }
    if HeaderValue::from_str(token).is_err() {
        return Err(TokenError::Unsendable(whose.to_owned()));
    }
    Ok(token.into())
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use kube::config::AuthInfo;
    use nix::{sys::stat::Mode, unistd::mkfifo};
    use secrecy::{ExposeSecret as _, SecretString};

    use super::check;

    fn inline(token: &str) -> AuthInfo {
        AuthInfo { token: Some(SecretString::from(token)), ..AuthInfo::default() }
    }

    fn in_file(path: &Path) -> AuthInfo {
        AuthInfo { token_file: Some(path.display().to_string()), ..AuthInfo::default() }
    }

    fn token(auth: &AuthInfo) -> &str {
        auth.token.as_ref().expect("a token").expose_secret()
    }

    #[test]
    fn white_space_around_a_token_is_no_part_of_it() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("token");
        for text in ["abc", "abc\n", "abc\r\n", " abc \n\n"] {
            let mut auth = inline(text);
            assert!(check(&mut auth).expect("a token").is_none());
            assert_eq!(token(&auth), "abc", "{text:?}");
            fs::write(&path, text).expect("a file");
            let mut auth = in_file(&path);
            let mut file = check(&mut auth).expect("a token").expect("a file");
            assert_eq!((token(&auth), &auth.token_file), ("abc", &None), "{text:?}");
            assert!(!file.is_due());
            fs::write(&path, "next\n").expect("a file");
            assert_eq!(file.read().expect("a token").expose_secret(), "next");
            assert_eq!(file.explain("no".to_owned()), "no");
            fs::write(&path, "\n").expect("a file");
            assert!(file.read().is_err());
            let told = format!("no; the token in {} is empty", path.display());
            assert_eq!(file.explain("no".to_owned()), told);
        }
        assert!(check(&mut AuthInfo::default()).expect("none is needed").is_none());
    }

    #[test]
    fn what_cannot_be_sent_is_said() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("token");
        let said = |mut auth: AuthInfo| check(&mut auth).expect_err("it cannot be sent").to_string();
        assert_eq!(
            said(inline("a\nb")),
            "the token in the kubeconfig has a line break or another control character in it"
        );
        assert_eq!(said(inline(" \n")), "the token in the kubeconfig is empty");
        let name = path.display();
        assert_eq!(
            said(in_file(&path)),
            format!("cannot read the token in {name}: No such file or directory (os error 2)")
        );
        mkfifo(&path, Mode::S_IRWXU).expect("a FIFO");
        let fifo = format!("cannot read the token in {name}: it is not a regular file");
        assert_eq!(said(in_file(&path)), fifo);
    }
}
