//! Puts a run together: node, hooks, sources, session, outlets; and says how it ended.

use std::{
    fs::File,
    io::{self, IsTerminal as _, Write},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    process,
    sync::Arc,
};

use anyhow::Context;
use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind},
    sync::oneshot,
};

#[cfg(feature = "serve")]
use super::serve::{self, ServeArgs};
use super::{
    ProbeArgs, banner,
    boot::{self, Beginning},
    hooks::Hooks,
    identity, open_files,
    place::Place,
    signals,
};
#[cfg(feature = "serve")]
use crate::{
    agent::figure::{self, Figures},
    cli::doctor,
    sink::{
        metrics::Metrics,
        serve::{Listeners, reload::Bell},
    },
};
use crate::{
    agent::{
        Agent, AgentError, Routes,
        record::{self, Record},
        served::Served,
    },
    cli::{
        ExitStatus,
        args::{Shown, warn_of_absent},
        complaint::{self, Complaint},
        output::{self, Reader},
        say,
    },
    confine::{Confinement, Mode, Needs, refusal, role::Role},
    engine::{Call, Settings, world::CheckpointEntry},
    model::fact::{Fact, Observation, Origin},
    recording::Header,
    session::Session,
    sink::{
        findings_file::FindingsFile,
        history::{Past, writer::BootHistoryWriter},
        outlet::Outlet,
        state_writes::{StateFile, StateWrites},
        stream::Stream,
    },
    source::{
        backfill::store::Declared,
        channel::{CancellationToken, asks, feed, stop},
        clock,
        files::Files,
        host::HostRoot,
        live::{
            attach::{HookReport, Options, Probe},
            log::Logger,
            tally::Totals,
        },
        ready::Ready,
    },
};

/// Bytes of the ring for execs that belong to nothing: half a second of them at full speed. A ring is mapped twice in
/// a row and all of it counts as memory of ours.
const BULK: u32 = 2 << 20;

const THREAD: &str = "cannot start a thread";

pub(super) struct Start<'a> {
    pub(super) probe: &'a ProbeArgs,
    pub(super) shown: &'a Shown,
    /// Where to record.
    pub(super) file: Option<&'a Path>,
    /// Where to keep the findings.
    pub(super) state_dir: Option<&'a Path>,
    /// Where the history of boots is read.
    pub(super) past: Option<&'a Path>,
    /// Where to serve what is known.
    #[cfg(feature = "serve")]
    pub(super) serve: Option<&'a ServeArgs>,
    /// Whether to say which hooks there are, and what was seen in all.
    pub(super) banner: bool,
    /// Whether there is nothing to run for once the recording has ended.
    pub(super) ends_with_recording: bool,
    /// Whether it runs on when its terminal is gone: SIGHUP then only has it read its server's files again.
    pub(super) outlives_terminal: bool,
}

