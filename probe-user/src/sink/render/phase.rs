//! The words for a phase of a start.

use std::time::Duration;

use strum::VariantNames as _;

use crate::{
    engine::share::Share,
    model::{
        change::ContainerRef,
        fact::{CpuUse, Listener, PodName, Pressure, Stall},
        phase::{Cause, Kind, Listening, Part, PartKind, Phase, Start, WaitsFor},
    },
    sink::{escape::escaped, span::span},
    words::count::counted,
};

/// The names of all phases of a start, in their order.
pub(crate) const NAMES: &[&str] = Kind::VARIANTS.split_last().expect("there are phases").1;

/// `namespace/name`, as far as it is known.
#[must_use]
pub(crate) fn pod(pod: &PodName) -> String {
    match (&pod.namespace, &pod.name, &pod.uid) {
        (Some(namespace), Some(name), _) => format!("{}/{}", escaped(namespace), escaped(name)),
        (None, Some(name), _) => format!("?/{}", escaped(name)),
        (_, None, Some(uid)) => uid.to_string(),
        (Some(namespace), None, None) => format!("{}/?", escaped(namespace)),
        (None, None, None) => "-".to_owned(),
    }
}

/// The title of a phase, such as `cni bridge` or `image`, with the container's name if it is a container's
/// phase.
#[must_use]
pub(crate) fn title(phase: &Phase) -> String {
    phase.container.as_ref().map_or_else(|| name(&phase.kind), |it| title_of(&phase.kind, it))
}

/// The title of a container's phase.
#[must_use]
pub(crate) fn title_of(kind: &Kind, container: &ContainerRef) -> String {
    let name = name(kind);
    match &container.name {
        Some(of) => format!("{name} {}", escaped(of)),
        None => format!("{name} {}", container.id.short()),
    }
}

#[must_use]
pub(crate) fn name(kind: &Kind) -> String {
    match kind {
        Kind::Cni { plugin, .. } => format!("{} {}", kind.into_str(), escaped(plugin)),
        Kind::Prepare
        | Kind::Retry
        | Kind::Netns
        | Kind::Between
        | Kind::Pause
        | Kind::Image
        | Kind::Runtime
        | Kind::Cgroup
        | Kind::PostStart
        | Kind::Init
        | Kind::Listening => kind.into_str().to_owned(),
    }
}

/// The name of all phases of a start together.
pub(crate) const WHOLE: &str = "whole start";

/// The subject of a row about the node's starts.
#[must_use]
pub(crate) fn share(share: &Share) -> String {
    of_start(share.kind.as_ref())
}

/// The name of a phase, or of the whole start.
#[must_use]
pub(crate) fn of_start(kind: Option<&Kind>) -> String {
    kind.map_or_else(|| WHOLE.to_owned(), name)
}

/// The socket that listens: `port 8080 (ipv4)`.
#[must_use]
pub(crate) fn socket(socket: Listener) -> String {
    let Listener { port, family } = socket;
    let port = if port == 0 { "a port of the kernel's choice".to_owned() } else { format!("port {port}") };
    format!("{port} ({})", family.into_str())
}

/// Describes when a container listened and what delayed it, a sentence each.
#[must_use]
pub(crate) fn listening(it: &Listening) -> Vec<String> {
    let mut said = vec![socket(it.socket)];
    load(&it.pressure, it.took(), &mut said);
    if it.gapped {
        said.push("something was lost meanwhile".to_owned());
    }
    if it.suspended {
        said.push("the node was suspended meanwhile".to_owned());
    }
    said
}

/// Why a start is incomplete, a word each.
#[must_use]
pub(crate) fn marks(start: &Start) -> Vec<&'static str> {
    let marks = [
        (!start.complete, "not complete"),
        (start.revised, "revised"),
        (start.rebuilt, "rebuilt"),
        (start.listed, "listed"),
        (start.suspended, "suspended"),
        (start.is_gapped(), "gapped"),
        (!start.containers_known, "containers not known"),
    ];
    marks.into_iter().filter_map(|(is_so, mark)| is_so.then_some(mark)).collect()
}

