//! Puts a run together: hooks, session, outlets, server, sources, state files. Then the loop runs.
//!
//! A thread that needs a capability starts before [`Assembly::run`] confines the main thread.

use std::{
    fs::File,
    io::{self, IsTerminal as _},
    iter, mem,
    os::fd::AsFd,
    path::{Path, PathBuf},
    process,
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::Duration,
};

use anyhow::Context;
use tokio::{
    signal::unix::{Signal, SignalKind},
    sync::{mpsc, oneshot},
};
use tracing::warn;

use super::{
    banner,
    kubernetes::Target,
    log::LogArgs,
    opened::{Opened, Start, print_stderr},
    otlp, serve, signals,
};
use crate::{
    agent::{
        Agent, AgentError, Routes,
        outlets::Outlets,
        record::{self, Record},
        served::Served,
        stats::{self, StatsCollector},
        takeover::{
            checkpoint::{
                self, Checkpoint,
                resume::{self, Last, Resumed},
            },
            replay_backlog,
        },
        timer::Timer,
    },
    api_server::{ApiServer, stats::KubernetesStats},
    cli::{
        args::Form,
        on_node::{
            doctor,
            node::{
                boot::{self, Beginning},
                hooks::Hooks,
                place::Place,
            },
        },
        output, say,
    },
    confine::{Confinement, Later, Mode, Needs, refusal, role::Role},
    engine::{Call, world::CheckpointEntry},
    model::fact::{Answer, EventStream, Fact, Observation, Origin, RuntimeLink},
    recording::history::History,
    session::Session,
    sink::{
        escape::escaped,
        metrics::Metrics,
        otlp::{Otlp, figures::ExportCounters},
        render::doctor::Report,
        serve::{listen::Socket, reload::Bell, shut::ShutSocket},
        state::{
            findings_file::FindingsFile,
            history::writer::BootHistoryWriter,
            state_writes::{StateFile, StateWrites},
        },
        stream::{Destination, Stream, Terminal, write_queue::WriteQueue},
    },
    source::{
        backfill::store::elsewhere_in,
        cri::follow::{self, Finder, Sockets, finder},
        files::{Files, ReadProgress},
        host::HostRoot,
        ledger,
        live::{
            attach::{Earlier, Probe},
            log::Logger,
            ring::RingReader,
            tally::Totals,
        },
        netlink::Netlink,
        node::clock,
        task::{
            channel::{
                Batch, BatchSender, CancellationSource, CancellationToken, QuestionSender, feed, questions,
                stop,
            },
            ready::Ready,
        },
    },
};

/// How long the first events may take to be written.
const GRACE: Duration = Duration::from_secs(1);

const THREAD: &str = "cannot start a thread";

/// A run whose hooks are attached, and whose threads are not yet started.
pub(super) struct Assembly<'a> {
    start: &'a Start<'a>,
    opened: Opened,
    hooks: Hooks,
    /// Which signals the hooks see, for `/v1/doctor`.
    report: Report,
    confinement: Confinement,
    signals: Signals,
    shared: Shared,
}

/// The signals that a run listens for.
struct Signals {
    /// Completes when the run must end.
    end: std::pin::Pin<Box<dyn Future<Output = ()>>>,
    /// SIGHUP, where it does not end the run.
    hangup: Option<Signal>,
}

/// What the threads share with the loop and with the metrics.
struct Shared {
    feed: BatchSender,
    batches: mpsc::Receiver<Batch>,
    stopper: CancellationSource,
    stop: CancellationToken,
    /// How many of the node's files could not be read.
    unreadable: Arc<AtomicU64>,
    /// How far the reading of the node's files has come.
    reading: Arc<ReadProgress>,
    state_writes: StateWrites,
    /// The requests to the API server.
    kubernetes: Arc<KubernetesStats>,
}

/// The result of a run.
pub(super) struct Ended {
    pub(super) session: Session,
    pub(super) totals: Totals,
    pub(super) result: Result<(), AgentError>,
}