impl Start<'_> {
    pub(super) fn run(&self) -> anyhow::Result<ExitStatus> {
        complaint::hurry();
        open_files::allow()?;
        let (config, stores) = self.probe.config.load()?;
        // Without it nothing else matters, and what is there already is left alone: an older recording, the socket.
        Probe::permitted()?;
        let place = Place::find(HostRoot::open(&self.probe.host.host_root)?)?;
        warn_of_absent(&stores, &place.root);
        // Before anything is hooked for it.
        let file = self.file.map(create).transpose()?;
        let settings = Settings {
            hold: self.probe.hold,
            limits: config.limits(),
            boot: config.boot(),
            ..Settings::default()
        };
        let header = identity::header(self.probe.node.clone(), settings);
        // Before the hooks, too: what cannot be listened to is known at once.
        #[cfg(feature = "serve")]
        let doors = self.serve.map(|serve| serve.open(&config)).transpose()?;
        let probe = Probe::load(&Options {
            all_execs: self.probe.all_execs,
            log: self.probe.debug_bpf,
            bulk: BULK,
            #[cfg(feature = "serve")]
            stats: self.serve.is_some_and(|serve| serve.bpf_stats),
            ..Options::new(&place.root, &place.hierarchy)
        })?;
        let start = clock::now();
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let Ended { session, totals, result } = runtime.block_on(self.agent(Parts {
            place,
            stores,
            header,
            probe,
            file,
            boots: config.boots(),
            #[cfg(feature = "serve")]
            doors,
        }))?;
        // What came in the end.
        refusal::tell();
        if self.banner {
            tell(&banner::end(session.summary(), &totals, clock::now().since(start)));
        }
        self.ended(result)
    }

    /// Within the runtime: starts every source, then works until it is told to end.
    async fn agent(&self, parts: Parts) -> anyhow::Result<Ended> {
        let Parts { place, stores, header, probe, file, boots, .. } = parts;
        let (end, hangup) = signals::to_end(self.outlives_terminal)?;
        let host_root = &self.probe.host.host_root;
        let hooks = Hooks::prove(probe, host_root, &place.hierarchy).await?;
        #[cfg(feature = "serve")]
        let socket =
            parts.doors.as_ref().and_then(|(doors, _)| Some(doors.socket.as_ref()?.path().to_owned()));
        #[cfg(not(feature = "serve"))]
        let socket = None;
        let state_dir = self.state_dir.map(Path::to_owned);
        let needs = Needs { state_dir, socket, netlink: hooks.netlink.is_some() };
        #[cfg(feature = "serve")]
        let mut report = doctor::of_run(&hooks, &place);
        let said = self.banner.then(|| {
            let hierarchy = match place.hierarchy.id {
                0 => "the v2 hierarchy".to_owned(),
                id => format!("v1 hierarchy {id}"),
            };
            banner::start(&header, &hooks, &hierarchy)
        });
        let counters = || hooks.drain.probe().totals().is_ok();
        let confinement = Confinement::begin(self.probe.confine, needs, counters)?;
        #[cfg(feature = "serve")]
        report.checks.push(doctor::of_confined(confinement.confined()));
        if let Some(said) = said {
            tell(&said);
            tell(&format!("confined: {}\n", confinement.confined()));
            #[cfg(feature = "serve")]
            if let Some((doors, _)) = &parts.doors {
                tell(&serve::said(doors));
            }
        }
        let mut session = Session::new(&header, self.shown.filter(), output::sink(self.shown.output));
        let recording = match file {
            Some(file) => {
                session.record(&header)?;
                let start = || Outlet::with_room(record::ROOM, "recording", file);
                let outlet = confinement.start(Role::Writer, start)?.context(THREAD)?;
                Some(Record::new(outlet, self.ends_with_recording))
            }
            None => None,
        };
        attached(&mut session, &hooks.reports)?;
        // Journals are read for it.
        let looked = confinement.start(Role::Files, || boot::look(&header, &place.root, self.past))?;
        let (past, beginning) = looked.context(THREAD)?;
        recover(&mut session, &past, beginning)?;
        let (feed, batches) = feed();
        let (unreadable, reading) = (Arc::default(), Arc::default());
        let state_writes = StateWrites::default();
        // Standard output itself, without the buffer by lines that std keeps for it.
        let stdout = io::stdout().as_fd().try_clone_to_owned().context("cannot use standard output")?;
        let start = || Outlet::spawn("stream", File::from(stdout));
        let mut stream = Stream::new(confinement.start(Role::Writer, start)?.context(THREAD)?);
        if self.outlives_terminal && io::stdout().is_terminal() {
            stream = stream.to_terminal();
        }
        #[cfg(feature = "serve")]
        let bell = parts.doors.as_ref().map(|(doors, _)| doors.reload.bell());
        #[cfg(feature = "serve")]
        let served = match parts.doors {
            Some(doors) => {
                let (unreadable, reading) = (Arc::clone(&unreadable), Arc::clone(&reading));
                let parts = figure::Parts {
                    batches: feed.gauge(),
                    unreadable,
                    dropped: stream.dropped(),
                    reading,
                    server: doors.0.reload.shown(),
                    state: state_writes.clone(),
                };
                let figures = Figures::new(&hooks.reports, &hooks.drain, parts);
                serve::start(doors, &mut session, &header, past.history, report, figures, &confinement)?
            }
            None => Served::default(),
        };
        #[cfg(not(feature = "serve"))]
        let served = Served::default();

        let (stopper, stop) = stop();
        if self.probe.confine == Mode::Full {
            tokio::spawn(refusals(signals::hear(SignalKind::from_raw(refusal::SIGNAL))?, stop.clone()));
        }
        if let Some(hangup) = hangup {
            #[cfg(feature = "serve")]
            let reload = move || bell.iter().for_each(Bell::ring);
            #[cfg(not(feature = "serve"))]
            let reload = || ();
            tokio::spawn(signals::hangups(hangup, reload, stop.clone()));
        }
        let mut routes = Routes::default();
        if let Some(netlink) = hooks.netlink {
            let (asker, questions) = asks();
            let start = || netlink.start(feed.clone(), questions, stop.clone());
            confinement.start(Role::Netlink, start)?.context(THREAD)?;
            routes.netlink = Some(asker);
        }
        if let Some(logger) = hooks.logger {
            tokio::spawn(diagnostics(logger, stop.clone()));
        }
        let (asker, questions) = asks();
        routes.files = Some(asker);
        let Place { root, hierarchy, layout } = place;
        let files = Files { root, hierarchy, layout, stores, unreadable, reading };
        let start = || files.start(feed.clone(), questions, stop.clone());
        confinement.start(Role::Files, start)?.context(THREAD)?;
        let drain = hooks.drain;
        let (draining, mut drained) = oneshot::channel();
        tokio::spawn(async move {
            let totals = drain.run(&feed, stop).await;
            draining.send(totals).ok();
        });

        let (findings_file, history) = match self.state_dir {
            Some(dir) => {
                if self.banner {
                    tokio::spawn(kept(dir.to_owned(), state_writes.clone()));
                }
                let start = || {
                    let writes = state_writes.clone();
                    let findings_file = FindingsFile::open(dir, &header, process::id(), writes)?;
                    let history = BootHistoryWriter::open(dir, &header, boots, state_writes)?;
                    Ok::<_, io::Error>((findings_file, history))
                };
                let (findings_file, history) = confinement.start(Role::Store, start)?.context(THREAD)?;
                (Some(findings_file), Some(history))
            }
            None => (None, None),
        };
        // All that is to have more than the loop has been started.
        confinement.enter(Role::Agent)?;
        let agent =
            Agent { session, batches, stopper, routes, stream, recording, findings_file, history, served };
        let mut blind = None;
        let (session, result) = agent
            .run(async {
                tokio::select! {
                    () = end => {}
                    // Without records to wait for there is nothing to run for.
                    totals = &mut drained => blind = Some(totals.unwrap_or_default()),
                }
            })
            .await;
        let result = if blind.is_some() { result.and(Err(AgentError::Blind)) } else { result };
        // It has ended, unless it is what did not end in time; then nothing was counted.
        let totals = blind.unwrap_or_else(|| drained.try_recv().unwrap_or_default());
        Ok(Ended { session, totals, result })
    }

    fn ended(&self, result: Result<(), AgentError>) -> anyhow::Result<ExitStatus> {
        match result {
            Ok(()) => Ok(ExitStatus::Ok),
            Err(AgentError::Stream(error)) => match output::reader(Err(error))? {
                Reader::Gone if self.outlives_terminal => {
                    say(
                        "nobody reads standard output any more, and the run has ended: let it go on with > /dev/null",
                    );
                    Ok(ExitStatus::Ok)
                }
                Reader::There | Reader::Gone => Ok(ExitStatus::Ok),
            },
            Err(AgentError::Recording(error)) => {
                let file = self.file.unwrap_or(Path::new("the recording"));
                say(&format!("{}: {error}; what was written until then can be replayed", file.display()));
                Ok(ExitStatus::Incomplete)
            }
            Err(
                error @ (AgentError::Unread(_)
                | AgentError::Unrecordable(_)
                | AgentError::Sources
                | AgentError::Blind),
            ) => {
                say(&error.to_string());
                Ok(ExitStatus::Incomplete)
            }
        }
    }
}

