//! The flags of the commands that read a node.

use std::{num::NonZero, path::PathBuf, time::Duration};

use clap::Args;

use crate::{
    cli::say,
    config::{Config, IpamStore, recovered},
    duration::{duration, positive_duration},
    model::recovery::Recovered,
    size::count,
    source::{backfill::store::Declared, host::HostRoot},
};

/// The node, and the limits of the rules.
#[derive(Debug, Args)]
pub(in crate::cli) struct NodeArgs {
    #[command(flatten)]
    pub(in crate::cli) host: HostArgs,

    #[command(flatten)]
    pub(in crate::cli) config: ConfigArgs,
}

/// The node.
#[derive(Debug, Args)]
pub(in crate::cli) struct HostArgs {
    /// Where the root of the node's file system is mounted: /host in a container that mounts it there
    #[arg(long, value_name = "DIR", env = "SANDPROBE_HOST_ROOT", default_value = "/")]
    pub(in crate::cli) host_root: PathBuf,
}

/// The configuration file, and the flags that override it.
#[derive(Debug, Args)]
pub(in crate::cli) struct ConfigArgs {
    /// The configuration, a TOML file (docs/configuration.md)
    #[arg(long, value_name = "FILE", env = "SANDPROBE_CONFIG")]
    config: Option<PathBuf>,

    /// A directory in which an IPAM plugin keeps a file for each address in use, named by the address and
    /// with the container's id in it; may be repeated, or several separated by commas
    #[arg(
        long = "ipam-store",
        value_name = "DIR[:NETWORK]",
        env = "SANDPROBE_IPAM_STORE",
        value_delimiter = ','
    )]
    ipam_stores: Vec<String>,

    /// How long an address may stay reserved after its sandbox, while runtime and kubelet are up [default:
    /// 2m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    leak_grace: Option<Duration>,

    /// How long the kernel may take to tear down a network namespace before that counts as stuck [default:
    /// 1m]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    stuck_after: Option<Duration>,

    /// How long one call of a CNI plugin may take before it counts as slow [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    cni_slow: Option<Duration>,

    /// How many CNI plugins that run at once count as a queue [default: 20]
    #[arg(long, value_name = "COUNT", value_parser = count)]
    cni_queue: Option<NonZero<u32>>,

    /// After a restart: if no other pod comes for this long, the recovery is complete [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    boot_quiet: Option<Duration>,

    /// After a restart: a pod is back when its first container has "started", or when it is first "listening"
    /// [default: started]
    #[arg(long, value_name = "RULE", value_parser = recovered)]
    boot_recovered: Option<Recovered>,
}

impl ConfigArgs {
    /// Reads the configuration file. A flag wins over the file.
    pub(in crate::cli) fn load(&self) -> anyhow::Result<(Config, Vec<Declared>)> {
        let mut config = Config::read(self.config.as_deref())?;
        if !self.ipam_stores.is_empty() {
            config.ipam_stores = self.ipam_stores.iter().map(|text| IpamStore::parse(text)).collect();
        }
        config.leak_grace = self.leak_grace.or(config.leak_grace);
        config.stuck_after = self.stuck_after.or(config.stuck_after);
        config.cni_slow = self.cni_slow.or(config.cni_slow);
        config.cni_queue = self.cni_queue.or(config.cni_queue);
        config.boot_quiet = self.boot_quiet.or(config.boot_quiet);
        config.boot_recovered = self.boot_recovered.or(config.boot_recovered);
        let stores = config.stores()?;
        Ok((config, stores))
    }
}

/// Warns about each IPAM store that does not exist. A wrong path is not an error: a plugin makes its
/// directory when it first needs it. A store that exists and cannot be read is reported by its reader.
pub(in crate::cli) fn warn_of_absent(stores: &[Declared], root: &HostRoot) {
    for store in stores.iter().filter(|store| store.is_absent(root)) {
        say(&format!("IPAM store {} is not there: it counts as empty until it is", store.dir().display()));
    }
}
