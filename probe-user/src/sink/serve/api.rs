//! The documents of the API, as JSON. Their parts are the objects that the commands print with `-o json`.

use http::{Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    app_state::{Addresses, AppState, Pods, SavedState},
    query::Findings,
    reply::{ApiError, JSON, Reply, json, whole},
};
use crate::{
    engine::{
        boot::report::{NodeBoot, RecoveryReport},
        incident::Incidents,
        view::{BalanceView, PoolView},
    },
    model::{change::Finding, recovery::Recovery},
    recording::{
        history::{self, Record},
        state::{self, About},
    },
    sink::{
        net::loop_queue::Snapshot,
        render::{
            jsonl::{
                self, Decimal, Version,
                boot::{self, Boot, Mean, RestartLine, RestartStatisticsLine, Statistics},
            },
            wall_clock::Rfc3339,
        },
        select::findings,
    },
};

/// The members that each document begins with.
#[derive(Serialize, JsonSchema)]
pub(super) struct Head<'a> {
    node: &'a str,
    boot_id: &'a str,
    /// The time of this state of the engine.
    at: Rfc3339,
    boot_ns: Decimal<u64>,
}

impl<'a> Head<'a> {
    pub(super) fn of<T>(snapshot: &'a Snapshot<T>) -> Self {
        let Snapshot { label, now, .. } = snapshot;
        Self {
            node: &label.node,
            boot_id: &label.boot_id,
            at: Rfc3339(label.wall_ns(*now)),
            boot_ns: Decimal(now.0),
        }
    }
}

/// Findings: the most severe first, then the most certain, then the oldest.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Findings")]
pub(super) struct FindingList<'a> {
    schema: Version,
    #[serde(flatten)]
    head: Head<'a>,
    findings: Vec<jsonl::PlacedFinding<'a>>,
}

pub(super) fn findings<'a>(snapshot: &'a Snapshot<Vec<Finding>>, wanted: &Findings) -> FindingList<'a> {
    let mut findings: Vec<&Finding> = snapshot.value.iter().filter(|it| wanted.keeps(it)).collect();
    findings::sort(&mut findings);
    let incidents = Incidents::of(&snapshot.value);
    let findings = findings.into_iter();
    let findings = findings.map(|it| jsonl::PlacedFinding::of(it, &incidents, &snapshot.label)).collect();
    FindingList { schema: Version, head: Head::of(snapshot), findings }
}

/// Incidents: the most severe first, then the most certain, then the oldest.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Incidents")]
pub(super) struct IncidentList<'a> {
    schema: Version,
    #[serde(flatten)]
    head: Head<'a>,
    incidents: Vec<jsonl::Incident<'a>>,
}

/// The incidents that have a wanted finding, each with all its findings.
pub(super) fn incidents<'a>(snapshot: &'a Snapshot<Vec<Finding>>, wanted: &Findings) -> IncidentList<'a> {
    let mut incidents = Incidents::of(&snapshot.value).all();
    incidents.retain(|it| it.members.iter().any(|it| wanted.keeps(it.finding)));
    findings::sort_incidents(&mut incidents);
    let incidents = incidents.iter().filter_map(|it| jsonl::Incident::of(it, &snapshot.label)).collect();
    IncidentList { schema: Version, head: Head::of(snapshot), incidents }
}

/// The finding with this key, or the only one whose key contains it.
pub(super) fn finding(snapshot: &Snapshot<Vec<Finding>>, key: &str) -> Result<Response<Reply>, ApiError> {
    match findings::matching(&snapshot.value, key).as_slice() {
        [it] => {
            let mut bytes = Vec::new();
            jsonl::explained(it, &Incidents::of(&snapshot.value), &snapshot.label, &mut bytes);
            Ok(whole(StatusCode::OK, JSON, bytes))
        }
        [] => Err(ApiError::NoFinding(key.to_owned())),
        many => Err(ApiError::Parameter(format!(
            "{} findings have {key:?} in their key: give all of it",
            many.len()
        ))),
    }
}

/// The pods on the node.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Pods")]
pub(super) struct PodList<'a> {
    schema: Version,
    #[serde(flatten)]
    head: Head<'a>,
    pods: Vec<jsonl::Pod<'a>>,
    /// How long each phase of a start takes on this node.
    phases: Vec<jsonl::Shared<'a>>,
    /// The meaning of each phase.
    legend: Vec<jsonl::PhaseMeaning>,
}