/// For its owner alone: the arguments of processes may hold what is nobody else's business.
fn create(path: &Path) -> anyhow::Result<File> {
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.with_context(|| format!("cannot create {}", path.display()))
}

/// What a run is put together from.
struct Parts {
    place: Place,
    stores: Vec<Declared>,
    header: Header,
    probe: Probe,
    file: Option<File>,
    boots: usize,
    #[cfg(feature = "serve")]
    doors: Option<(Listeners, Metrics)>,
}

/// What is left of a run.
struct Ended {
    session: Session,
    totals: Totals,
    result: Result<(), AgentError>,
}

/// Tells the engine how each signal is seen.
fn attached(session: &mut Session, reports: &[HookReport]) -> anyhow::Result<()> {
    let at = clock::now();
    for report in reports {
        let fact = Fact::Attached(report.fact());
        session.call(Call::Observe(Observation { at, origin: Origin::Agent, fact }))?;
    }
    Ok(())
}

/// Tells the engine which boot this is, what was known of it before, and how the boot before it ended.
fn recover(session: &mut Session, past: &Past, beginning: Beginning) -> anyhow::Result<()> {
    past.troubles.iter().for_each(|trouble| say(trouble));
    if let Some(earlier) = beginning.earlier {
        session.call(Call::Restore(Box::new(CheckpointEntry::Recovery(Box::new(earlier)))))?;
    }
    let fact = Fact::BootRead(Box::new(beginning.boot));
    session.call(Call::Observe(Observation { at: clock::now(), origin: Origin::Agent, fact }))?;
    Ok(())
}

/// Says where findings are kept, once the first of them were; why they cannot be is in the log.
async fn kept(dir: PathBuf, writes: StateWrites) {
    if writes.has_begun(StateFile::Findings).await {
        tell(&banner::kept(&dir));
    }
}

/// What is refused to a thread, into our own log.
async fn refusals(mut refused: Signal, mut stop: CancellationToken) {
    loop {
        refusal::tell();
        tokio::select! {
            () = stop.requested() => return,
            _ = refused.recv() => {}
        }
    }
}

/// What the eBPF programs say of themselves, into our own log.
async fn diagnostics(mut logger: Logger, mut stop: CancellationToken) -> io::Result<()> {
    let ready = Ready::new(logger.as_fd())?;
    loop {
        tokio::select! {
            () = stop.requested() => return Ok(()),
            readable = ready.wait() => readable?.clear_ready(),
        }
        logger.flush();
    }
}

/// On standard error, so that standard output is the stream alone.
fn tell(text: &str) {
    Complaint.write_all(text.as_bytes()).ok();
}
