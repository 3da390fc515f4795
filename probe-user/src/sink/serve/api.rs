//! What is known, as JSON: the objects are those of the commands (`-o json`), put together to one document.

use http::{Response, StatusCode};
use serde::Serialize;

use super::{
    house::{House, Known, Pods, State},
    query::Findings,
    reply::{JSON, Refusal, Reply, json, whole},
};
use crate::{
    engine::{
        boot::{Recovery, study::Study},
        finding::Finding,
        view::PoolView,
    },
    recording::{
        history::{self, Record},
        state::{self, About},
    },
    sink::{
        jsonl::{self, SCHEMA, boot::Told},
        select,
        wall::Rfc3339,
    },
};

/// What each document begins with.
#[derive(Serialize)]
pub(super) struct Head<'a> {
    node: &'a str,
    boot_id: &'a str,
    /// When it was so.
    at: String,
    boot_ns: String,
}

impl<'a> Head<'a> {
    pub(super) fn of<T>(known: &'a Known<T>) -> Self {
        let Known { label, now, .. } = known;
        Self {
            node: &label.node,
            boot_id: &label.boot_id,
            at: Rfc3339(label.wall_ns(*now)).to_string(),
            boot_ns: now.0.to_string(),
        }
    }
}

#[derive(Serialize)]
struct List<'a, T> {
    schema: u32,
    #[serde(flatten)]
    head: Head<'a>,
    findings: Vec<T>,
}

pub(super) fn findings<'a>(known: &'a Known<Vec<Finding>>, wanted: &Findings) -> impl Serialize + use<'a> {
    let mut findings: Vec<&Finding> = known.it.iter().filter(|it| wanted.keeps(it)).collect();
    select::sort(&mut findings);
    let findings = findings.into_iter().map(|it| jsonl::found(it, &known.label)).collect();
    List { schema: SCHEMA, head: Head::of(known), findings }
}

/// The one of that key, or the only one of which it is a part.
pub(super) fn finding(known: &Known<Vec<Finding>>, key: &str) -> Result<Response<Reply>, Refusal> {
    match select::matching(&known.it, key).as_slice() {
        [it] => {
            let mut bytes = Vec::new();
            jsonl::explained(it, &known.label, &mut bytes);
            Ok(whole(StatusCode::OK, JSON, bytes))
        }
        [] => Err(Refusal::NoFinding(key.to_owned())),
        many => Err(Refusal::Parameter(format!(
            "{} findings have {key:?} in their key: give all of it",
            many.len()
        ))),
    }
}

#[derive(Serialize)]
struct PodList<'a, P, S> {
    schema: u32,
    #[serde(flatten)]
    head: Head<'a>,
    pods: Vec<P>,
    /// How long each phase of a start takes here.
    phases: Vec<S>,
}

pub(super) fn pods(known: &Known<Pods>) -> impl Serialize + '_ {
    PodList {
        schema: SCHEMA,
        head: Head::of(known),
        pods: known.it.pods.iter().map(jsonl::pod::object).collect(),
        phases: known.it.shares.iter().map(jsonl::shared).collect(),
    }
}

#[derive(Serialize)]
struct Pools<'a> {
    schema: u32,
    #[serde(flatten)]
    head: Head<'a>,
    pools: Vec<Pool<'a>>,
}

#[derive(Serialize)]
struct Pool<'a> {
    network: &'a str,
    subnet: String,
    size: u64,
    in_use: u64,
    pending_cleanup: u64,
    leak_candidate: u64,
    leaked: u64,
    free: u64,
}

pub(super) fn pools(known: &Known<Vec<PoolView>>) -> impl Serialize + '_ {
    Pools { schema: SCHEMA, head: Head::of(known), pools: known.it.iter().map(Pool::of).collect() }
}

impl<'a> Pool<'a> {
    fn of(it: &'a PoolView) -> Self {
        let PoolView { network, subnet, size, in_use, pending_cleanup, leak_candidate, leaked, free } = it;
        Self {
            network,
            subnet: subnet.to_string(),
            size: *size,
            in_use: *in_use,
            pending_cleanup: *pending_cleanup,
            leak_candidate: *leak_candidate,
            leaked: *leaked,
            free: *free,
        }
    }
}

#[derive(Serialize)]
struct Boots<'a, B, A> {
    schema: u32,
    #[serde(flatten)]
    head: Head<'a>,
    boots: Vec<B>,
    average: A,
}

/// Those before, and this one.
fn records(house: &House, known: &Known<Recovery>) -> Vec<Record> {
    let before = house.past.records.iter().filter(|record| record.boot_id() != house.header.boot_id);
    let this = Record {
        made_by: house.header.made_by.clone(),
        node: house.header.node.clone(),
        recovery: known.it.clone(),
    };
    before.cloned().chain([this]).collect()
}

pub(super) fn boot(house: &House, known: &Known<Recovery>) -> Response<Reply> {
    let records = records(house, known);
    let study = |record: &Record| {
        let is_this = record.boot_id() == house.header.boot_id;
        let now = if is_this { known.now } else { record.recovery.seen_until };
        Study::of(&record.recovery, now.max(record.recovery.seen_until))
    };
    let studies: Vec<Study> = records.iter().map(study).collect();
    let told: Vec<Told<'_>> = records
        .iter()
        .zip(&studies)
        .map(|(record, study)| Told { node: &record.node, recovery: &record.recovery, study })
        .collect();
    json(&Boots {
        schema: SCHEMA,
        head: Head::of(known),
        boots: told.iter().map(jsonl::boot::object).collect(),
        average: jsonl::boot::average_of(&told),
    })
}

/// As the state directory has it.
pub(super) fn state(house: &House, known: &Known<State>) -> Response<Reply> {
    let about = About {
        made_by: house.header.made_by.clone(),
        node: house.header.node.clone(),
        boot_id: house.header.boot_id.clone(),
        boot_wall_ns: known.label.boot_wall_ns,
        pid: std::process::id(),
        written_at: known.now,
        ended: false,
    };
    let State { findings, starts, shares } = &known.it;
    let known =
        state::Known { findings: findings.iter().collect(), starts: starts.clone(), shares: shares.clone() };
    whole(StatusCode::OK, JSON, state::write(&about, &known).unwrap_or_default())
}

/// As the state directory has it, with what is not yet written there.
pub(super) fn history(house: &House, known: &Known<Recovery>) -> Response<Reply> {
    let lines =
        records(house, known).iter().filter_map(|record| history::line(record).ok()).collect::<Vec<_>>();
    whole(StatusCode::OK, "application/x-ndjson", lines.concat())
}