/// The known reasons why the phase took this long, a sentence each.
#[must_use]
pub(crate) fn causes(phase: &Phase) -> Vec<String> {
    let Cause { adds, failed, wasted, took, sandboxes, runs, teardown } = &phase.cause;
    let whole = phase.took();
    let mut said = Vec::new();
    if *sandboxes > 0 {
        said.push(format!("{sandboxes} sandbox{} came to nothing", if *sandboxes == 1 { "" } else { "es" }));
    }
    if *failed > 0 {
        said.push(format!("{failed} of {adds} ADDs failed, which took {}", span(*wasted)));
    }
    if matches!(phase.kind, Kind::Cni { .. }) && *took > whole {
        said.push(format!("the plugin itself took {}, beside others", span(*took)));
    }
    if *runs > 1 {
        said.push(format!("ran {runs} times"));
    }
    if matches!(phase.kind, Kind::PostStart) {
        said.push(
            "executed into the container right after its start: inferred to be its postStart hook".to_owned(),
        );
    }
    if matches!(phase.kind, Kind::Init) {
        said.push("inferred to be an init container".to_owned());
    }
    said.extend(phase.parts.iter().map(part));
    if let Some(stall) = phase.runtime_stall().filter(|stall| is_long(*stall, whole)) {
        said.push(format!("the runtime waited for I/O {} of {}", span(stall.some.min(whole)), span(whole)));
    }
    if !teardown.is_zero() {
        said.push(format!(
            "other network namespaces were taken apart for {} of {}",
            span(*teardown),
            span(whole)
        ));
    }
    load(&phase.pressure, whole, &mut said);
    if phase.gapped {
        said.push("something was lost meanwhile".to_owned());
    }
    said
}

/// Describes a part of a phase in a sentence.
fn part(part: &Part) -> String {
    let took = span(part.took);
    match (part.kind, part.waits) {
        (PartKind::Unknown, _) => format!("cause of {took} unknown"),
        (PartKind::Pull, _) => format!("the image was pulled in {took}"),
        (PartKind::Unpack, _) => format!("the rest of it was unpacked in {took}"),
        (PartKind::Create, _) => format!("the runtime took {took} to make the container"),
        (PartKind::Wait, Some(waits)) => format!("waited {took} {}", held_up(waits)),
        (PartKind::Wait, None) => format!("waited {took}"),
    }
}

/// Describes what held up the pod, and names the setting that causes that.
fn held_up(waits: WaitsFor) -> String {
    match waits {
        WaitsFor::Pulls { ahead, at_once } => {
            let setting = if at_once == 1 { "serializeImagePulls" } else { "maxParallelImagePulls" };
            let places = places(at_once, "pulls");
            format!("behind {}, {places} (the kubelet's {setting})", counted(ahead.into(), "other pull"))
        }
        WaitsFor::Creates { ahead, at_once } => {
            let others = counted(ahead.into(), "other container");
            format!("while the runtime made {others}, {}", places(at_once, "containers"))
        }
        WaitsFor::Rate { refused } => {
            format!(
                "since the kubelet refused to pull, {} (its registryPullQPS)",
                counted(refused.into(), "time")
            )
        }
        WaitsFor::ApiRate { held_back } => {
            let requests = counted(held_back.into(), "request");
            format!(
                "for the kubelet's own rate of requests to the API server, {requests} in its log (its kubeAPIQPS and \
                 kubeAPIBurst)"
            )
        }
        WaitsFor::Runtime {} => {
            "for the runtime, which answered nothing (docs/findings/runtime_unresponsive.md)".to_owned()
        }
        WaitsFor::Services { failed } => format!(
            "for the kubelet to read the Services from the API server, {} to make the container",
            counted(failed.into(), "failed attempt")
        ),
        WaitsFor::Retry { failed } => {
            format!("from {} to the next try that did not fail", counted(failed.into(), "failed pull"))
        }
    }
}

fn places(at_once: u32, of: &str) -> String {
    match at_once {
        1 => "one after another".to_owned(),
        many => format!("{many} {of} at a time"),
    }
}