impl<'a> Assembly<'a> {
    /// Proves the hooks, and decides what each thread gives up. Must be called within a runtime.
    pub(super) async fn new(start: &'a Start<'a>, opened: Opened, probe: Probe) -> anyhow::Result<Self> {
        let shared = Shared::new(start.state_dir);
        let (end, hangup) = signals::to_end(start.outlives_terminal)?;
        let signals = Signals { end: Box::pin(end), hangup };
        // A write beyond the limit of a file's size then fails, and does not end the process.
        drop(signals::hear(SignalKind::from_raw(libc::SIGXFSZ))?);
        let hooks = Hooks::prove(probe, &start.probe.host.host_root, &opened.place.hierarchy).await?;
        let unpinned = opened.pins.as_ref().and_then(|pins| pins.as_ref().err());
        let mut report = doctor::of_run(&hooks, &opened.place, unpinned);
        // The banner reads files that confinement may take away.
        let said = start.banner.then(|| banner::start(&opened.header, &hooks, &opened.place.hierarchy));
        let listeners = opened.server.as_ref().map(|(listeners, _)| listeners);
        let needs = Needs {
            state_dir: start.state_dir.map(Path::to_owned),
            log_dir: start.log.map(LogArgs::dir),
            export_port: opened.otlp.as_ref().map(|it| it.export.target.port()),
            socket: listeners.and_then(|it| {
                let socket = it.socket.as_ref().map(Socket::path);
                socket.or(it.shut.socket.as_ref().map(ShutSocket::path)).map(Path::to_owned)
            }),
            later: listeners.map_or_else(Later::default, |it| Later {
                port: it.shut.port.as_ref().map(|shut| shut.address().port()),
                socket: it.shut.socket.is_some(),
            }),
            netlink: hooks.netlink.is_some(),
            kubernetes: opened.kubernetes.as_ref().map(Target::remote).unwrap_or_default(),
        };
        let confinement =
            Confinement::begin(start.probe.confine, needs, || hooks.drain.probe().totals().is_ok())?;
        report.checks.push(doctor::of_confined(confinement.confined()));
        if let Some(said) = said {
            print_stderr(&said);
            print_stderr(&format!("confined: {}\n", confinement.confined()));
            print_stderr(&opened.served_at());
            if let Some(log) = start.log {
                print_stderr(&format!("events go to {}\n", escaped(&log.name())));
            }
            if let Some(target) = &opened.kubernetes {
                print_stderr(&target.said());
            }
            if let Some(otlp) = &opened.otlp {
                print_stderr(&otlp.said());
            }
        }
        Ok(Self { start, opened, hooks, report, confinement, signals, shared })
    }

