//! What a Go executable says of itself: the toolchain, the module and its version. Most CNI plugins are written in Go,
//! and nothing needs to be run to know.
//!
//! Source of the layout: Go's `debug/buildinfo` and `runtime/debug.ParseBuildInfo`. Where the build had no version
//! control or module (a distribution's), what is said is little, and no more is told than that.
//!
//! **Invariant:** however large the file, little of it is read, and nothing in it leads to a panic.

mod elf;
mod linked;
mod module;

use std::{
    collections::BTreeMap,
    io::{Read, Seek},
};

/// Longest version or path.
const WORD: usize = 256;

/// A Go executable's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoBuild {
    /// The toolchain: `go1.19.8`.
    pub go: String,
    /// The main package: `github.com/containerd/containerd/cmd/containerd`.
    pub package: Option<String>,
    pub module: Option<Module>,
    /// Strings set at link time (`-ldflags=-X NAME=VALUE`), which a build with `-trimpath` does not record.
    pub linked: BTreeMap<String, String>,
}

/// The module of the main package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    pub path: String,
    /// None for a build in a working tree without tags: Go says `(devel)`.
    pub version: Option<String>,
}

/// Why a file's build is not known.
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

    /// What a release process called it, else the version of its module.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        let own = self.module.as_ref().map(|module| module.path.as_str()).or(self.package.as_deref());
        linked::version(&self.linked, own.unwrap_or_default())
            .or_else(|| self.module.as_ref()?.version.as_deref())
    }
}

/// A text that can be shown to people: one line of printable ASCII, not too long.
fn plain(text: &str) -> Option<String> {
    let is_plain =
        !text.is_empty() && text.len() <= WORD && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    is_plain.then(|| text.to_owned())
}

#[cfg(test)]
mod tests;
