//! Where `run` serves what it knows.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use anyhow::{Context as _, anyhow};
use clap::Args;

use super::{hooks::Hooks, place::Place};
use crate::{
    agent::{figure::Figures, served::Served},
    cli::{args::SOCKET, doctor, say},
    config::Config,
    recording::{Header, history::History},
    session::Session,
    sink::{
        metrics::{Metrics, label::PodLabel},
        serve::{
            Doors, Server,
            door::{self, DoorError, Socket},
            guard::Guard,
            house::Given,
            ring::Ring,
        },
    },
    source::{channel::Gauge, clock},
};

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// Where to serve metrics, the API and the page over HTTP; "none" for nowhere [default: 127.0.0.1:9477]
    #[arg(long, value_name = "ADDRESS:PORT", env = "SANDPROBE_LISTEN", value_parser = listen)]
    listen: Option<Listen>,

    /// Where to serve the same to other commands on this node; "none" for nowhere [default: /run/sandprobe/sandprobe.sock]
    #[arg(long, value_name = "PATH", env = "SANDPROBE_SOCKET")]
    socket: Option<PathBuf>,

    /// Labels that tell pods apart in metrics, with commas between: namespace, pod, workload (derived from the pod's name)
    #[arg(long, value_name = "LABELS", env = "SANDPROBE_METRIC_LABELS", value_delimiter = ',', value_parser = PodLabel::parse)]
    metric_labels: Vec<PodLabel>,

    /// Have the kernel count the runs of eBPF programs and their time, at some tens of nanoseconds for each run of any
    #[arg(long)]
    pub(super) bpf_stats: bool,
}

/// An address, or none.
type Listen = crate::config::Listen;

fn listen(text: &str) -> Result<Listen, String> {
    text.parse()
}

/// Unless told otherwise.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9477);

impl ServeArgs {
    /// What was asked for and cannot be had is an error; what is only the default is gone without.
    pub(super) fn open(&self, config: &Config) -> anyhow::Result<(Doors, Metrics)> {
        let listen = self.listen.or(config.listen);
        let network = match listen {
            Some(Listen::Nowhere) => None,
            Some(Listen::At(address)) => Some(door::address(address)?),
            None => or_without(door::address(LISTEN)),
        };
        let socket = match self.socket.as_deref().or(config.socket.as_deref()) {
            Some(path) if path.as_os_str() == "none" => None,
            Some(path) => Some(Socket::bind(path)?),
            None => or_without(Socket::bind(SOCKET.as_ref())),
        };
        let metrics = Metrics::new(&self.labels(config)?);
        let guard = Guard { own_names_only: true, ..Guard::default() };
        Ok((Doors { network, socket, guard }, metrics))
    }

    fn labels(&self, config: &Config) -> anyhow::Result<Vec<PodLabel>> {
        if !self.metric_labels.is_empty() {
            return Ok(self.metric_labels.clone());
        }
        let parse = |label: &String| {
            PodLabel::parse(label).map_err(|why| anyhow!("configuration: metric_labels: {why}"))
        };
        config.metric_labels.iter().map(parse).collect()
    }
}

fn or_without<T>(opened: Result<T, DoorError>) -> Option<T> {
    opened.map_err(|error| say(&format!("{error}; going on without"))).ok()
}

/// Starts the server, which hears of every change from here on.
pub(super) fn start(
    (doors, metrics): (Doors, Metrics),
    session: &mut Session,
    header: &Header,
    past: History,
    hooks: &Hooks,
    place: &Place,
    batches: Gauge,
) -> anyhow::Result<Served> {
    let ring = Arc::new(Ring::default());
    session.listen(Box::new(Arc::clone(&ring)));
    session.measure(metrics.clone());
    let given = Given {
        header: header.clone(),
        since: clock::now(),
        report: doctor::of_run(hooks, place),
        past,
        ring,
        metrics,
    };
    let (server, asks) = Server::start(doors, given).context("cannot start the server")?;
    Ok(Served::by(server, asks, Figures::new(&hooks.reports, &hooks.drain, batches)))
}
