//! The state of the agent: whether it is ready, and its report about itself.

use std::{collections::BTreeMap, iter, time::Duration};

use caps::Capability;
use http::{Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    api::Head,
    app_state::{AppState, Health},
    reply::{Reply, TEXT, whole},
};
use crate::sink::{
    escape::escaped,
    metrics::agent_stats::Process,
    net::loop_queue::{Snapshot, Unanswered},
    render::{doctor, jsonl::Decimal, wall_clock::Rfc3339},
};

/// How long the agent is not ready after a loss of records.
const LOSS_PERIOD: Duration = Duration::from_secs(60);

/// Whether the agent sees everything that it should see; if not, the reasons, a line each. A degraded agent
/// is ready, because taking it out of service would not help.
pub(super) struct Readiness {
    snapshot: std::sync::Arc<Snapshot<Health>>,
    pub(super) reasons: Vec<String>,
    pub(super) degraded: Vec<String>,
}

pub(super) async fn readiness(app: &AppState) -> Result<Readiness, Unanswered> {
    let snapshot = app.views.health.get().await?;
    let reasons = reasons(app, &snapshot);
    let stream = app.config.stream_trouble.shown();
    let degraded = app.config.state_writes.troubles().into_iter().chain(stream).collect();
    Ok(Readiness { snapshot, reasons, degraded })
}

fn reasons(app: &AppState, snapshot: &Snapshot<Health>) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut is_curable = false;
    // Signals that are not required count too, because findings that depend on them are missed.
    for row in app.config.report.unseen() {
        let lacks = if row.lacks.is_empty() { String::new() } else { format!("; it needs {}", row.lacks) };
        reasons.push(format!("{} is not seen: no hook for it is attached{lacks}", row.signal));
        is_curable |= !lacks.is_empty();
    }
    // One remedy covers everything that is missing, so it is given once.
    if is_curable && let Some(cure) = &app.config.report.cure {
        reasons.push(format!("to see more: {cure}"));
    }
    if !snapshot.value.has_listed {
        reasons.push("the first listing of the node is not complete yet".to_owned());
    }
    for (path, since) in &snapshot.value.hanging {
        reasons.push(hanging(path, snapshot.now.since(*since)));
    }
    if app.config.ring.lost_at().is_some_and(|at| snapshot.now < at + LOSS_PERIOD) {
        reasons.push("records were lost in the last minute".to_owned());
    }
    reasons
}

/// Explains to an operator why reading this file hangs.
fn hanging(path: &str, time: Duration) -> String {
    let process = path.strip_prefix("/proc/").and_then(|rest| rest.split('/').next());
    let process = process.filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()));
    let what = match process {
        Some(pid) => format!(
            "process {pid} may be stuck in the kernel (state D), as where a volume of its pod is gone; such a pod stays \
    Terminating"
        ),
        None => "the disk or the file server below it may not answer".to_owned(),
    };
    format!(
        "reading {} has hung for {} s, the rest is read without it: {what}",
        escaped(path),
        time.as_secs()
    )
}

pub(super) fn response(readiness: &Readiness) -> Response<Reply> {
    let degraded = readiness.degraded.iter().map(|it| format!("degraded: {it}\n"));
    if readiness.reasons.is_empty() {
        let text: String = iter::once("ok\n".to_owned()).chain(degraded).collect();
        return whole(StatusCode::OK, TEXT, text);
    }
    let reasons = readiness.reasons.iter().map(|reason| format!("{reason}\n"));
    whole(StatusCode::SERVICE_UNAVAILABLE, TEXT, reasons.chain(degraded).collect::<String>())
}

/// What the agent can see, and its state.
#[derive(Serialize, JsonSchema)]
pub(super) struct Doctor<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    #[serde(flatten)]
    report: doctor::Object<'a>,
    agent: Agent<'a>,
}

#[derive(Serialize, JsonSchema)]
struct Agent<'a> {
    instance: &'a str,
    pid: u32,
    kernel: &'a str,
    /// When the agent began.
    since: Rfc3339,
    ready: bool,
    /// Why the agent is not ready.
    reasons: &'a [String],
    degraded: &'a [String],
    backfill_complete: bool,
    /// The number of the latest event.
    seq: u64,
    /// The number of events that were reported late.
    late: Decimal<u64>,
    /// Records that were lost, by place.
    losses: BTreeMap<&'static str, Decimal<u64>>,
    capabilities: Vec<String>,
    cost: Cost,
    netns: Namespaces,
}

/// The network namespaces besides the node's own.
#[derive(Serialize, JsonSchema)]
struct Namespaces {
    /// How many the kernel has, as far as is known.
    count: usize,
    /// How many each user may have made.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
}

/// The resources that the agent itself uses.
#[derive(Serialize, JsonSchema)]
struct Cost {
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_ns: Option<Decimal<u128>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rss_bytes: Option<Decimal<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<u64>,
}

pub(super) fn doctor<'a>(
    app: &'a AppState,
    readiness: &'a Readiness,
    process: Option<&Process>,
) -> Doctor<'a> {
    let snapshot = &*readiness.snapshot;
    let counts = &snapshot.value.counts;
    Doctor {
        head: Head::of(snapshot),
        report: app.config.report.object(),
        agent: Agent {
            instance: &app.instance,
            pid: std::process::id(),
            kernel: &app.config.header.kernel,
            since: Rfc3339(snapshot.label.wall_ns(app.config.since)),
            ready: readiness.reasons.is_empty(),
            reasons: &readiness.reasons,
            degraded: &readiness.degraded,
            backfill_complete: snapshot.value.has_listed,
            seq: app.config.ring.newest(),
            late: Decimal(counts.late),
            losses: counts.lost.iter().map(|(what, count)| (what.into_str(), Decimal(*count))).collect(),
            capabilities: capabilities(process.map_or(0, |it| it.capabilities)),
            cost: Cost {
                cpu_ns: process.map(|it| Decimal(it.cpu.as_nanos())),
                rss_bytes: process.map(|it| Decimal(it.resident)),
                threads: process.map(|it| it.threads),
            },
            netns: Namespaces { count: snapshot.value.netns.0, limit: snapshot.value.netns.1 },
        },
    }
}

/// The names (capabilities(7)) of the capabilities in the mask. A capability that is newer than the library
/// is given by number.
fn capabilities(mask: u64) -> Vec<String> {
    let known: BTreeMap<u8, Capability> = caps::all().into_iter().map(|it| (it.index(), it)).collect();
    let bits = (0..64).filter(|bit| mask & (1 << bit) != 0);
    bits.map(|bit: u8| match known.get(&bit) {
        Some(capability) => capability.to_string().trim_start_matches("CAP_").to_ascii_lowercase(),
        None => bit.to_string(),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{capabilities, hanging};

    #[test]
    fn a_file_that_hangs_is_told_in_the_words_of_pods() {
        let told = hanging("/proc/4711/cmdline", Duration::from_millis(12_900));
        assert!(told.starts_with("reading /proc/4711/cmdline has hung for 12 s"), "{told}");
        assert!(told.contains("process 4711 may be stuck in the kernel (state D)"), "{told}");
        let told = hanging("/var/lib/cni/networks/x\n", Duration::ZERO);
        assert!(told.contains("the disk or the file server") && !told.contains('\n'), "{told}");
    }

    #[test]
    fn capabilities_have_names() {
        let all = ["net_admin", "sys_admin", "perfmon", "bpf", "checkpoint_restore"];
        assert_eq!(capabilities(0x1c0_0020_1000), all);
        assert_eq!(capabilities(0), [""; 0]);
        assert_eq!(capabilities(1 << 63), ["63"]);
    }
}
