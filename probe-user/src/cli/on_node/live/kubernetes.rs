//! The flags for what goes to the API server of the cluster, and how the server is reached.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};

use crate::{
    api_server::{
        ApiServer,
        access::{Access, AccessError},
        kubeconfig,
        rest::Rest,
        stats::KubernetesStats,
    },
    confine::{Confinement, Remote, role::Role},
    recording::Header,
    sink::{
        kubernetes::{CONDITION, Reporter, Settings, Store},
        net::loop_queue,
        state::state_writes::StateWrites,
        verdict::Judge,
    },
    source::ledger,
};

/// Where systems have their certificate authorities, which count if a kubeconfig names none.
const SYSTEM: [&str; 4] = ["/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/usr/share/ca-certificates"];

const THREAD: &str = "cannot start a thread";

/// The longest name of an object, bytes.
const MAX_NAME_BYTES: usize = 253;

#[derive(Debug, Args)]
pub(super) struct KubernetesArgs {
    /// Report findings to the cluster: an Event for each incident, on its pods and on the node
    #[arg(long)]
    kubernetes_events: bool,

    /// Write the verdict on the node to the cluster, as the node's condition SandboxHealthy
    #[arg(long)]
    kubernetes_condition: bool,

    /// Ask the API server whether addresses of ended sandboxes are still allocated (for an IPAM that stores
    /// allocations there)
    #[arg(long, value_name = "IPAM")]
    kubernetes_ipam: Option<Ipam>,

    /// Where no pod's service account says how to reach the API server: a kubeconfig with a token or a client
    /// certificate
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// An IPAM whose objects the API server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ipam {
    /// Calico's IPAM, with Kubernetes as its datastore
    Calico,
}

/// What goes to the API server or is asked there, and where that is.
pub(super) struct Target {
    access: Access,
    rest: Rest,
    port: u16,
    events: bool,
    condition: bool,
    ipam: Option<Ipam>,
}

impl KubernetesArgs {
    /// Returns where to report and ask, if anything is to be reported or asked.
    pub(super) fn open(&self, node: &str) -> anyhow::Result<Option<Target>> {
        let Self {
            kubernetes_events: events,
            kubernetes_condition: condition,
            kubernetes_ipam: ipam,
            ref kubeconfig,
        } = *self;
        if !events && !condition && ipam.is_none() {
            if kubeconfig.is_some() {
                bail!("--kubeconfig needs --kubernetes-events, --kubernetes-condition or --kubernetes-ipam");
            }
            return Ok(None);
        }
        if (events || condition) && !is_name(node) {
            bail!(
                "{node:?} is not a valid name of a Node object, which has at most {MAX_NAME_BYTES} lowercase letters, digits, \"-\" \
                 and \".\": give the right one with --node NAME"
            );
        }
        let access = match kubeconfig {
            Some(file) => kubeconfig::access(file)
                .with_context(|| format!("cannot use the kubeconfig {}", file.display()))?,
            None => Access::of_pod().map_err(|why| no_pod(&why))?,
        };
        let port = access.check().context("cannot ask the API server")?;
        own_folders(&access.files())?;
        Ok(Some(Target { access, rest: Rest::default(), port, events, condition, ipam }))
    }
}

/// Refuses a file in the root folder: the thread that reads it again may read its whole folder.
fn own_folders(files: &[PathBuf]) -> anyhow::Result<()> {
    match files.iter().find(|file| file.parent() == Some(Path::new("/"))) {
        Some(file) => bail!(
            "{} is in the folder /, all of which could be read with it: move it to a folder of its own",
            file.display()
        ),
        None => Ok(()),
    }
}