/// Adds the counts of the pod's cgroup in this time that may be the reason why it took this long.
fn load(pressure: &Pressure, whole: Duration, said: &mut Vec<String>) {
    if let Some(cpu) = pressure.cpu.filter(|cpu| cpu.periods > 0 || !cpu.throttled.is_zero()) {
        let throttled =
            format!("throttled {} of {} ({} periods)", span(cpu.throttled), span(whole), cpu.periods);
        said.push(throttled + &limit(&cpu, whole));
    }
    if let Some(memory) = pressure.memory.filter(|it| it.high + it.max + it.oom > 0) {
        let counts = [(memory.high, "high"), (memory.max, "max"), (memory.oom, "oom")];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, name)| format!("{name} {count} times")).collect();
        // The kubelet sets `memory.high` of a pod for MemoryQoS alone.
        let by = if memory.high > 0 { ", by the kubelet's MemoryQoS (memoryThrottlingFactor)" } else { "" };
        let limit =
            memory.limit.map(|bytes| format!("; the limit is {}{by}", quantity(bytes))).unwrap_or_default();
        said.push(format!("memory limit reached: {}{limit}", counts.join(", ")));
    }
    let stalls = [(pressure.cpu_stall, "CPU"), (pressure.memory_stall, "memory"), (pressure.io_stall, "I/O")];
    for (stall, name) in stalls {
        if let Some(stall) = stall.filter(|stall| is_long(*stall, whole)) {
            // The kernel's count was read a moment after the phase had ended.
            said.push(format!("waited for {name} {} of {}", span(stall.some.min(whole)), span(whole)));
        }
    }
}

/// A small wait is normal, so it is not mentioned.
fn is_long(stall: Stall, whole: Duration) -> bool {
    stall.some * 10 >= whole && !stall.some.is_zero()
}

/// The CPU limit that throttled the pod, and an estimate of what it would have used without a limit, from its
/// use in the time in which it could run. No estimate if it could run for less than a tenth of the time.
fn limit(cpu: &CpuUse, whole: Duration) -> String {
    const STEP: u128 = 50;
    let Some(limit) = cpu.limit else { return String::new() };
    let ran = whole.saturating_sub(cpu.throttled);
    let needs =
        if ran * 10 < whole { None } else { (cpu.used.as_nanos() * 1000).checked_div(ran.as_nanos()) };
    let needs = needs.map(|needs| needs.div_ceil(STEP) * STEP).filter(|needs| *needs > u128::from(limit));
    let needs = needs.map(|needs| format!("; about {needs}m would do")).unwrap_or_default();
    format!(" by a limit of {limit}m{needs}")
}

/// Bytes as Kubernetes writes them: `64Mi`.
fn quantity(bytes: u64) -> String {
    let units = [(30, "Gi"), (20, "Mi"), (10, "Ki")];
    let whole = units.into_iter().find(|(bits, _)| bytes > 0 && bytes.trailing_zeros() >= *bits);
    whole.map_or_else(|| bytes.to_string(), |(bits, unit)| format!("{}{unit}", bytes >> bits))
}

