//! The build information in a Go executable: the toolchain, the module and its version. Most CNI plugins are
//! written in Go, and nothing has to be run to read it.
//!
//! The layout is that of Go's `debug/buildinfo` and `runtime/debug.ParseBuildInfo`. A build without version
//! control or without a module (as by some distributions) records little, and no more is reported.
//!
//! **Invariant:** little is read even of a large file, and no content leads to a panic.

mod elf;
mod linked;
mod module;

use std::{
    collections::BTreeMap,
    io::{Read, Seek},
};

/// A longer version or path is ignored.
const MAX_WORD_BYTES: usize = 256;

/// The build information of a Go executable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoBuild {
    /// The toolchain's version: `go1.19.8`.
    pub go: String,
    /// The main package: `github.com/containerd/containerd/cmd/containerd`.
    pub package: Option<String>,
    pub module: Option<Module>,
    /// Strings that were set at link time (`-ldflags=-X NAME=VALUE`). A build with `-trimpath` does not
    /// record them.
    pub linked: BTreeMap<String, String>,
}

/// The module of the main package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    pub path: String,
    /// `None` for a build in a working tree without tags, where Go says `(devel)`.
    pub version: Option<String>,
}

/// Why the build information is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    #[error("not an ELF executable")]
    NotElf,
    #[error("a 32-bit executable: only 64-bit ones are read")]
    Narrow,
    #[error("a big-endian executable: only little-endian ones are read")]
    BigEndian,
    #[error("not built by Go, or before Go 1.13: it has no .go.buildinfo")]
    NotGo,
    #[error("its {0} not as Go writes it")]
    Malformed(&'static str),
}

impl GoBuild {
    pub fn read(executable: impl Read + Seek) -> Result<Self, Unknown> {
        let found = elf::read(executable)?;
        let mut build = module::parse(&found.modules);
        build.go = plain(&found.go).ok_or(Unknown::Malformed("version is"))?;
        Ok(build)
    }

    /// Returns the version that was set at link time, else the version of the module.
    #[must_use]
    pub(crate) fn version(&self) -> Option<&str> {
        let own = self.module.as_ref().map(|module| module.path.as_str()).or(self.package.as_deref());
        linked::version(&self.linked, own.unwrap_or_default())
            .or_else(|| self.module.as_ref()?.version.as_deref())
    }
}

/// Returns the text if it is safe to show: one short line of printable ASCII.
fn plain(text: &str) -> Option<String> {
    let is_plain = !text.is_empty()
        && text.len() <= MAX_WORD_BYTES
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    is_plain.then(|| text.to_owned())
}

#[cfg(test)]
mod tests;
