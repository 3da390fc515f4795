//! Gauges: the state of the node and the agent at the time of a scrape.

use std::collections::BTreeMap;

use probe_common::event;
use prometheus::GaugeVec;
use strum::VariantNames;

use super::{
    Views,
    agent_stats::{AgentStats, Exported},
    counters::real,
    family as f,
    groups::{AgentGauges, BootGauges, ExportGauges, NodeGauges, ProbeGauges, ProcessGauges, ReadingGauges},
    label,
    series::{Registrar, Series},
    set,
};
use crate::{
    engine::{
        boot::{
            numbers::Numbers,
            report::{RecoveryReport, Zero},
            restart::numbers,
        },
        incident::Incidents,
        view::{BalanceView, PoolView},
        world::table::sandbox::State,
    },
    model::{
        change::Finding,
        finding::{Cause, FindingKind, Kind, Severity, Stage},
        recovery::{Restart, Restarts},
        time::Timestamp,
    },
    sink::render::recovery::{self, MilestoneName, has_missed},
};

pub(super) struct Gauges {
    node: NodeGauges,
    boot: BootGauges,
    probe: ProbeGauges,
    reading: ReadingGauges,
    agent: AgentGauges,
    export: ExportGauges,
    process: ProcessGauges,
}

/// The values of the labels of incidents.
const INCIDENTS: [&[&str]; 2] = [Severity::VARIANTS, set::STAGES];

/// The values of the labels, and the value of the series.
type Row = (Vec<String>, f64);

impl Gauges {
    pub(super) fn new(registrar: Registrar<'_>) -> prometheus::Result<Self> {
        let mut build: Series<GaugeVec> = registrar.series(&f::BUILD)?;
        build.set([row(&[env!("CARGO_PKG_VERSION")], 1.0)]);
        let mut now = Self {
            node: NodeGauges::new(registrar)?,
            boot: BootGauges::new(registrar)?,
            probe: ProbeGauges::new(registrar)?,
            reading: ReadingGauges::new(registrar)?,
            agent: AgentGauges::new(registrar)?,
            export: ExportGauges::new(registrar)?,
            process: ProcessGauges::new(registrar)?,
        };
        for values in set::all(&[&set::RINGS, &event::NAMES]) {
            now.probe.records.at(&values, &[]);
        }
        now.node.findings.set(no_findings());
        now.node.incidents.set(zeros(&INCIDENTS));
        now.node.leaked.set(no_leaks());
        now.node.sandboxes.set(zeros(&[&set::SANDBOX_STATES]));
        Ok(now)
    }

    pub(super) fn set(&mut self, views: &Views<'_>) {
        self.node.pods.set_one(Some(length(views.pods.len())));
        let sandboxes = views.pods.iter().flat_map(|pod| &pod.sandboxes);
        let states = sandboxes.map(|sandbox| row(&[state(sandbox.state)], 1.0));
        self.node.sandboxes.set(zeros(&[&set::SANDBOX_STATES]).into_iter().chain(states));
        self.findings(views);
        let daemons = views.daemons.iter();
        self.node.daemon_start.set(daemons.map(|(name, at)| (vec![label::name(name)], since_boot(*at))));
        self.pools(views.pools);
        self.balance(views.balance);
        self.node.netns.set_one(Some(length(views.netns)));
        self.node.netns_limit.set_one(views.own.netns_limit.map(real));
        self.boots(views);
        self.probe.stale.raise(&[], real(views.stale));
        self.probe.unwatched.set_one(Some(length(views.unwatched)));
        self.own(views.own);
    }