/// A summary such as `in 3.21 s, slowest cni bridge 2.00 s`, and why the start is incomplete.
#[must_use]
pub(crate) fn summary(start: &Start) -> String {
    let mut said = format!("in {}", span(start.total()));
    if let Some(slowest) = start.slowest() {
        said += &format!(", slowest {} {}", title(slowest), span(slowest.took()));
    }
    if let Some(last) = start.listens() {
        said += &format!(", {} after {}", title_of(&Kind::Listening, &last.container), span(last.took()));
    }
    let marks = marks(start);
    if marks.is_empty() { said } else { format!("{said} ({})", marks.join(", ")) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CpuUse, Part, PartKind, Pressure, WaitsFor, load, quantity};
    use crate::model::{fact::MemoryEvents, time::Timestamp};

    fn said(pressure: Pressure) -> String {
        let mut said = Vec::new();
        load(&pressure, Duration::from_secs(8), &mut said);
        said.join(" | ")
    }

    #[test]
    fn the_parts_of_a_phase_are_told_with_the_setting() {
        let part = |kind, waits| {
            super::part(&Part { kind, begin: Timestamp(0), took: Duration::from_millis(8200), waits })
        };
        let waited = |waits| part(PartKind::Wait, Some(waits));
        for (said, expected) in [
            (part(PartKind::Pull, None), "the image was pulled in 8.20 s"),
            (part(PartKind::Unpack, None), "the rest of it was unpacked in 8.20 s"),
            (part(PartKind::Create, None), "the runtime took 8.20 s to make the container"),
            (part(PartKind::Unknown, None), "cause of 8.20 s unknown"),
            (
                waited(WaitsFor::Pulls { ahead: 4, at_once: 1 }),
                "waited 8.20 s behind 4 other pulls, one after another (the kubelet's serializeImagePulls)",
            ),
            (
                waited(WaitsFor::Pulls { ahead: 1, at_once: 3 }),
                "waited 8.20 s behind 1 other pull, 3 pulls at a time (the kubelet's maxParallelImagePulls)",
            ),
            (
                waited(WaitsFor::Creates { ahead: 2, at_once: 1 }),
                "waited 8.20 s while the runtime made 2 other containers, one after another",
            ),
            (
                waited(WaitsFor::Rate { refused: 2 }),
                "waited 8.20 s since the kubelet refused to pull, 2 times (its registryPullQPS)",
            ),
            (
                waited(WaitsFor::ApiRate { held_back: 3 }),
                "waited 8.20 s for the kubelet's own rate of requests to the API server, 3 requests in its log (its \
                 kubeAPIQPS and kubeAPIBurst)",
            ),
            (
                waited(WaitsFor::Services { failed: 2 }),
                "waited 8.20 s for the kubelet to read the Services from the API server, 2 failed attempts to make \
                 the container",
            ),
            (
                waited(WaitsFor::Runtime {}),
                "waited 8.20 s for the runtime, which answered nothing (docs/findings/runtime_unresponsive.md)",
            ),
            (
                waited(WaitsFor::Retry { failed: 1 }),
                "waited 8.20 s from 1 failed pull to the next try that did not fail",
            ),
        ] {
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn a_limit_is_told_with_what_would_do() {
        let cpu = |used: u64, throttled, limit| {
            let (used, throttled) = (Duration::from_millis(used), Duration::from_millis(throttled));
            said(Pressure {
                cpu: Some(CpuUse { used, throttled, periods: 57, limit }),
                ..Pressure::default()
            })
        };
        assert_eq!(
            cpu(800, 5700, Some(100)),
            "throttled 5.70 s of 8.00 s (57 periods) by a limit of 100m; about 350m would do"
        );
        assert_eq!(cpu(800, 5700, None), "throttled 5.70 s of 8.00 s (57 periods)");
        // The pod could hardly run, and its use may be another container's.
        let only = "throttled 7.90 s of 8.00 s (57 periods) by a limit of 100m";
        assert_eq!(cpu(800, 7900, Some(100)), only);
        assert_eq!(cpu(0, 7900, Some(100)), only);
        assert_eq!(cpu(9, 20_000, Some(100)), "throttled 20.00 s of 8.00 s (57 periods) by a limit of 100m");
    }

    #[test]
    fn a_limit_of_memory_is_told_as_kubernetes_writes_it() {
        let memory = Some(MemoryEvents { high: 7, max: 0, oom: 0, limit: Some(48 << 20) });
        let told = said(Pressure { memory, ..Pressure::default() });
        let high = "memory limit reached: high 7 times; the limit is 48Mi, by the kubelet's MemoryQoS \
                    (memoryThrottlingFactor)";
        assert_eq!(told, high);
        let memory = Some(MemoryEvents { high: 0, max: 2, oom: 0, limit: Some(48 << 20) });
        let told = said(Pressure { memory, ..Pressure::default() });
        assert_eq!(told, "memory limit reached: max 2 times; the limit is 48Mi");
        let written = [0, 1, 1000, 1 << 10, 3 << 19, 1 << 40].map(quantity);
        assert_eq!(written, ["0", "1", "1000", "1Ki", "1536Ki", "1024Gi"]);
    }
}