    /// Starts every thread, then works until the end is requested.
    pub(super) async fn run(mut self) -> anyhow::Result<Ended> {
        let mut session = self.session();
        let recording = self.recording(&mut session)?;
        let otlp = self.otlp(&mut session)?;
        let (mut checkpoint, last) = self.checkpoint()?.unzip();
        let mut earlier = self.hooks.drain.take_earlier();
        let held = self.hooks.drain.take_held();
        let mut stream = self.stream()?;
        let noted = checkpoint.as_ref().and_then(Checkpoint::told_before);
        let last = last.unwrap_or(Last::None);
        let resumed = resume::take_over(&mut session, last, noted, &self.hooks.drain, &earlier)?;
        if let Some(checkpoint) = &mut checkpoint {
            // The file that begins now leaves out the events before it. Its time is that of the state, since
            // what the rings have is read later.
            checkpoint::settles(&mut session);
            write_rest(&mut session, &mut stream).await?;
            checkpoint.begin(clock::now(), &mut session);
        }
        let mut outlets = Outlets::new(stream, recording, checkpoint, held);
        let past = self.begin(&mut session, &mut outlets, resumed, &mut earlier).await?;
        let ledger = self.opened.kubernetes.as_ref().and_then(|it| it.ledger(&self.shared.kubernetes));
        let bell = self.opened.server.as_ref().map(|(listeners, _)| listeners.reload.bell());
        let exported = otlp.iter().flat_map(Otlp::figures).collect();
        let served = self.server(&mut session, past, &outlets.stream, exported)?;
        self.listen_for_signals(bell)?;
        let (findings_file, history) = self.state_files()?;

        let Self { opened, hooks, confinement, signals, shared, .. } = self;
        let Shared { feed, batches, stopper, stop, unreadable, reading, .. } = shared;
        let sources = Sources { confinement: &confinement, feed: &feed, stop: &stop };
        let Hooks { drain, netlink, logger, .. } = hooks;
        let Place { root, hierarchy, layout } = opened.place;
        let known = session.engine().followed().map(PathBuf::from).collect();
        let followed = opened.follows_runtimes.then(|| finder(known));
        let runtimes = followed.as_ref().map(|(finder, _)| finder.clone());
        let followed = followed.zip(root.again().ok());
        let records_first = drain.listings();
        let telling = iter::once(records_first.clone()).chain(netlink.as_ref().map(Netlink::told));
        let timer = Timer::new(telling.collect());
        let stores = opened.stores;
        let elsewhere = Mutex::new(session.engine().stores().filter_map(elsewhere_in).collect());
        let files = Files {
            root,
            hierarchy,
            layout,
            stores,
            elsewhere,
            unreadable,
            reading,
            records_first,
            runtimes,
        };
        let mut routes = sources.routes(netlink, files, followed)?;
        routes.ledger = sources.ledger(ledger)?;
        if let Some(logger) = logger {
            tokio::spawn(diagnostics(logger, stop.clone()));
        }
        let mut agent =
            Agent { session, timer, batches, stopper, routes, outlets, findings_file, history, otlp, served };
        if !earlier.is_empty() {
            // What these hooks have left is written before they end.
            agent.outlets.settle(&mut agent.session, GRACE).await?;
            for replaced in earlier {
                if let Err(error) = replaced.remove() {
                    warn!(%error, "hooks of an earlier agent run on; sandprobe detach removes them once this agent has ended");
                }
            }
        }
        let drained = read_rings(drain, feed, stop);
        // Every thread that needs more than the loop has started.
        confinement.enter(Role::Agent)?;
        let ended = work(agent, signals.end, drained).await;
        // Until here no other agent may have the folder.
        drop(opened.pins);
        Ok(ended)
    }

    fn session(&self) -> Session {
        let Start { shown, log, .. } = self.start;
        let form = if log.is_some() { Form::Json } else { shown.output };
        let mut session = Session::new(&self.opened.header, shown.filter(), output::format(form));
        if let Some(rate) = shown.rate() {
            session.limit(rate);
        }
        if let Some(metrics) = self.metrics() {
            // The metrics also count what is reported before the server can start.
            session.add_sink(Box::new(metrics.clone()));
        }
        session
    }

    /// Returns the metrics, until the server has them.
    fn metrics(&self) -> Option<&Metrics> {
        self.opened.server.as_ref().map(|(_, metrics)| metrics)
    }

    /// Starts the recording, which begins before the first call.
    fn recording(&mut self, session: &mut Session) -> anyhow::Result<Option<Record>> {
        let Some(file) = self.opened.file.take() else { return Ok(None) };
        session.record(&self.opened.header)?;
        let outlet =
            started(&self.confinement, Role::Writer, || WriteQueue::spawn(record::ROOM, "recording", file))?;
        Ok(Some(Record::new(outlet, self.start.ends_with_recording)))
    }

