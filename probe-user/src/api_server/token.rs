//! The token with which this agent authenticates to the API server.

use std::{
    io,
    path::{Path, PathBuf},
};

use http::HeaderValue;

use crate::bounded_read;

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
    /// The header with the last token that could be read.
    header: HeaderValue,
    /// Why the token could not be used when the file was last read.
    trouble: Option<String>,
}

/// Returns the header with this token. The line break with which many editors and commands end a file is
/// removed.
pub(super) fn bearer(text: &str, whose: &str) -> Result<HeaderValue, TokenError> {
    let token = text.trim();
    if token.is_empty() {
        return Err(TokenError::Empty(whose.to_owned()));
    }
    let mut header = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_error| TokenError::Unsendable(whose.to_owned()))?;
    header.set_sensitive(true);
    Ok(header)
}

impl TokenFile {
    /// Reads the file for the first time.
    pub(crate) fn open(path: PathBuf) -> Result<Self, TokenError> {
        let header = read(&path)?;
        Ok(Self { path, header, trouble: None })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn header(&self) -> &HeaderValue {
        &self.header
    }

    /// Reads the file again. If it cannot be read, the last token may still be valid.
    pub(super) fn read(&mut self) {
        self.trouble = match read(&self.path) {
            Ok(header) => {
                self.header = header;
                None
            }
            Err(why) => Some(why.to_string()),
        };
    }

    /// Adds what is wrong with the file to the API server's reason for not accepting the token.
    pub(super) fn explain(&self, said: String) -> String {
        match &self.trouble {
            Some(trouble) => format!("{said}; {trouble}"),
            None => said,
        }
    }
}

fn read(path: &Path) -> Result<HeaderValue, TokenError> {
    let text = bounded_read::read_text(path)
        .map_err(|why| TokenError::Unreadable { path: path.display().to_string(), why })?;
    bearer(&text, &path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::{TokenFile, bearer};

    #[test]
    fn white_space_around_a_token_is_no_part_of_it() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("token");
        for text in ["abc", "abc\n", "abc\r\n", " abc \n\n"] {
            assert_eq!(bearer(text, "the kubeconfig").expect("a token"), "Bearer abc", "{text:?}");
            fs::write(&path, text).expect("a file");
            let mut file = TokenFile::open(path.clone()).expect("a token");
            assert_eq!(file.header(), "Bearer abc", "{text:?}");
            fs::write(&path, "next\n").expect("a file");
            file.read();
            assert_eq!(file.header(), "Bearer next");
            assert_eq!(file.explain("no".to_owned()), "no");
            fs::write(&path, "\n").expect("a file");
            file.read();
            assert_eq!(file.header(), "Bearer next");
            let said = format!("no; the token in {} is empty", path.display());
            assert_eq!(file.explain("no".to_owned()), said);
        }
    }

    #[test]
    fn what_cannot_be_sent_is_said() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("token");
        let of_config =
            |text: &str| bearer(text, "the kubeconfig").expect_err("it cannot be sent").to_string();
        assert_eq!(
            of_config("a\nb"),
            "the token in the kubeconfig has a line break or another control character in it"
        );
        assert_eq!(of_config(" \n"), "the token in the kubeconfig is empty");
        let of_file = || match TokenFile::open(path.clone()) {
            Ok(_) => "nothing".to_owned(),
            Err(why) => why.to_string(),
        };
        let name = path.display();
        assert_eq!(
            of_file(),
            format!("cannot read the token in {name}: No such file or directory (os error 2)")
        );
        mkfifo(&path, Mode::S_IRWXU).expect("a FIFO");
        assert_eq!(of_file(), format!("cannot read the token in {name}: it is not a regular file"));
    }
}