pub(super) fn pods(snapshot: &Snapshot<Pods>) -> PodList<'_> {
    PodList {
        schema: Version,
        head: Head::of(snapshot),
        pods: snapshot.value.pods.iter().map(jsonl::Pod::of).collect(),
        phases: snapshot.value.shares.iter().map(jsonl::Shared::of).collect(),
        legend: jsonl::legend(),
    }
}

/// The pools of addresses, and the balance of each CNI plugin and network.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Pools")]
pub(super) struct PoolList<'a> {
    schema: Version,
    #[serde(flatten)]
    head: Head<'a>,
    pools: &'a [PoolView],
    balance: &'a [BalanceView],
}

pub(super) fn pools(snapshot: &Snapshot<Addresses>) -> PoolList<'_> {
    let Addresses { pools, balance } = &snapshot.value;
    PoolList { schema: Version, head: Head::of(snapshot), pools, balance }
}

/// The boots in the history, and this one.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Boots")]
pub(super) struct BootList<'a> {
    schema: Version,
    #[serde(flatten)]
    head: Head<'a>,
    boots: Vec<Boot<'a>>,
    average: Mean,
    statistics: Statistics<'a>,
    /// The restarts of a runtime or of the kubelet alone, in these boots.
    restarts: Vec<RestartLine<'a>>,
    restart_statistics: Vec<RestartStatisticsLine<'a>>,
}

/// The boots before this one, then this one.
fn records(app: &AppState, snapshot: &Snapshot<Recovery>) -> Vec<Record> {
    let before =
        app.config.past.records.iter().filter(|record| record.boot_id() != app.config.header.boot_id);
    let this = Record {
        made_by: app.config.header.made_by.clone(),
        node: app.config.header.node.clone(),
        recovery: snapshot.value.clone(),
    };
    before.cloned().chain([this]).collect()
}

pub(super) fn boot(app: &AppState, snapshot: &Snapshot<Recovery>) -> Response<Reply> {
    let records = records(app, snapshot);
    let mut reports = Vec::with_capacity(records.len());
    for record in &records {
        let is_this = record.boot_id() == app.config.header.boot_id;
        let now = if is_this { snapshot.now } else { record.recovery.seen_until };
        reports.push(RecoveryReport::of(&record.recovery, now.max(record.recovery.seen_until)));
    }
    let rows: Vec<NodeBoot<'_>> = records
        .iter()
        .zip(&reports)
        .map(|(record, report)| NodeBoot { node: &record.node, recovery: &record.recovery, report })
        .collect();
    let (restarts, restart_statistics) = boot::restarts(&rows);
    json(&BootList {
        schema: Version,
        head: Head::of(snapshot),
        boots: rows.iter().map(Boot::of).collect(),
        average: Mean::of(&rows),
        statistics: Statistics::of(&rows),
        restarts,
        restart_statistics,
    })
}

/// Returns the document that the state directory has.
pub(super) fn state(app: &AppState, snapshot: &Snapshot<SavedState>) -> Response<Reply> {
    let about = About {
        made_by: app.config.header.made_by.clone(),
        node: app.config.header.node.clone(),
        boot_id: app.config.header.boot_id.clone(),
        boot_wall_ns: snapshot.label.boot_wall_ns,
        pid: std::process::id(),
        written_at: snapshot.now,
        ended: false,
    };
    let SavedState { findings, starts, shares } = &snapshot.value;
    let known = state::Snapshot {
        findings: findings.iter().collect(),
        starts: starts.clone(),
        shares: shares.clone(),
    };
    whole(StatusCode::OK, JSON, state::write(&about, &known).unwrap_or_default())
}

/// Returns the lines that the state directory has, with the current state of this boot.
pub(super) fn history(app: &AppState, snapshot: &Snapshot<Recovery>) -> Response<Reply> {
    let lines =
        records(app, snapshot).iter().filter_map(|record| history::line(record).ok()).collect::<Vec<_>>();
    whole(StatusCode::OK, "application/x-ndjson", lines.concat())
}