    /// Tells the engine what the hooks have seen until now, how each signal is seen, which boot this is, and
    /// what was known about it before. Returns the boots before this one.
    async fn begin(
        &mut self,
        session: &mut Session,
        outlets: &mut Outlets,
        resumed: Resumed,
        earlier: &mut [Earlier],
    ) -> anyhow::Result<History> {
        let hears_netlink = self.hooks.netlink.is_some();
        let drain = &mut self.hooks.drain;
        let at = replay_backlog::replay(session, drain, resumed, earlier, hears_netlink, |session| {
            outlets.write(session, clock::now())
        })?;
        // What had to come first is reported. Reading the boot takes a while, and the rings need their room.
        outlets.store(session, GRACE).await?;
        self.metrics().into_iter().for_each(|metrics| metrics.timed(clock::now()));
        // What the last agent heard from runtimes is out of date. Those that are found again answer anew.
        let answer = if self.opened.follows_runtimes { Answer::Gone } else { Answer::GivenUp };
        let followed: Vec<String> = session.engine().followed().map(str::to_owned).collect();
        for socket in followed {
            let fact =
                Fact::RuntimeLink(RuntimeLink { socket, answer, events: EventStream::Closed, since: None });
            session.call(Call::Observe(Observation { at, origin: Origin::Agent, fact }))?;
        }
        let asked = self.opened.kubernetes.as_ref().and_then(Target::asked);
        for link in ledger::links_at_start(asked, session.engine().asked().cloned().collect()) {
            let fact = Fact::StoreLink(link);
            session.call(Call::Observe(Observation { at, origin: Origin::Agent, fact }))?;
        }
        for report in &self.hooks.reports {
            let fact = Fact::Attached(report.fact());
            session.call(Call::Observe(Observation { at, origin: Origin::Agent, fact }))?;
        }
        let Opened { header, place, labels, .. } = &self.opened;
        let past = if self.shared.state_writes.is_made() { self.start.past } else { None };
        // This reads the node's journals.
        let (past, Beginning { earlier, boot }) = started(&self.confinement, Role::Files, || {
            boot::read_with_timeout(header, &place.root, past, labels)
        })?;
        past.problems.iter().for_each(|problem| say(problem));
        // The last agent may have been killed before it came here.
        if session.recovery().boot.is_none()
            && let Some(earlier) = earlier
        {
            session.call(Call::Restore(Box::new(CheckpointEntry::Recovery(Box::new(earlier)))))?;
        }
        let fact = Fact::BootRead(Box::new(boot));
        session.call(Call::Observe(Observation { at: clock::now(), origin: Origin::Agent, fact }))?;
        Ok(past.history)
    }

    /// Opens the file with the engine's state, if there is a state directory, and reads the state that the
    /// last agent kept there.
    fn checkpoint(&self) -> anyhow::Result<Option<(Checkpoint, Last)>> {
        let Some(dir) = self.start.state_dir else { return Ok(None) };
        let header = &self.opened.header;
        let writes = self.shared.state_writes.clone();
        Ok(Some(started(&self.confinement, Role::Store, || resume::open(dir, header, writes))?))
    }

    /// Opens the log file or standard output, which a thread writes.
    fn stream(&mut self) -> anyhow::Result<Stream> {
        let page = self.hooks.drain.page().clone();
        if let (Some(args), Some(file)) = (self.start.log, self.opened.log.take()) {
            return self.confinement.start(Role::Log, || {
                // With the rights that the thread has from here on.
                args.check(&file)?;
                Stream::spawn(file, Destination::log_file(args.name()), move |seq| page.tell(seq))
                    .context(THREAD)
            })?;
        }
        // A copy of the descriptor, which goes around the line buffer of the standard library.
        let stdout = io::stdout().as_fd().try_clone_to_owned().context("cannot use standard output")?;
        let terminal = match (io::stdout().is_terminal(), self.start.outlives_terminal) {
            (false, _) => Terminal::None,
            (true, false) => Terminal::EndsRun,
            (true, true) => Terminal::Outlived,
        };
        let destination = Destination::standard_output(terminal);
        started(&self.confinement, Role::Writer, || {
            Stream::spawn(File::from(stdout), destination, move |seq| page.tell(seq))
        })
    }

