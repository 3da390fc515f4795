//! Gauges: what is so at the time of a scrape.

use probe_common::event;
use prometheus::{CounterVec, GaugeVec};
use strum::VariantNames;

use super::{
    Views,
    counters::real,
    family as f, label,
    own::AgentStats,
    series::{Registrar, Series},
    set,
};
use crate::{
    engine::{
        boot::report::{RecoveryReport, Zero},
        view::PoolView,
        world::sandbox::State,
    },
    model::{
        finding::{Cause, Kind, Severity, Stage},
        recovery::RecoveredPod,
        time::Timestamp,
    },
    sink::recovery,
};

pub(super) struct Gauges {
    pods: Series<GaugeVec>,
    sandboxes: Series<GaugeVec>,
    allocations: Series<GaugeVec>,
    pool_size: Series<GaugeVec>,
    pool_free: Series<GaugeVec>,
    findings: Series<GaugeVec>,
    leaked: Series<GaugeVec>,
    milestone: Series<GaugeVec>,
    period: Series<GaugeVec>,
    cni_lost: Series<GaugeVec>,
    closed: Series<GaugeVec>,
    boot: Series<GaugeVec>,
    ready: Series<GaugeVec>,
    hooks: Series<GaugeVec>,
    records: Series<CounterVec>,
    stale: Series<CounterVec>,
    unwatched: Series<GaugeVec>,
    program_time: Series<CounterVec>,
    program_runs: Series<CounterVec>,
    program_missed: Series<CounterVec>,
    queue: Series<GaugeVec>,
    queue_capacity: Series<GaugeVec>,
    unreadable: Series<GaugeVec>,
    netns_untracked: Series<CounterVec>,
    not_kept: Series<CounterVec>,
    refused: Series<CounterVec>,
    dropped: Series<CounterVec>,
    hanging: Series<GaugeVec>,
    oldest_question: Series<GaugeVec>,
    dropped_questions: Series<CounterVec>,
    state_written: Series<GaugeVec>,
    state_failures: Series<CounterVec>,
    outdated: Series<GaugeVec>,
    certificate_expires: Series<GaugeVec>,
    cpu: Series<CounterVec>,
    resident: Series<GaugeVec>,
    virtual_size: Series<GaugeVec>,
    open_fds: Series<GaugeVec>,
    max_fds: Series<GaugeVec>,
    threads: Series<GaugeVec>,
    started: Series<GaugeVec>,
}

/// Values of labels, and what is so of them.
type Row = (Vec<String>, f64);

impl Gauges {
    pub(super) fn new(registrar: Registrar<'_>) -> prometheus::Result<Self> {
        let mut build: Series<GaugeVec> = registrar.series(&f::BUILD)?;
        build.set([row(&[env!("CARGO_PKG_VERSION")], 1.0)]);
        let mut now = Self {
            pods: registrar.series(&f::PODS)?,
            sandboxes: registrar.series(&f::SANDBOXES)?,
            allocations: registrar.series(&f::ALLOCATIONS)?,
            pool_size: registrar.series(&f::POOL_SIZE)?,
            pool_free: registrar.series(&f::POOL_FREE)?,
            findings: registrar.series(&f::FINDINGS)?,
            leaked: registrar.series(&f::LEAKED)?,
            milestone: registrar.series(&f::MILESTONE)?,
            period: registrar.series(&f::PERIOD)?,
            cni_lost: registrar.series(&f::BOOT_CNI_LOST)?,
            closed: registrar.series(&f::BOOT_CLOSED)?,
            boot: registrar.series(&f::BOOT_INFO)?,
            ready: registrar.series(&f::READY)?,
            hooks: registrar.series(&f::HOOKS)?,
            records: registrar.series(&f::RECORDS)?,
            stale: registrar.series(&f::STALE)?,
            unwatched: registrar.series(&f::UNWATCHED)?,
            program_time: registrar.series(&f::PROGRAM_TIME)?,
            program_runs: registrar.series(&f::PROGRAM_RUNS)?,
            program_missed: registrar.series(&f::PROGRAM_MISSED)?,
            queue: registrar.series(&f::QUEUE)?,
            queue_capacity: registrar.series(&f::QUEUE_CAPACITY)?,
            unreadable: registrar.series(&f::UNREADABLE)?,
            netns_untracked: registrar.series(&f::NETNS_UNTRACKED)?,
            not_kept: registrar.series(&f::NOT_KEPT)?,
            refused: registrar.series(&f::REFUSED)?,
            dropped: registrar.series(&f::DROPPED)?,
            hanging: registrar.series(&f::HANGING)?,
            oldest_question: registrar.series(&f::OLDEST_QUESTION)?,
            dropped_questions: registrar.series(&f::DROPPED_QUESTIONS)?,
            state_written: registrar.series(&f::STATE_WRITTEN)?,
            state_failures: registrar.series(&f::STATE_FAILURES)?,
            outdated: registrar.series(&f::OUTDATED)?,
            certificate_expires: registrar.series(&f::CERTIFICATE_EXPIRES)?,
            cpu: registrar.series(&f::CPU)?,
            resident: registrar.series(&f::RESIDENT)?,
            virtual_size: registrar.series(&f::VIRTUAL)?,
            open_fds: registrar.series(&f::OPEN_FDS)?,
            max_fds: registrar.series(&f::MAX_FDS)?,
            threads: registrar.series(&f::THREADS)?,
            started: registrar.series(&f::STARTED)?,
        };
        for values in set::all(&[&set::RINGS, &event::NAMES]) {
            now.records.at(&values, &[]);
        }
        now.findings.set(zeros(&[Kind::VARIANTS, Severity::VARIANTS, set::STAGES]));
        now.leaked.set(zeros(&[Cause::VARIANTS]));
        now.sandboxes.set(zeros(&[&set::SANDBOX_STATES]));
        Ok(now)
    }