    fn findings(&mut self, views: &Views<'_>) {
        let open = views.findings.iter().filter(|it| it.stage != Stage::Closed);
        let open = open.map(|it| {
            let [role, root] = role_and_root(views.incidents, it);
            row(&[it.kind.into_str(), it.severity.into_str(), it.stage.into_str(), role, root], 1.0)
        });
        self.node.findings.set(no_findings().into_iter().chain(open));
        let leaked = views.findings.iter().filter(|it| it.stage == Stage::Confirmed);
        let leaked = leaked.filter_map(|it| match &it.kind {
            Kind::LeakedAddress(leak) => {
                let [role, root] = role_and_root(views.incidents, it);
                Some(row(&[leak.cause.into_str(), role, root], f64::from(leak.count())))
            }
            _ => None,
        });
        self.node.leaked.set(no_leaks().into_iter().chain(leaked));
        let incidents = views.incidents.all();
        let open = incidents.iter().filter(|it| it.stage() != Stage::Closed);
        let open = open.map(|it| row(&[it.severity().into_str(), it.stage().into_str()], 1.0));
        self.node.incidents.set(zeros(&INCIDENTS).into_iter().chain(open));
    }

    fn pools(&mut self, pools: &[PoolView]) {
        let taken = pools.iter().flat_map(|pool| {
            let counts = [pool.in_use, pool.pending_cleanup, pool.leak_candidate, pool.leaked];
            let rows = set::ALLOCATION_STATES.into_iter().zip(counts);
            rows.map(|(state, count)| (vec![name(pool), state.to_owned()], real(count))).collect::<Vec<_>>()
        });
        self.node.allocations.set(taken);
        self.node.pool_size.set(pools.iter().map(|pool| (vec![name(pool)], real(pool.size))));
        self.node.pool_free.set(pools.iter().map(|pool| (vec![name(pool)], real(pool.free))));
    }

    fn balance(&mut self, all: &[BalanceView]) {
        for it in all {
            let [plugin, network] = &attachment_labels(it);
            self.node.attached_pods.raise(&[plugin, network], real(it.pods));
            self.node.attached_sandboxes.raise(&[plugin, network], real(it.sandboxes));
            self.node.attachments_added.raise(&[plugin, network], real(it.added));
            if let Some(unverified) = it.unverified {
                self.node.attachments_unverified.raise(&[plugin, network], real(unverified));
            }
            for (netns, count) in set::DEL_NETNS.into_iter().zip([it.released, it.released_without_netns]) {
                self.node.attachments_released.raise(&[plugin, network, netns], real(count));
            }
        }
        self.node.attachments.set(all.iter().flat_map(|it| {
            let counts = [it.live, it.ended, it.unreleased, it.unknown];
            let rows = set::ATTACHMENT_STATES.into_iter().zip(counts);
            rows.map(|(state, count)| {
                let [plugin, network] = attachment_labels(it);
                (vec![plugin, network, state.to_owned()], real(count))
            })
            .collect::<Vec<_>>()
        }));
    }

    fn boots(&mut self, views: &Views<'_>) {
        self.restarts(&views.recovery.restarts);
        let Some(boot) = &views.recovery.boot else { return };
        let report = RecoveryReport::of(views.recovery, views.now);
        let mut milestones = Vec::new();
        if let Zero::Order { before_ns, .. } = report.zero {
            milestones.push((vec!["order".to_owned()], -seconds(before_ns)));
        }
        for it in recovery::milestones(views.recovery, &report) {
            if it.name != MilestoneName::KernelStart {
                milestones.push((vec![it.name.into_str().to_owned()], since_boot(it.mark.at)));
            }
        }
        self.boot.milestone.set(milestones);
        self.boot.period.set(known(&set::PERIODS, periods(&report.numbers)));
        self.boot.cni_lost.set_one(Some(report.cni.lost.as_secs_f64()));
        self.boot.closed.set_one(Some(flag(report.is_closed())));
        self.boot.target.set_one(report.target.map(|target| target.span.as_secs_f64()));
        self.boot.target_missed.set_one(report.target.map(|_| flag(has_missed(&report))));
        let less_network = u32::try_from(report.less_network.len()).unwrap_or(u32::MAX);
        self.boot.less_network.set_one(Some(f64::from(less_network)));
        self.boot.time.set_one(Some(seconds(boot.boot_wall_ns)));
        let rule = report.recovered.into_str().to_owned();
        self.boot.info.set([(vec![label::name(&boot.boot_id), rule], 1.0)]);
    }

