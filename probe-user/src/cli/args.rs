//! Flags that several commands have.

#[cfg(feature = "live")]
use std::time::Duration;
use std::{
    env,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum, builder::PossibleValuesParser};
use strum::VariantNames;

#[cfg(feature = "live")]
use super::say;
#[cfg(feature = "live")]
use crate::{
    config::{Config, IpamStore, duration, recovered},
    model::recovery::Recovered,
    source::{backfill::store::Declared, host::HostRoot},
};
use crate::{model::change::ChangeKind, sink::filter::Filter};

/// The form of what is written to standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// Aligned columns for people, in color on a terminal
    Text,
    /// One JSON object a line for programs (docs/events.md)
    Json,
}

/// What is told, and how.
#[derive(Debug, Args)]
pub(super) struct Shown {
    /// The form of the output
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    pub(super) output: Form,

    /// Tell only of pods in this namespace; may be repeated
    #[arg(long, value_name = "NAME")]
    namespace: Vec<String>,

    /// Tell only of pods of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    pod: Vec<String>,

    /// Tell only of containers of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    container: Vec<String>,

    /// Tell only events of this kind; may be repeated
    #[arg(long, value_name = "EVENT", value_parser = PossibleValuesParser::new(ChangeKind::VARIANTS))]
    event: Vec<String>,
}

impl Shown {
    pub(super) fn filter(&self) -> Filter {
        Filter {
            namespaces: self.namespace.clone(),
            pods: self.pod.clone(),
            containers: self.container.clone(),
            events: self.event.clone(),
        }
    }
}

/// Which node.
#[cfg(feature = "live")]
#[derive(Debug, Args)]
pub(super) struct HostArgs {
    /// Where the root of the node's file system is seen: /host in a container that has it mounted there
    #[arg(long, value_name = "DIR", env = "SANDPROBE_HOST_ROOT", default_value = "/")]
    pub(super) host_root: PathBuf,
}

/// What else may be configured.
#[cfg(feature = "live")]
#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    /// The configuration, a TOML file (docs/configuration.md)
    #[arg(long, value_name = "FILE", env = "SANDPROBE_CONFIG")]
    config: Option<PathBuf>,

    /// A directory in which an IPAM plugin keeps a file for each address given out, named by it, with the
    /// container's id in it; may be repeated, or be several with commas between
    #[arg(
        long = "ipam-store",
        value_name = "DIR[:NETWORK]",
        env = "SANDPROBE_IPAM_STORE",
        value_delimiter = ','
    )]
    ipam_stores: Vec<String>,

    /// How long an address may stay given out after its sandbox, while runtime and kubelet are up [default: 2m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    leak_grace: Option<Duration>,

    /// How long the kernel may take a network namespace apart before that is stuck [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    stuck_after: Option<Duration>,

    /// How long one call of a CNI plugin may take before it is slow [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    cni_slow: Option<Duration>,

    /// So many CNI plugins at once are a queue [default: 20]
    #[arg(long, value_name = "COUNT")]
    cni_queue: Option<u32>,

    /// After a restart: without another pod for so long, the last one was the last to come back [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    boot_quiet: Option<Duration>,

    /// After a restart: a pod is back when its first container has "started", or when it is first "listening"
    /// [default: started]
    #[arg(long, value_name = "RULE", value_parser = recovered)]
    boot_recovered: Option<Recovered>,
}

#[cfg(feature = "live")]
impl ConfigArgs {
    /// The file's, with what was typed put in the place of what it says.
    pub(super) fn load(&self) -> anyhow::Result<(Config, Vec<Declared>)> {
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

/// A wrong path is no error, for a plugin makes its directory when it first needs it; but it is said. One that is there and
/// cannot be read is told of by whoever reads it.
#[cfg(feature = "live")]
pub(super) fn warn_of_absent(stores: &[Declared], root: &HostRoot) {
    for store in stores.iter().filter(|store| store.is_absent(root)) {
        say(&format!("IPAM store {} is not there: it counts as empty until it is", store.dir().display()));
    }
}

/// Where an agent keeps what others ask it for, unless it is told otherwise.
pub(super) const STATE_DIR: &str = "/var/lib/sandprobe";

/// Where an agent answers other commands, unless it is told otherwise.
pub(super) const SOCKET: &str = "/run/sandprobe/sandprobe.sock";

/// Where an agent and who asks it for its findings meet.
#[derive(Debug, Args)]
pub(super) struct StateArgs {
    /// The directory in which "run" keeps what it finds out for "findings", "explain", "pods" and "boot"; "none" for nowhere
    /// [default: /var/lib/sandprobe]
    #[arg(long, value_name = "DIR", env = STATE_VARIABLE, value_parser = state_dir)]
    state_dir: Option<StateDir>,
}

/// Both are in the environment of the agent's pod, so that commands run there find the agent wherever it was put.
const STATE_VARIABLE: &str = "SANDPROBE_STATE_DIR";
pub(super) const SOCKET_VARIABLE: &str = "SANDPROBE_SOCKET";

/// Whether this value was typed and does not come from the variable: clap does not tell the two apart.
pub(super) fn is_typed(value: Option<&Path>, variable: &str) -> bool {
    value
        .is_some_and(|value| env::var_os(variable).is_none_or(|of_variable| value.as_os_str() != of_variable))
}

/// A directory, or with none no state at all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StateDir(Option<PathBuf>);

#[expect(clippy::unnecessary_wraps, reason = "the form of a value parser")]
fn state_dir(text: &str) -> Result<StateDir, String> {
    Ok(StateDir(Some(text).filter(|text| !matches!(*text, "" | "none")).map(PathBuf::from)))
}

impl StateArgs {
    pub(super) fn dir(&self) -> Option<&Path> {
        match &self.state_dir {
            Some(StateDir(dir)) => dir.as_deref(),
            None => Some(STATE_DIR.as_ref()),
        }
    }

    /// Whether somebody asked for just this one.
    pub(super) fn is_typed(&self) -> bool {
        match &self.state_dir {
            None => false,
            Some(StateDir(None)) => is_typed(Some("none".as_ref()), STATE_VARIABLE),
            Some(StateDir(dir)) => is_typed(dir.as_deref(), STATE_VARIABLE),
        }
    }
}