    pub(super) fn set(&mut self, views: &Views<'_>) {
        self.pods.set_one(Some(length(views.pods.len())));
        let sandboxes = views.pods.iter().flat_map(|pod| &pod.sandboxes);
        let states = sandboxes.map(|sandbox| row(&[state(sandbox.state)], 1.0));
        self.sandboxes.set(zeros(&[&set::SANDBOX_STATES]).into_iter().chain(states));
        let open = views.findings.iter().filter(|it| it.stage != Stage::Closed);
        let open =
            open.map(|it| row(&[it.kind.into_str(), it.severity.into_str(), it.stage.into_str()], 1.0));
        self.findings.set(zeros(&[Kind::VARIANTS, Severity::VARIANTS, set::STAGES]).into_iter().chain(open));
        let leaked = views.findings.iter().filter(|it| it.stage == Stage::Confirmed);
        let leaked = leaked.filter_map(|it| match &it.kind {
            Kind::LeakedAddress(leak) => Some(row(&[leak.cause.into_str()], f64::from(leak.count()))),
            _ => None,
        });
        self.leaked.set(zeros(&[Cause::VARIANTS]).into_iter().chain(leaked));
        self.pools(views.pools);
        self.boots(views);
        self.stale.raise(&[], real(views.stale));
        self.unwatched.set_one(Some(length(views.unwatched)));
        self.own(views.own);
    }

    fn pools(&mut self, pools: &[PoolView]) {
        let states = |pool: &PoolView| [pool.in_use, pool.pending_cleanup, pool.leak_candidate, pool.leaked];
        let taken = pools.iter().flat_map(|pool| {
            let rows = set::ALLOCATION_STATES.into_iter().zip(states(pool));
            rows.map(|(state, count)| (vec![name(pool), state.to_owned()], real(count))).collect::<Vec<_>>()
        });
        self.allocations.set(taken);
        self.pool_size.set(pools.iter().map(|pool| (vec![name(pool)], real(pool.size))));
        self.pool_free.set(pools.iter().map(|pool| (vec![name(pool)], real(pool.free))));
    }

    fn boots(&mut self, views: &Views<'_>) {
        let Some(boot) = &views.recovery.boot else { return };
        let study = RecoveryReport::of(views.recovery, views.now);
        let before = match &study.zero {
            Zero::Order { before_ns, .. } => Some(-seconds(*before_ns)),
            Zero::Kernel(_) => None,
        };
        let mark = |mark: Option<Timestamp>| mark.map(|at| at.since(Timestamp::ZERO).as_secs_f64());
        let pod = |back: &Option<_>| mark(back.as_ref().map(|back: &RecoveredPod| back.mark.at));
        let times = [
            before,
            mark(study.init.map(|it| it.at)),
            mark(study.runtime.map(|it| it.at)),
            mark(study.kubelet.map(|it| it.at)),
            pod(&study.first_static),
            mark(study.cni.first.map(|it| it.at)),
            pod(&study.first_service),
            pod(&study.last_service),
        ];
        self.milestone.set(known(&set::MILESTONES, times));
        let periods = study.periods.into_iter().chain([study.whole]).map(|it| it.map(seconds));
        self.period.set(known(&set::PERIODS, periods));
        self.cni_lost.set_one(Some(study.cni.lost.as_secs_f64()));
        self.closed.set_one(Some(flag(study.is_closed())));
        let rule = recovery::recovered(study.recovered).to_owned();
        self.boot.set([(vec![label::name(&boot.boot_id), rule], 1.0)]);
    }

