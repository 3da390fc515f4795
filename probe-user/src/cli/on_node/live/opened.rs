//! What is opened before any hook is attached, so that what cannot be opened is known at once.

use std::{fs::File, io::Write, os::unix::fs::OpenOptionsExt, path::Path};

use anyhow::Context;

use super::{
    ProbeArgs,
    serve::{self, ServeArgs},
};
use crate::{
    cli::{
        args::Shown,
        complaint::Complaint,
        on_node::node::{args::warn_of_absent, identity, place::Place},
    },
    engine::Settings,
    recording::Header,
    sink::{metrics::Metrics, serve::Listeners},
    source::{
        backfill::store::Declared,
        host::HostRoot,
        live::attach::{Options, Probe},
    },
};

/// Bytes of the ring for execs that belong to nothing: half a second of them at full speed. A ring is mapped twice in
/// a row and all of it counts as memory of ours.
const BULK: u32 = 2 << 20;

/// What a command asks of a run.
pub(super) struct Start<'a> {
    pub(super) probe: &'a ProbeArgs,
    pub(super) shown: &'a Shown,
    /// Where to record.
    pub(super) file: Option<&'a Path>,
    /// Where to keep the findings.
    pub(super) state_dir: Option<&'a Path>,
    /// Where the history of boots is read.
    pub(super) past: Option<&'a Path>,
    /// Where to serve the API.
    pub(super) serve: Option<&'a ServeArgs>,
    /// Whether to say which hooks there are, and what was seen in all.
    pub(super) banner: bool,
    /// Whether there is nothing to run for once the recording has ended.
    pub(super) ends_with_recording: bool,
    /// Whether the run goes on when its terminal is closed: then SIGHUP only makes the server read its files again.
    pub(super) outlives_terminal: bool,
}

/// The parts of a run that exist before its hooks.
pub(super) struct Opened {
    pub(super) place: Place,
    pub(super) stores: Vec<Declared>,
    pub(super) header: Header,
    /// The recording's file.
    pub(super) file: Option<File>,
    /// How many boots the history keeps.
    pub(super) boots: usize,
    pub(super) server: Option<(Listeners, Metrics)>,
}

impl Start<'_> {
    pub(super) fn open(&self) -> anyhow::Result<Opened> {
        let (config, stores) = self.probe.config.load()?;
        // Without permission nothing is touched: neither an older recording nor the socket.
        Probe::permitted()?;
        let place = Place::find(HostRoot::open(&self.probe.host.host_root)?)?;
        warn_of_absent(&stores, &place.root);
        let file = self.file.map(create).transpose()?;
        let settings = Settings {
            hold: self.probe.hold,
            limits: config.limits(),
            boot: config.boot(),
            ..Settings::default()
        };
        let header = identity::header(self.probe.node.clone(), settings);
        let server = self.serve.map(|serve| serve.open(&config)).transpose()?;
        Ok(Opened { place, stores, header, file, boots: config.boots(), server })
    }

    pub(super) fn load(&self, place: &Place) -> anyhow::Result<Probe> {
        Ok(Probe::load(&Options {
            all_execs: self.probe.all_execs,
            log: self.probe.debug_bpf,
            bulk: BULK,
            stats: self.serve.is_some_and(|serve| serve.bpf_stats),
            ..Options::new(&place.root, &place.hierarchy)
        })?)
    }
}

impl Opened {
    /// What is said about where the API is served.
    pub(super) fn served_at(&self) -> String {
        self.server.as_ref().map_or_else(String::new, |(listeners, _)| serve::said(listeners))
    }
}

/// The file is for its owner alone: the arguments of processes may hold secrets.
fn create(path: &Path) -> anyhow::Result<File> {
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.with_context(|| format!("cannot create {}", path.display()))
}

/// On standard error, so that standard output is the stream alone.
pub(super) fn tell(text: &str) {
    Complaint.write_all(text.as_bytes()).ok();
}
