//! Files that are read again when their contents change, because an agent runs longer than a secret is valid.
//!
//! The kubelet replaces all files of a Secret at once, by a symbolic link to their directory; other programs
//! write one file after the other. So the contents are compared, not the modification times.

use std::{path::PathBuf, time::Duration};

use crate::bounded_read;

/// How often the files are compared. The kubelet itself takes a minute to update them.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The contents of each file.
type Contents = Vec<Option<Vec<u8>>>;

#[derive(Debug)]
pub(crate) struct ReloadingFiles {
    paths: Vec<PathBuf>,
    used: Contents,
    /// The current contents, if they cannot be used.
    refused: Option<Contents>,
}

impl ReloadingFiles {
    /// Watches files that have just been read.
    #[must_use]
    pub(crate) fn new(paths: Vec<PathBuf>) -> Self {
        let mut it = Self { paths, used: Contents::new(), refused: None };
        it.used = it.contents();
        it
    }

    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Whether the files have contents that cannot be used, so that the old ones are still used.
    #[must_use]
    pub(crate) fn is_stale(&self) -> bool {
        self.refused.is_some()
    }

    /// Compares the files, and calls `take` once for each change; `None` if nothing changed.
    pub(crate) fn check(&mut self, take: impl FnOnce() -> Result<(), String>) -> Option<Result<(), String>> {
        let found = self.contents();
        if found == self.used {
            self.refused = None;
            return None;
        }
        if self.refused.as_ref() == Some(&found) {
            return None;
        }
        let done = take();
        match &done {
            Ok(()) => {
                self.used = found;
                self.refused = None;
            }
            Err(_) => self.refused = Some(found),
        }
        Some(done)
    }

    fn contents(&self) -> Contents {
        self.paths.iter().map(|path| bounded_read::read(path).ok()).collect()
    }
}