    /// Starts what sends to a receiver. It gets every change from here on, including those that the last
    /// agent had not reported.
    fn otlp(&mut self, session: &mut Session) -> anyhow::Result<Option<Otlp>> {
        let Some(otlp::Opened { export, sources }) = self.opened.otlp.take() else { return Ok(None) };
        // The files may be readable only with the rights of the thread that reads the node's files.
        started(&self.confinement, Role::Files, || export.credentials.follow(&export.target, &sources))?;
        let (otlp, notes) = started(&self.confinement, Role::Export, || Otlp::start(export, clock::now()))?;
        session.add_sink(Box::new(notes));
        Ok(Some(otlp))
    }

    /// Starts the server, whose clients get every change from here on.
    fn server(
        &mut self,
        session: &mut Session,
        past: History,
        stream: &Stream,
        otlp: Vec<ExportCounters>,
    ) -> anyhow::Result<Served> {
        let Some((listeners, metrics)) = self.opened.server.take() else { return Ok(Served::default()) };
        let Shared { feed, unreadable, reading, state_writes, kubernetes, .. } = &self.shared;
        let target = self.opened.kubernetes.take();
        let parts = stats::Parts {
            batches: feed.gauge(),
            unreadable: Arc::clone(unreadable),
            dropped: stream.dropped(),
            stream: stream.trouble(),
            left_out: session.left_out(),
            reading: Arc::clone(reading),
            server: listeners.reload.shown(),
            state: state_writes.clone(),
            kubernetes: target.is_some().then(|| Arc::clone(kubernetes)),
            otlp,
        };
        let figures = StatsCollector::new(&self.hooks.reports, &self.hooks.drain, parts);
        let report = mem::take(&mut self.report);
        let header = &self.opened.header;
        let confinement = &self.confinement;
        let (mut served, client, judge) =
            serve::start((listeners, metrics), session, header, past, report, figures, confinement)?;
        if let Some(target) = target {
            let state = self.start.state_dir.map(|dir| (dir, state_writes.clone()));
            let stats = Arc::clone(kubernetes);
            let reporter = target.start(header, state, &client, judge, stats, confinement)?;
            reporter.into_iter().for_each(|it| served.attach_reporter(it));
        }
        Ok(served)
    }

    /// Listens for SIGHUP, and for the signal that a refused system call sends.
    fn listen_for_signals(&mut self, bell: Option<Bell>) -> anyhow::Result<()> {
        let stop = &self.shared.stop;
        if self.start.probe.confine == Mode::Full {
            let refused = signals::hear(SignalKind::from_raw(refusal::SIGNAL))?;
            tokio::spawn(signals::refusals(refused, stop.clone()));
        }
        if let Some(hangup) = self.signals.hangup.take() {
            tokio::spawn(signals::hangups(hangup, move || bell.iter().for_each(Bell::ring), stop.clone()));
        }
        Ok(())
    }

    /// Opens the files of the state directory, if there is one.
    fn state_files(&self) -> anyhow::Result<(Option<FindingsFile>, Option<BootHistoryWriter>)> {
        let Some(dir) = self.start.state_dir else { return Ok((None, None)) };
        let header = &self.opened.header;
        let writes = &self.shared.state_writes;
        if self.start.banner {
            tokio::spawn(kept(dir.to_owned(), writes.clone()));
        }
        let boots = self.opened.boots;
        let (findings, boots) = started(&self.confinement, Role::Store, || {
            let findings = FindingsFile::open(dir, header, process::id(), writes.clone())?;
            Ok((findings, BootHistoryWriter::open(dir, header, boots, writes.clone())?))
        })?;
        Ok((Some(findings), Some(boots)))
    }
}