/// Whether a node's object may have this name: a subdomain of RFC 1123.
fn is_name(node: &str) -> bool {
    node.len() <= MAX_NAME_BYTES && node.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn no_pod(why: &AccessError) -> anyhow::Error {
    let why = match why {
        AccessError::NoPod => why.to_string(),
        why => format!("the pod's service account cannot be used: {why}"),
    };
    anyhow!("cannot reach the API server: {why}; give --kubeconfig FILE, or leave --kubernetes-… out")
}

impl Target {
    /// Returns what the thread that asks the API server needs.
    pub(super) fn remote(&self) -> Remote {
        let files = self.access.files();
        let own = files.iter().filter_map(|file| file.parent());
        let of_system: &[&str] = if self.access.needs_system_authorities() { &SYSTEM } else { &[] };
        let dirs = own.chain(of_system.iter().map(Path::new)).map(Path::to_owned).collect();
        Remote { port: self.port, dirs }
    }

    /// Returns the line that says what goes where.
    pub(super) fn said(&self) -> String {
        let events = self.events.then_some("Events of findings");
        let condition = self.condition.then(|| format!("the node's condition {CONDITION}"));
        let sent: Vec<_> = events.map(str::to_owned).into_iter().chain(condition).collect();
        let url = self.access.url();
        let mut said = String::new();
        if !sent.is_empty() {
            said += &format!("{} go to {url}\n", sent.join(" and "));
        }
        if self.ipam.is_some() {
            said += &format!("whose an address is, is asked at {url}\n");
        }
        said
    }

    /// Returns the ledger that is asked whose an address is, if that is wanted.
    pub(super) fn asked(&self) -> Option<&'static ledger::Kind> {
        match self.ipam? {
            Ipam::Calico => Some(&ledger::CALICO),
        }
    }

    /// Returns how to ask whose an address is, if that is wanted.
    pub(super) fn ledger(&self, stats: &Arc<KubernetesStats>) -> Option<(&'static ledger::Kind, ApiServer)> {
        Some((self.asked()?, self.server(stats)))
    }

    fn server(&self, stats: &Arc<KubernetesStats>) -> ApiServer {
        ApiServer::new(self.access.clone(), self.rest.clone(), Arc::clone(stats))
    }

    pub(super) fn start(
        self,
        header: &Header,
        state: Option<(&Path, StateWrites)>,
        client: &loop_queue::Client,
        judge: Arc<Judge>,
        stats: Arc<KubernetesStats>,
        confinement: &Confinement,
    ) -> anyhow::Result<Option<Reporter>> {
        let Self { events, condition, .. } = self;
        if !events && !condition {
            return Ok(None);
        }
        let server = self.server(&stats);
        let store = match state {
            Some((dir, writes)) if events => {
                let opened = confinement.start(Role::Store, || Store::open(dir, header, writes))?;
                Some(opened.context(THREAD)?)
            }
            Some(_) | None => None,
        };
        let settings = Settings { server, node: header.node.clone(), events, condition, store };
        let started =
            confinement.start(Role::Kubernetes, || Reporter::start(settings, client, judge, stats))?;
        Ok(Some(started.context(THREAD)?))
    }
}

#[cfg(test)]
mod tests {
    use super::{is_name, own_folders};

    #[test]
    fn a_file_in_the_root_folder_is_refused() {
        let files = |last: &str| own_folders(&["/etc/kubernetes/ca.crt".into(), last.into()]);
        assert!(files("/etc/kubernetes/token").is_ok());
        let said = files("/token").err().map(|why| why.to_string()).unwrap_or_default();
        assert!(said.starts_with("/token is in the folder /"), "{said}");
    }

    #[test]
    fn a_node_has_a_name_as_other_objects() {
        for good in ["a", "node-1", "ip-10-0-0-1.eu-west-1.compute.internal", "0", &"a".repeat(253)] {
            assert!(is_name(good), "{good}");
        }
        for bad in [
            "",
            "Node",
            "a_b",
            "-a",
            "a-",
            "a..b",
            ".a",
            "a/../b",
            "a b",
            "a?b",
            "a\n",
            "\u{e4}",
            &"a".repeat(254),
        ] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }
}
