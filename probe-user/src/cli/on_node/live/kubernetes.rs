//! The flags for what goes to the API server of the cluster, and how the server is reached.

use std::{
    path::{self, Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use http::uri::Scheme;
use kube::{
    Client, Config,
    config::{InClusterError, KubeConfigOptions, Kubeconfig},
};
use tokio::runtime;

use crate::{
    api_server::{
        ApiServer,
        stats::KubernetesStats,
        token::{TokenFile, check as check_token},
    },
    bounded_read,
    confine::{Confinement, Remote, role::Role},
    recording::Header,
    sink::{
        kubernetes::{CONDITION, Reporter, Settings, Store},
        net::{
            loop_queue,
            url::{self, is_loopback},
        },
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

    /// Ask the API server whether addresses of sandboxes that are over are still allocated, where this IPAM
    /// keeps that in objects of the cluster
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
    config: Config,
    port: u16,
    token_file: Option<TokenFile>,
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
        // The client library is made for tasks; nothing of this waits.
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (config, token_file) = runtime.block_on(async {
            let mut config = match kubeconfig {
                Some(file) => outside(file).await?,
                None => Config::incluster().map_err(|why| no_pod(&why))?,
            };
            let token_file = check_token(&mut config.auth_info).context("cannot ask the API server")?;
            keep_secret(&config)?;
            Client::try_from(config.clone()).context("cannot connect to the API server")?;
            anyhow::Ok((config, token_file))
        })?;
        let port = port(&config)?;
        Ok(Some(Target { config, port, token_file, events, condition, ipam }))
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

fn no_pod(why: &InClusterError) -> anyhow::Error {
    let why = match why {
        InClusterError::ReadEnvironmentVariable(_) => "this is not a pod of a cluster".to_owned(),
        why => format!("the pod's service account cannot be used: {why}"),
    };
    anyhow!("cannot reach the API server: {why}; give --kubeconfig FILE, or leave --kubernetes-… out")
}

/// Returns the port of the API server.
fn port(Config { cluster_url, .. }: &Config) -> anyhow::Result<u16> {
    let usual = if cluster_url.scheme() == Some(&Scheme::HTTP) { 80 } else { 443 };
    let port = cluster_url.authority().and_then(|authority| url::port(authority, usual));
    port.with_context(|| format!("cannot ask the API server: {cluster_url} has no valid port"))
}

/// Refuses to send a token or a password over the network without TLS. kubectl leaves them out in that case,
/// but without them this agent would be nobody.
fn keep_secret(Config { cluster_url, auth_info, .. }: &Config) -> anyhow::Result<()> {
    let is_encrypted = cluster_url.scheme() == Some(&Scheme::HTTPS);
    let has_secret = auth_info.token.is_some() || auth_info.password.is_some();
    if has_secret && !is_encrypted && !cluster_url.host().is_some_and(is_loopback) {
        bail!(
            "cannot ask the API server: {cluster_url} is not encrypted, and the token or password would be readable on the \
             network: give the https:// address of the API server in the kubeconfig"
        );
    }
    Ok(())
}

async fn outside(file: &Path) -> anyhow::Result<Config> {
    let read = async {
        // It is read by its absolute path, because the paths in it are relative to its directory, whatever a
        // thread's own is.
        bounded_read::read(file)?;
        let kubeconfig = Kubeconfig::read_from(path::absolute(file)?)?;
        for path in files(&kubeconfig) {
            bounded_read::read(Path::new(path)).with_context(|| format!("cannot read {path}"))?;
        }
        let authority = authority(&kubeconfig);
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        // The authority is read again when it changes, as in a pod.
        config.root_cert_file = authority;
        // The environment's proxy is meant for other programs.
        config.proxy_url = None;
        if config.auth_info.exec.is_some() || config.auth_info.auth_provider.is_some() {
            bail!("its user authenticates with a program, which a confined agent cannot start");
        }
        Ok(config)
    };
    read.await.with_context(|| format!("cannot use the kubeconfig {}", file.display()))
}

/// Returns the files with certificates that a kubeconfig names. The library reads them whole.
fn files(kubeconfig: &Kubeconfig) -> impl Iterator<Item = &String> {
    let clusters =
        kubeconfig.clusters.iter().filter_map(|it| it.cluster.as_ref()?.certificate_authority.as_ref());
    let users = kubeconfig.auth_infos.iter().filter_map(|it| it.auth_info.as_ref());
    let own = users.flat_map(|it| [it.client_certificate.as_ref(), it.client_key.as_ref()]);
    clusters.chain(own.flatten())
}

/// Returns the file with the authority of the API server, if the kubeconfig does not contain it.
fn authority(kubeconfig: &Kubeconfig) -> Option<PathBuf> {
    let current = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|it| it.name == *current)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|it| it.name == context.cluster)?.cluster.as_ref()?;
    if cluster.certificate_authority_data.is_some() {
        return None;
    }
    cluster.certificate_authority.as_ref().map(PathBuf::from)
}

impl Target {
    /// Returns what the thread that asks the API server needs.
    pub(super) fn remote(&self) -> Remote {
        let Config { auth_info, root_cert, root_cert_file, .. } = &self.config;
        let named = [&auth_info.client_certificate, &auth_info.client_key];
        let token = self.token_file.as_ref().map(TokenFile::path);
        let files = named.into_iter().flatten().map(Path::new).chain(token).chain(root_cert_file.as_deref());
        let own = files.filter_map(Path::parent);
        let has_authority = root_cert.is_some() || root_cert_file.is_some();
        let of_system: &[&str] = if has_authority { &[] } else { &SYSTEM };
        let dirs = own.chain(of_system.iter().map(Path::new)).map(Path::to_owned).collect();
        Remote { port: self.port, dirs }
    }

    /// Returns the line that says what goes where.
    pub(super) fn said(&self) -> String {
        let events = self.events.then_some("Events of findings");
        let condition = self.condition.then(|| format!("the node's condition {CONDITION}"));
        let sent: Vec<_> = events.map(str::to_owned).into_iter().chain(condition).collect();
        let url = &self.config.cluster_url;
        let mut said = String::new();
        if !sent.is_empty() {
            said += &format!("{} go to {url}\n", sent.join(" and "));
        }
        if self.ipam.is_some() {
            said += &format!("whose an address is, is asked at {url}\n");
        }
        said
    }

    /// Whether it is asked whose an address is.
    pub(super) fn asks(&self) -> bool {
        self.ipam.is_some()
    }

    /// Returns how to ask whose an address is, if that is wanted.
    pub(super) fn ledger(&self, stats: &Arc<KubernetesStats>) -> Option<(&'static ledger::Kind, ApiServer)> {
        let kind = match self.ipam? {
            Ipam::Calico => &ledger::CALICO,
        };
        Some((kind, self.server(stats)))
    }

    fn server(&self, stats: &Arc<KubernetesStats>) -> ApiServer {
        ApiServer::new(self.config.clone(), self.token_file.clone(), Arc::clone(stats))
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
    use kube::{Config, config::AuthInfo};

    use super::{is_name, keep_secret, port};

    #[test]
    fn the_port_is_the_named_one_or_the_scheme_s() {
        for (url, wanted) in [
            ("https://a", Some(443)),
            ("http://a", Some(80)),
            ("https://a:6443", Some(6443)),
            ("https://a:65536", None),
        ] {
            assert_eq!(port(&Config::new(url.parse().expect("a URL"))).ok(), wanted, "{url}");
        }
    }

    #[test]
    fn a_secret_is_not_sent_where_others_can_read_it() {
        let token = || AuthInfo { token: Some("abc".into()), ..AuthInfo::default() };
        let password = || AuthInfo { password: Some("abc".into()), ..AuthInfo::default() };
        for (url, auth_info, is_fine) in [
            ("https://api.example:6443", token(), true),
            ("http://127.0.0.1:8001", token(), true),
            ("http://[::1]:8001", password(), true),
            ("http://localhost", token(), true),
            ("http://api.example:8080", AuthInfo::default(), true),
            ("http://api.example:8080", token(), false),
            ("http://10.0.0.1", password(), false),
        ] {
            let mut config = Config::new(url.parse().expect("a URL"));
            config.auth_info = auth_info;
            let kept = keep_secret(&config).map_err(|why| why.to_string());
            assert_eq!(kept.is_ok(), is_fine, "{url}: {kept:?}");
            let told = kept.err().unwrap_or_default();
            assert!(!told.contains("abc") && (is_fine || told.contains(url)), "{told}");
        }
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
