//! Opens files and sockets before any hook is attached, so that errors are reported at once.

use std::{collections::BTreeMap, fs::File, io::Write, os::unix::fs::OpenOptionsExt, path::Path};

use anyhow::Context;
use tracing::warn;

use super::{
    Cri, ProbeArgs,
    kubernetes::{KubernetesArgs, Target},
    log::LogArgs,
    otlp::{self, OtlpArgs},
    serve::{self, ServeArgs},
};
use crate::{
    cli::{
        args::Shown,
        on_node::{
            node::{args::warn_of_absent, identity, place::Place},
            pins::PinArgs,
        },
        stderr::Stderr,
    },
    engine::Settings,
    recording::Header,
    sink::{metrics::Metrics, serve::Listeners, stream::log_file::LogFile},
    source::{
        backfill::store::Declared,
        host::HostRoot,
        live::{
            attach::{Options, Probe},
            pin::{PinError, Pins},
            ring::BULK_BYTES,
        },
    },
};

/// The options that a command gives to a run.
pub(super) struct Start<'a> {
    pub(super) probe: &'a ProbeArgs,
    pub(super) shown: &'a Shown,
    /// The file for the recording.
    pub(super) file: Option<&'a Path>,
    /// The directory for findings.
    pub(super) state_dir: Option<&'a Path>,
    /// The directory with the history of boots.
    pub(super) past: Option<&'a Path>,
    /// Whether hooks outlive the run.
    pub(super) pins: Option<&'a PinArgs>,
    /// The addresses of the API.
    pub(super) serve: Option<&'a ServeArgs>,
    /// The file that has the stream instead of standard output.
    pub(super) log: Option<&'a LogArgs>,
    /// What goes to the API server of the cluster.
    pub(super) kubernetes: Option<&'a KubernetesArgs>,
    /// The receiver of traces and log records.
    pub(super) otlp: Option<&'a OtlpArgs>,
    /// Whether to print the hooks at the start and the totals at the end.
    pub(super) banner: bool,
    /// Whether the run ends when the recording does.
    pub(super) ends_with_recording: bool,
    /// Whether the run continues when its terminal is closed. SIGHUP then only makes the server read its
    /// files again.
    pub(super) outlives_terminal: bool,
}

/// The parts of a run that are made before its hooks.
pub(super) struct Opened {
    pub(super) place: Place,
    pub(super) stores: Vec<Declared>,
    pub(super) header: Header,
    /// The file of the recording.
    pub(super) file: Option<File>,
    /// The file of the stream.
    pub(super) log: Option<LogFile>,
    /// The receiver of traces and log records.
    pub(super) otlp: Option<otlp::Opened>,
    /// How many boots the history keeps.
    pub(super) boots: usize,
    /// The labels of this boot.
    pub(super) labels: BTreeMap<String, String>,
    /// Whether runtimes are followed over CRI.
    pub(super) follows_runtimes: bool,
    pub(super) server: Option<(Listeners, Metrics)>,
    pub(super) kubernetes: Option<Target>,
    /// Where hooks outlive the run; an error is the reason why they cannot. The folder is locked as long as
    /// this lives.
    pub(super) pins: Option<Result<Pins, PinError>>,
}

impl Start<'_> {
    pub(super) fn open(&self) -> anyhow::Result<Opened> {
        let (mut config, stores) = self.probe.config.load()?;
        config.boot_target = self.probe.boot_target.or(config.boot_target);
        // Without permission nothing is changed: neither an older recording nor the socket.
        Probe::permitted()?;
        let place = Place::find(HostRoot::open(&self.probe.host.host_root)?)?;
        let pins = self.pins.map(PinArgs::open).transpose()?.flatten();
        if let Some(Err(error)) = &pins {
            warn!(%error, "hooks do not outlive this agent");
        }
        warn_of_absent(&stores, &place.root);
        let file = self.file.map(create).transpose()?;
        let log = self.log.map(|log| log.open(self.state_dir)).transpose()?;
        let settings = Settings {
            hold: self.probe.hold,
            limits: config.limits(),
            boot: config.boot(),
            ..Settings::default()
        };
        let header = identity::header(self.probe.node.clone(), settings);
        let otlp = self.otlp.map(|otlp| otlp.open(&config, &header, &place.root)).transpose()?.flatten();
        let server = self.serve.map(|serve| serve.open(&config)).transpose()?;
        let kubernetes = self.kubernetes.map(|it| it.open(&header.node)).transpose()?.flatten();
        let follows_runtimes = self.probe.cri == Cri::Auto;
        let boots = config.boots();
        let mut labels = config.boot_labels;
        labels.extend(self.probe.boot_labels.iter().cloned());
        Ok(Opened {
            place,
            stores,
            header,
            file,
            log,
            otlp,
            boots,
            labels,
            follows_runtimes,
            server,
            kubernetes,
            pins,
        })
    }

    pub(super) fn load(&self, opened: &Opened) -> anyhow::Result<Probe> {
        let place = &opened.place;
        Ok(Probe::load(&Options {
            pins: opened.pins.as_ref().and_then(|pins| pins.as_ref().ok()),
            all_execs: self.probe.all_execs,
            log: self.probe.debug_bpf,
            bulk: BULK_BYTES,
            stats: self.serve.is_some_and(|serve| serve.bpf_stats),
            ..Options::new(&place.root, &place.hierarchy)
        })?)
    }
}

impl Opened {
    /// Returns the message with the addresses of the API.
    pub(super) fn served_at(&self) -> String {
        self.server.as_ref().map_or_else(String::new, |(listeners, _)| serve::said(listeners))
    }
}

/// Creates the file so that only its owner may read it, because arguments of processes may hold secrets.
fn create(path: &Path) -> anyhow::Result<File> {
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.with_context(|| format!("cannot create {}", path.display()))
}

/// Prints to standard error, so that standard output has only the stream.
pub(super) fn print_stderr(text: &str) {
    Stderr.write_all(text.as_bytes()).ok();
}