    fn restarts(&mut self, restarts: &Restarts) {
        for (comm, count) in restarts.counts() {
            self.boot.restarts.raise(&[&label::name(comm)], f64::from(count));
        }
        let last: BTreeMap<&str, &Restart> =
            restarts.all().into_iter().map(|it| (it.comm.as_str(), it)).collect();
        let periods = last.iter().flat_map(|(comm, restart)| {
            let rows = known(&set::RESTART_PERIODS, periods(&numbers(restart))).into_iter();
            rows.map(|(labels, value)| ([vec![label::name(comm)], labels].concat(), value))
                .collect::<Vec<_>>()
        });
        self.boot.restart_period.set(periods);
        let pods = last.iter().flat_map(|(comm, restart)| {
            let replaced = restart.held.iter().filter(|it| it.replaced).count();
            let counts = [restart.held.len() - replaced, replaced];
            let rows = set::HELD.into_iter().zip(counts);
            rows.map(|(why, count)| (vec![label::name(comm), why.to_owned()], length(count)))
                .collect::<Vec<_>>()
        });
        self.boot.restart_pods.set(pods);
    }

    pub(super) fn ready(&mut self, is_ready: bool) {
        self.agent.ready.set_one(Some(flag(is_ready)));
    }

    fn own(&mut self, own: &AgentStats) {
        self.probe.hooks.set(own.probe.hooks.iter().map(|(signal, mechanism)| {
            let mechanism = mechanism.map(|it| it.into_str().replace(' ', "_"));
            let seen = flag(mechanism.is_some());
            (vec![signal.into_str().replace(' ', "_"), mechanism.unwrap_or_else(|| "none".to_owned())], seen)
        }));
        for ring in &own.probe.rings {
            for (kind, sent) in event::NAMES.iter().zip(&ring.sent) {
                self.probe.records.raise(&[ring.name, kind], real(*sent));
            }
        }
        for program in &own.probe.programs {
            let name = label::name(&program.name);
            self.probe.program_time.raise(&[&name], program.time.as_secs_f64());
            self.probe.program_runs.raise(&[&name], real(program.runs));
            self.probe.program_missed.raise(&[&name], real(program.missed));
        }
        let exports = own.exported.iter().map(|it| row(&[&format!("otlp_{}", it.signal)], real(it.waiting)));
        let queues = own.queues.iter().map(|it| row(&[it.name], real(it.length)));
        self.agent.queue.set(queues.chain(exports));
        let bounded = own.queues.iter().filter_map(|it| Some((it.name, it.capacity?)));
        self.agent.queue_capacity.set(bounded.map(|(name, capacity)| row(&[name], real(capacity))));
        self.reading.unreadable.set_one(Some(real(own.reading.unreadable)));
        self.probe.netns_untracked.raise(&[], real(own.probe.netns_untracked));
        self.probe.not_kept.raise(&[], real(own.probe.not_kept));
        self.agent.refused.raise(&[], real(own.refused));
        self.agent.dropped.raise(&["slow"], real(own.dropped));
        self.agent.dropped.raise(&["rate"], real(own.left_out));
        self.agent.stream_written.set_one(own.is_stream_written.map(flag));
        for (what, result, count) in own.kubernetes.iter().flat_map(|it| &it.requests) {
            self.agent.kubernetes_requests.raise(&[what, result], real(*count));
        }
        self.agent.kubernetes_waiting.set_one(own.kubernetes.as_ref().map(|it| real(it.waiting)));
        self.reading.hanging.set_one(Some(real(own.reading.hanging)));
        self.reading.oldest_question.set_one(Some(own.reading.oldest_question.as_secs_f64()));
        self.reading.dropped_questions.raise(&[], real(own.reading.dropped_questions));
        self.agent
            .state_written
            .set(own.state_writes.iter().map(|it| row(&[it.file], flag(it.has_succeeded))));
        for it in &own.state_writes {
            self.agent.state_failures.raise(&[it.file], real(it.failures));
        }
        self.exports(&own.exported);
        self.agent.outdated.set_one(Some(flag(own.server.stale)));
        self.agent.certificate_expires.set_one(own.server.certificate_expires.map(instant));
        let Some(process) = &own.process else { return };
        self.process.cpu.raise(&[], process.cpu.as_secs_f64());
        self.process.resident.set_one(Some(real(process.resident)));
        self.process.memory.set(process.memory.iter().map(|(owner, bytes)| row(&[owner], real(*bytes))));
        self.process.virtual_size.set_one(Some(real(process.virtual_size)));
        self.process.threads.set_one(Some(real(process.threads)));
        self.process.open_fds.set_one(process.open_fds.map(real));
        self.process.max_fds.set_one(process.max_fds.map(real));
        self.process.started.set_one(Some(process.started));
    }

