//! The agent's loop: it passes the sources' observations to the engine, and the engine's changes to the
//! sinks, until its end is requested.
//!
//! The end goes from the sources to the sinks. The sources stop, send the rest of their observations and
//! close the channel. The engine takes these and then the current time, so that it holds nothing back. The
//! writers finish. Each step has a deadline.

pub(crate) mod outlets;
pub(crate) mod record;
pub(crate) mod served;
pub(crate) mod stats;
pub(crate) mod takeover;
pub(crate) mod timer;

use std::{io, time::Duration};

use tokio::{
    sync::mpsc,
    time::{self, Instant},
};

use self::{
    outlets::Outlets,
    served::Served,
    timer::{Timer, until},
};
use crate::{
    engine::Call,
    model::{
        change::Question,
        fact::{Fact, Observation, Origin},
        time::Timestamp,
    },
    program_pages,
    recording::WriteError,
    session::Session,
    sink::{
        otlp::Otlp,
        state::{
            findings_file::FindingsFile,
            history::writer::{BootHistoryWriter, CurrentBoot},
        },
    },
    source::{
        node::clock,
        task::channel::{Batch, CancellationSource, QuestionSender},
    },
};

/// How long the sources may take to end, and then the writers.
const GRACE: Duration = Duration::from_secs(2);

/// How often the wall clock is read, while anything happens.
const CLOCK_PERIOD: Duration = Duration::from_secs(1);

/// How often the code is unmapped that was used only once, at the start or in a burst. What is used again is
/// mapped again within a millisecond.
const PAGES_PERIOD: Duration = Duration::from_secs(30);

/// The smallest change of the wall clock that counts. A smaller one is slewing, or the error of the reading.
const CLOCK_STEP_NS: u64 = 1_000_000;

/// The shortest suspend that counts. A shorter one is the error of the reading.
const SLEPT: Duration = Duration::from_millis(100);

/// The parts of one run.
pub(crate) struct Agent {
    pub(crate) session: Session,
    pub(crate) timer: Timer,
    pub(crate) batches: mpsc::Receiver<Batch>,
    pub(crate) stopper: CancellationSource,
    pub(crate) routes: Routes,
    pub(crate) outlets: Outlets,
    /// The file with the findings, if there is a state directory.
    pub(crate) findings_file: Option<FindingsFile>,
    /// The history of boots, if there is a state directory.
    pub(crate) history: Option<BootHistoryWriter>,
    /// The receiver of traces and log records, if there is one.
    pub(crate) otlp: Option<Otlp>,
    /// The HTTP server, if there is one.
    pub(crate) served: Served,
}

/// The sources that answer questions. A source ends when its route is dropped.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// Reads the node's files.
    pub(crate) files: Option<QuestionSender>,
    /// Watches namespaces, only where hooks cannot.
    pub(crate) netlink: Option<QuestionSender>,
    /// Follows runtimes over CRI.
    pub(crate) runtimes: Option<QuestionSender>,
    /// Asks the API server about addresses.
    pub(crate) ledger: Option<QuestionSender>,
}

/// Why a run ended early, or ended with something missing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentError {
    #[error("cannot write to {to}: {error}")]
    Stream { to: String, error: io::Error },
    #[error("{count} events were not written to {to}: nobody read it, or it could not be written")]
    Unread { to: String, count: u64 },
    #[error("cannot write the recording: {0}")]
    Recording(io::Error),
    #[error("cannot record: {0}")]
    Unrecordable(#[from] WriteError),
    #[error("the sources did not end within {} s: what they had last is missing", GRACE.as_secs())]
    Sources,
    #[error("the hooks' records can no longer be read: see the warning before")]
    Blind,
}

impl Agent {
    /// Works until `end` completes, all sources have ended, or something cannot be written. Returns the
    /// session with its totals.
    pub(crate) async fn run(mut self, end: impl Future<Output = ()>) -> (Session, Result<(), AgentError>) {
        let mut result = self.work(end).await;
        self.stopper.stop();
        self.routes = Routes::default();
        if result.is_ok() {
            result = self.drain(Instant::now() + GRACE).await;
        }
        // Everything that follows can take long, while nobody sees what happens.
        let seen_until = clock::now();
        // A source that still sends learns that the channel is closed.
        self.batches.close();
        result = result.and(self.outlets.settle(&mut self.session, GRACE).await);
        if let Some(findings_file) = self.findings_file {
            let known = self.session.known();
            let kept = findings_file.finish(clock::now(), &known);
            // A failure was logged already.
            time::timeout(GRACE, kept).await.ok();
        }
        if let Some(history) = self.history {
            let kept = history.finish(clock::now(), current_boot(&self.session));
            time::timeout(GRACE, kept).await.ok();
        }
        if let Some(otlp) = self.otlp {
            let sent = otlp.finish(clock::now(), self.session.engine(), self.session.label());
            time::timeout(GRACE, sent).await.ok();
        }
        time::timeout(GRACE, self.served.finish()).await.ok();
        let closed = self.outlets.close(&mut self.session, seen_until, GRACE).await;
        (self.session, result.and(closed))
    }

