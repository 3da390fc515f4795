//! The architectures that the agent is built for.

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use std::env;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Arch {
    #[value(name = "x86_64")]
    X86_64,
    Aarch64,
}

impl Arch {
    /// Returns this machine's architecture.
    pub(crate) fn ours() -> Result<Self> {
        let ours = Self::value_variants().iter().copied().find(|arch| arch.is_ours());
        ours.with_context(|| format!("nothing is made for machines of the kind {}", env::consts::ARCH))
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// Returns the Rust target with musl, for static programs.
    pub(crate) fn target(self) -> String {
        format!("{}-unknown-linux-musl", self.name())
    }

    /// Returns the name that Debian, images and Go use.
    pub(crate) const fn short(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// Returns the name of a result for this architecture, which it names if it is not this machine's own.
    pub(crate) fn name_of(self, result: &str) -> String {
        if self.is_ours() { result.to_owned() } else { format!("{result}-{self}") }
    }

    pub(crate) fn is_ours(self) -> bool {
        self.name() == env::consts::ARCH
    }
}

impl std::fmt::Display for Arch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