    fn exports(&mut self, exports: &[Exported]) {
        for it in exports {
            self.export.exported.raise(&[it.signal], real(it.exported));
            for (reason, count) in &it.dropped {
                self.export.dropped.raise(&[it.signal, reason], real(*count));
            }
            for (reason, count) in &it.failed {
                self.export.failed.raise(&[it.signal, reason], real(*count));
            }
        }
        let succeeded = exports.iter().filter_map(|it| Some((it.signal, it.succeeded_at?)));
        self.export.succeeded.set(succeeded.map(|(signal, at)| row(&[signal], instant(at))));
    }
}

/// A pool's name: its network and its range, because neither is unique alone.
fn name(pool: &PoolView) -> String {
    label::clean(&format!("{}/{}", pool.network, pool.subnet))
}

/// The labels of the incident that the finding belongs to.
fn role_and_root(incidents: &Incidents<'_>, it: &Finding) -> [&'static str; 2] {
    let place = incidents.place(&it.key);
    let root = place.map_or(it, |place| place.root);
    [set::role(root.key != it.key), root.kind.into_str()]
}

fn attachment_labels(it: &BalanceView) -> [String; 2] {
    [label::name(&it.plugin), label::clean(it.network.as_deref().unwrap_or(""))]
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

/// The zeros of findings that begin an incident. An effect has a series only once it exists, because most
/// kinds lead to no other.
fn no_findings() -> Vec<Row> {
    let rows = set::all(&[Kind::VARIANTS, Severity::VARIANTS, set::STAGES]).into_iter();
    rows.map(|values| {
        let kind = values.first().copied().unwrap_or_default();
        row(&[&values[..], &[set::role(false), kind]].concat(), 0.0)
    })
    .collect()
}

fn no_leaks() -> Vec<Row> {
    let kind = FindingKind::LeakedAddress.into_str();
    Cause::VARIANTS.iter().map(|cause| row(&[cause, set::role(false), kind], 0.0)).collect()
}

/// The rows whose value is known.
fn known(names: &[&str], values: impl IntoIterator<Item = Option<f64>>) -> Vec<Row> {
    names.iter().zip(values).filter_map(|(name, value)| Some(row(&[name], value?))).collect()
}

fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

fn length(count: usize) -> f64 {
    real(u64::try_from(count).unwrap_or(u64::MAX))
}

/// Returns the periods and the whole.
fn periods(numbers: &Numbers) -> impl Iterator<Item = Option<f64>> {
    let all = numbers.periods.into_iter().chain([numbers.whole()]);
    all.map(|number| number.map(|it| seconds(it.ns)))
}

fn since_boot(at: Timestamp) -> f64 {
    at.since(Timestamp::ZERO).as_secs_f64()
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