    async fn work(&mut self, end: impl Future<Output = ()>) -> Result<(), AgentError> {
        let mut end = std::pin::pin!(end);
        let mut clock_due = clock::now();
        let mut asleep = clock::asleep();
        let mut pages_due = clock_due + PAGES_PERIOD;
        loop {
            let shown = until(self.history.as_ref().map(|it| it.due(self.session.recovery())));
            let kept = until(self.findings_file.as_ref().map(|it| it.due(self.session.revision())));
            let delivered = until(self.outlets.due());
            let traced = until(self.otlp.as_ref().and_then(Otlp::due));
            tokio::select! {
                () = &mut end => return Ok(()),
                batch = self.batches.recv() => match batch {
                    Some(batch) => {
                        self.wake(&mut asleep)?;
                        self.take(batch)?;
                    }
                    None => return Ok(()),
                },
                now = self.timer.due(&self.session) => {
                    self.wake(&mut asleep)?;
                    self.take_waiting()?;
                    self.call(Call::Advance(now))?;
                }
                () = kept => {}
                () = delivered => {}
                () = self.outlets.written() => {}
                () = shown => {}
                () = traced => {}
                () = self.served.answer(&self.session) => {}
            }
            let now = clock::now();
            if now >= clock_due {
                clock_due = now + CLOCK_PERIOD;
                self.check_clock(now)?;
                self.session.say_left_out(now, false);
                if now >= pages_due {
                    pages_due = now + PAGES_PERIOD;
                    program_pages::unmap_unused();
                }
            }
            self.update_files(now);
            self.write(now)?;
        }
    }

    /// Reports a suspend of the node to the engine, before it learns what the time is now.
    fn wake(&mut self, asleep: &mut Duration) -> Result<(), AgentError> {
        let slept = clock::asleep().saturating_sub(*asleep);
        if slept < SLEPT {
            return Ok(());
        }
        *asleep += slept;
        let fact = Fact::Resumed { slept };
        self.call(Call::Observe(Observation { at: clock::now(), origin: Origin::Agent, fact }))
    }

    /// Takes the rest of the observations, until the last source has ended.
    async fn drain(&mut self, deadline: Instant) -> Result<(), AgentError> {
        loop {
            let batch = time::timeout_at(deadline, self.batches.recv()).await;
            let Some(batch) = batch.map_err(|_late| AgentError::Sources)? else { break };
            self.take(batch)?;
            self.write(clock::now())?;
        }
        // Nothing more will come, so nothing needs to be held back, unless the next agent goes on: by then
        // the name may have come that an event is held back for.
        let hold = if self.outlets.has_successor() { Duration::ZERO } else { self.session.hold() };
        self.call(Call::Advance(clock::now() + hold))?;
        self.session.say_left_out(clock::now(), true);
        self.write(clock::now())
    }

    fn take(&mut self, batch: Batch) -> Result<(), AgentError> {
        batch.into_iter().try_for_each(|seen| self.call(Call::Observe(seen)))
    }

    /// Takes what the sources have sent until now.
    fn take_waiting(&mut self) -> Result<(), AgentError> {
        for _ in 0..self.batches.len() {
            let Ok(batch) = self.batches.try_recv() else { break };
            self.take(batch)?;
        }
        Ok(())
    }

    fn call(&mut self, call: Call) -> Result<(), AgentError> {
        self.session.call(call)?;
        self.served.written(clock::now());
        let mut refused = Vec::new();
        for question in self.session.questions() {
            let route = match question {
                Question::Container { .. }
                | Question::Pod { .. }
                | Question::Expected { .. }
                | Question::Netns { .. }
                | Question::ProcessNetns { .. }
                | Question::Relist
                | Question::Records
                | Question::Program { .. }
                | Question::Process { .. }
                | Question::Message { .. }
                | Question::Pressure { .. }
                | Question::ImageWork { .. }
                | Question::HeldRequests { .. }
                | Question::Words { .. }
                | Question::DaemonWords { .. } => &self.routes.files,
                Question::Watch { .. } => &self.routes.netlink,
                Question::Statuses => &self.routes.runtimes,
                Question::Held { .. } => &self.routes.ledger,
            };
            refused.extend(route.as_ref().and_then(|asker| asker.ask(question)));
        }
        // The other sources answer refused questions by listing the node.
        for question in refused {
            if let Question::Watch { netns, by: _, unheard_since } = question {
                let fact = Fact::NetnsUnwatched { netns, unheard_since };
                let seen = Observation { at: clock::now(), origin: Origin::Agent, fact };
                self.session.call(Call::Observe(seen))?;
            }
        }
        Ok(())
    }

    fn update_files(&mut self, now: Timestamp) {
        if let Some(findings_file) = &mut self.findings_file {
            let session = &self.session;
            findings_file.update(now, session.boot_wall_ns(), session.revision(), || session.known());
        }
        if let Some(history) = &mut self.history {
            let session = &self.session;
            history.update(now, session.recovery(), || current_boot(session));
        }
        if let Some(otlp) = &mut self.otlp {
            otlp.update(now, self.session.engine(), self.session.label());
        }
    }

    fn check_clock(&mut self, now: Timestamp) -> Result<(), AgentError> {
        let boot_wall_ns = clock::boot_wall_ns();
        if boot_wall_ns.abs_diff(self.session.boot_wall_ns()) <= CLOCK_STEP_NS {
            return Ok(());
        }
        let fact = Fact::Clock { boot_wall_ns };
        self.call(Call::Observe(Observation { at: now, origin: Origin::Agent, fact }))
    }

    fn write(&mut self, now: Timestamp) -> Result<(), AgentError> {
        self.outlets.write(&mut self.session, now)
    }
}

/// Returns this boot for the history of boots.
fn current_boot(session: &Session) -> CurrentBoot<'_> {
    CurrentBoot {
        recovery: session.recovery(),
        boot_wall_ns: session.boot_wall_ns(),
        running: session.running_pods(),
    }
}

#[cfg(test)]
mod tests;