    pub(super) fn ready(&mut self, is_ready: bool) {
        self.ready.set_one(Some(flag(is_ready)));
    }

    fn own(&mut self, own: &AgentStats) {
        self.hooks.set(own.hooks.iter().map(|(signal, mechanism)| {
            let mechanism = mechanism.map(|it| it.into_str().replace(' ', "_"));
            let seen = flag(mechanism.is_some());
            (vec![signal.into_str().replace(' ', "_"), mechanism.unwrap_or_else(|| "none".to_owned())], seen)
        }));
        for ring in &own.rings {
            for (kind, sent) in event::NAMES.iter().zip(&ring.sent) {
                self.records.raise(&[ring.name, kind], real(*sent));
            }
        }
        for program in &own.programs {
            let name = label::name(&program.name);
            self.program_time.raise(&[&name], program.time.as_secs_f64());
            self.program_runs.raise(&[&name], real(program.runs));
            self.program_missed.raise(&[&name], real(program.missed));
        }
        self.queue.set(own.queues.iter().map(|it| row(&[it.name], real(it.length))));
        let bounded = own.queues.iter().filter_map(|it| Some((it.name, it.capacity?)));
        self.queue_capacity.set(bounded.map(|(name, capacity)| row(&[name], real(capacity))));
        self.unreadable.set_one(Some(real(own.unreadable)));
        self.netns_untracked.raise(&[], real(own.netns_untracked));
        self.not_kept.raise(&[], real(own.not_kept));
        self.refused.raise(&[], real(own.refused));
        self.dropped.raise(&[], real(own.dropped));
        self.hanging.set_one(Some(real(own.hanging)));
        self.oldest_question.set_one(Some(own.oldest_question.as_secs_f64()));
        self.dropped_questions.raise(&[], real(own.dropped_questions));
        self.state_written.set(own.state_writes.iter().map(|it| row(&[it.file], flag(it.has_succeeded))));
        for it in &own.state_writes {
            self.state_failures.raise(&[it.file], real(it.failures));
        }
        self.outdated.set_one(Some(flag(own.stale)));
        self.certificate_expires.set_one(own.certificate_expires.map(instant));
        let Some(process) = &own.process else { return };
        self.cpu.raise(&[], process.cpu.as_secs_f64());
        self.resident.set_one(Some(real(process.resident)));
        self.virtual_size.set_one(Some(real(process.virtual_size)));
        self.threads.set_one(Some(real(process.threads)));
        self.open_fds.set_one(process.open_fds.map(real));
        self.max_fds.set_one(process.max_fds.map(real));
        self.started.set_one(Some(process.started));
    }
}

/// A pool by its network's name and its range: neither is enough alone.
fn name(pool: &PoolView) -> String {
    label::clean(&format!("{}/{}", pool.network, pool.subnet))
}

fn state(state: State) -> &'static str {
    match state {
        State::Created => "created",
        State::Ready { .. } => "ready",
        State::Stopped { .. } | State::Remembered { .. } => "stopped",
    }
}

fn row(values: &[&str], value: f64) -> Row {
    (values.iter().map(|value| (*value).to_owned()).collect(), value)
}

fn zeros(sets: &[&[&'static str]]) -> Vec<Row> {
    set::all(sets).into_iter().map(|values| row(&values, 0.0)).collect()
}

/// Those that there are.
fn known(names: &[&str], values: impl IntoIterator<Item = Option<f64>>) -> Vec<Row> {
    names.iter().zip(values).filter_map(|(name, value)| Some(row(&[name], value?))).collect()
}

fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

fn length(count: usize) -> f64 {
    real(u64::try_from(count).unwrap_or(u64::MAX))
}

/// Seconds since the epoch.
#[expect(
    clippy::cast_precision_loss,
    reason = "a double has seconds for longer than any certificate is good"
)]
fn instant(at: i64) -> f64 {
    at as f64
}

#[expect(clippy::cast_precision_loss, reason = "a double has microseconds for centuries")]
fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}
