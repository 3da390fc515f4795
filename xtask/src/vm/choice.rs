//! The choices for a VM: its kernel, container runtime, init and cgroup layout.

use anyhow::{Result, bail};
use clap::ValueEnum;
use std::fmt;
use std::str::FromStr;

/// A kernel series, and the Debian release that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    V5_10,
    V6_1,
    V6_12,
    V7,
}

impl Kernel {
    pub(crate) const ALL: [Self; 4] = [Self::V5_10, Self::V6_1, Self::V6_12, Self::V7];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::V5_10 => "5.10",
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V7 => "7.2",
        }
    }

    pub(super) const fn suite(self) -> &'static str {
        match self {
            Self::V5_10 => "bullseye",
            Self::V6_1 => "bookworm",
            Self::V6_12 => "trixie",
            Self::V7 => "sid",
        }
    }

    /// Returns what a release of this series begins with. Sid moves on: there it is whatever 7 is current.
    pub(super) const fn prefix(self) -> &'static str {
        match self {
            Self::V5_10 => "5.10.",
            Self::V6_1 => "6.1.",
            Self::V6_12 => "6.12.",
            Self::V7 => "7.",
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One or more kernels, as typed: `6.1`, `5.10,7.2` or `all`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kernels(pub(super) Vec<Kernel>);

impl FromStr for Kernels {
    type Err = anyhow::Error;

    fn from_str(typed: &str) -> Result<Self> {
        if typed == "all" {
            return Ok(Self(Kernel::ALL.to_vec()));
        }
        typed.split(',').map(kernel).collect::<Result<_>>().map(Self)
    }
}

fn kernel(typed: &str) -> Result<Kernel> {
    let found = Kernel::ALL.into_iter().find(|kernel| kernel.name() == typed);
    match found {
        Some(kernel) => Ok(kernel),
        None if typed == "7" || typed.starts_with("7.") => Ok(Kernel::V7),
        None => bail!("no kernel {typed:?}: 5.10, 6.1, 6.12, 7.2 (the newest 7 there is) or all"),
    }
}

/// A container runtime with the runc and CNI plugins of the same Debian release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Runtime {
    #[value(name = "containerd-1.6", alias = "1.6")]
    Containerd1_6,
    #[value(name = "containerd-1.7", alias = "1.7")]
    Containerd1_7,
    #[value(name = "containerd-2.1", aliases = ["2.1", "containerd-2", "2"])]
    Containerd2_1,
}

impl Runtime {
    pub(crate) const ALL: [Self; 3] = [Self::Containerd1_6, Self::Containerd1_7, Self::Containerd2_1];

    /// Returns its name, which is also the name of its folder below the guest's /opt.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Containerd1_6 => "containerd-1.6",
            Self::Containerd1_7 => "containerd-1.7",
            Self::Containerd2_1 => "containerd-2.1",
        }
    }

    pub(super) const fn suite(self) -> &'static str {
        match self {
            Self::Containerd1_6 => "bookworm",
            Self::Containerd1_7 => "trixie",
            Self::Containerd2_1 => "sid",
        }
    }

    /// Returns what containerd's package version begins with. Sid moves on: there it is whatever 2 is
    /// current.
    pub(super) const fn prefix(self) -> &'static str {
        match self {
            Self::Containerd1_6 => "1.6.",
            Self::Containerd1_7 => "1.7.",
            Self::Containerd2_1 => "2.",
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The init: the program that runs as PID 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Init {
    /// A shell script that mounts everything and starts nothing else.
    Quick,
    /// systemd, with nothing but the command's own unit: for the systemd cgroup driver.
    Systemd,
}

impl Init {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Systemd => "systemd",
        }
    }

    /// Returns the cgroup driver of the runtime on a node with this init.
    pub(super) const fn driver(self) -> &'static str {
        match self {
            Self::Quick => "cgroupfs",
            Self::Systemd => "systemd",
        }
    }
}

/// How cgroups are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Cgroup {
    /// The unified hierarchy.
    V2,
    /// One hierarchy for each controller.
    V1,
    /// Like v1, with an empty v2 hierarchy at `unified`.
    Hybrid,
}

impl Cgroup {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::V1 => "v1",
            Self::Hybrid => "hybrid",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_as_typed() {
        let read = |typed: &str| typed.parse::<Kernels>().unwrap().0;
        assert_eq!(read("6.1"), [Kernel::V6_1]);
        assert_eq!(read("5.10,7.2"), [Kernel::V5_10, Kernel::V7]);
        assert_eq!(read("all"), Kernel::ALL);
        assert_eq!(read("7.4"), [Kernel::V7]);
        assert!("6.2".parse::<Kernels>().is_err());
        assert!("".parse::<Kernels>().is_err());
    }

    #[test]
    fn runtimes_as_typed() {
        let read = |typed: &str| <Runtime as ValueEnum>::from_str(typed, false);
        for runtime in Runtime::ALL {
            assert_eq!(read(runtime.name()), Ok(runtime));
            assert_eq!(read(runtime.name().trim_start_matches("containerd-")), Ok(runtime));
        }
        assert!(read("1.5").is_err());
    }

    /// Series 6.1 must not take 6.12.
    #[test]
    fn series_do_not_overlap() {
        assert!(!"6.12.117+deb13-amd64".starts_with(Kernel::V6_1.prefix()));
        assert!("6.1.0-56-amd64".starts_with(Kernel::V6_1.prefix()));
    }
}
