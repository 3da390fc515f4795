//! `cargo xtask setup`: installs what is missing for the build, the tests and the VMs.
//!
//! Invariant: if nothing is missing it only checks, in much less than a second.

use crate::arch::Arch;
use crate::package::{self, Need};
use crate::{tool, toolchain, vm};
use anyhow::Result;

const NODE: &[Need] = &[
    Need::any(&["containerd"], "containerd"),
    Need::any(&["runc"], "runc"),
    Need::any(&["/usr/lib/cni/bridge", "/opt/cni/bin/bridge"], "containernetworking-plugins"),
    Need::any(&["ip"], "iproute2"),
    Need::any(&["iptables"], "iptables"),
    // For tests with failing disks.
    Need::any(&["mke2fs"], "e2fsprogs"),
    Need::any(&["losetup"], "mount"),
    Need::package("busybox-static"),
];
const BROWSER: &[Need] =
    &[Need::any(&["chromium", "google-chrome"], "chromium"), Need::any(&["chromedriver"], "chromium-driver")];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to make ready; each includes building, and vm includes node
    #[arg(value_enum, default_value_t = Level::Build)]
    level: Level,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Level {
    /// Building and running the agent
    Build,
    /// Tests of pages: chromium, its driver, and Perfetto's viewer
    Browser,
    /// Tests of metrics and alerts: promtool, and Prometheus to scrape the agent
    Prometheus,
    /// Tests of questions over many nodes: DuckDB, and ClickHouse as a library
    Fleet,
    /// Tests and the demo with real pods on this machine: containerd, runc, CNI plugins
    Node,
    /// Tests in virtual machines: QEMU and what makes their images
    Vm,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    ensure(args.level)?;
    println!("setup: everything is there");
    Ok(())
}

pub(crate) fn ensure(level: Level) -> Result<()> {
    toolchain::ensure()?;
    match level {
        Level::Build => Ok(()),
        Level::Browser => package::ensure(BROWSER).and_then(|()| tool::PERFETTO.ensure()).map(drop),
        Level::Prometheus => tool::prometheus::ensure(),
        Level::Fleet => tool::ENGINES.ensure().map(drop),
        Level::Node => package::ensure(NODE),
        Level::Vm => package::ensure(NODE).and_then(|()| vm::ensure(Arch::ours()?)),
    }
}