impl Shared {
    fn new(state_dir: Option<&Path>) -> Self {
        let (feed, batches) = feed();
        let (stopper, stop) = stop();
        let unreadable = Arc::default();
        let reading = Arc::default();
        let state_writes = StateWrites::of(state_dir);
        let kubernetes = Arc::default();
        Self { feed, batches, stopper, stop, unreadable, reading, state_writes, kubernetes }
    }
}

/// What every source needs at its start.
struct Sources<'a> {
    confinement: &'a Confinement,
    feed: &'a BatchSender,
    stop: &'a CancellationToken,
}

impl Sources<'_> {
    /// Starts the sources that answer questions. Netlink is used only where hooks cannot see what it sees.
    fn routes(
        &self,
        netlink: Option<Netlink>,
        files: Files,
        runtimes: Option<((Finder, Sockets), HostRoot)>,
    ) -> anyhow::Result<Routes> {
        let mut routes = Routes::default();
        if let Some(netlink) = netlink {
            let (asker, questions) = questions();
            started(self.confinement, Role::Netlink, || {
                netlink.start(self.feed.clone(), questions, self.stop.clone())
            })?;
            routes.netlink = Some(asker);
        }
        let (asker, asked) = questions();
        started(self.confinement, Role::Files, || files.start(self.feed.clone(), asked, self.stop.clone()))?;
        routes.files = Some(asker);
        if let Some((found, root)) = runtimes {
            let (asker, questions) = questions();
            started(self.confinement, Role::Files, || {
                follow::start(root, found, self.feed.clone(), questions, self.stop.clone())
            })?;
            routes.runtimes = Some(asker);
        }
        Ok(routes)
    }

    /// Starts the source that asks the API server, if there is one.
    fn ledger(
        &self,
        asked: Option<(&'static ledger::Kind, ApiServer)>,
    ) -> anyhow::Result<Option<QuestionSender>> {
        let Some((kind, server)) = asked else { return Ok(None) };
        let (asker, questions) = questions();
        started(self.confinement, Role::Kubernetes, || {
            ledger::start(kind, server, self.feed.clone(), questions, self.stop.clone())
        })?;
        Ok(Some(asker))
    }
}

/// Runs `start` on a thread in this role.
fn started<T: Send>(
    confinement: &Confinement,
    role: Role,
    start: impl FnOnce() -> io::Result<T> + Send,
) -> anyhow::Result<T> {
    confinement.start(role, start)?.context(THREAD)
}

/// Reads the rings until asked to stop, or until they cannot be read. Then it returns the totals.
fn read_rings(drain: RingReader, feed: BatchSender, stop: CancellationToken) -> oneshot::Receiver<Totals> {
    let (draining, drained) = oneshot::channel();
    tokio::spawn(async move {
        let totals = drain.run(&feed, stop).await;
        draining.send(totals).ok();
    });
    drained
}

/// Writes the events that the last agent had not reported.
async fn write_rest(session: &mut Session, stream: &mut Stream) -> io::Result<()> {
    let mut lines = mem::take(session.output());
    let seq = session.last_seq();
    stream.offer(&mut lines, seq, |count| session.missed(count))?;
    stream.idle(GRACE).await;
    Ok(())
}

/// Runs the loop until the end is requested, or until the rings cannot be read any more.
async fn work(agent: Agent, end: impl Future<Output = ()>, mut drained: oneshot::Receiver<Totals>) -> Ended {
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
    // The reader has ended by now, unless it took too long. Then its totals are unknown.
    let totals = blind.unwrap_or_else(|| drained.try_recv().unwrap_or_default());
    Ended { session, totals, result }
}

/// Says where findings are kept, after the first write. If that failed, the log has the reason.
async fn kept(dir: PathBuf, writes: StateWrites) {
    if writes.has_begun(StateFile::Findings).await {
        print_stderr(&banner::kept(&dir));
    }
}

/// Logs the diagnostics of the eBPF programs.
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
