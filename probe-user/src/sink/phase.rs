//! The words for a phase of a start.

use std::time::Duration;

use strum::VariantNames as _;

use super::{escape::escaped, span::span};
use crate::{
    engine::share::Share,
    model::{
        change::ContainerRef,
        fact::{Listener, PodName},
        phase::{Cause, Kind, Listening, Phase, Start},
    },
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

/// `cni bridge`, `image`; with the container's name if the phase is of one.
#[must_use]
pub(crate) fn title(phase: &Phase) -> String {
    phase.container.as_ref().map_or_else(|| name(&phase.kind), |it| title_of(&phase.kind, it))
}

/// The same, for a container's phase.
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

/// The subject of a row about the node's starts.
#[must_use]
pub(crate) fn share(share: &Share) -> String {
    share.kind.as_ref().map_or_else(|| "whole start".to_owned(), name)
}

/// The socket that listens: `port 8080 (ipv4)`.
#[must_use]
pub(crate) fn socket(socket: Listener) -> String {
    let Listener { port, family } = socket;
    let port = if port == 0 { "a port of the kernel's choice".to_owned() } else { format!("port {port}") };
    format!("{port} ({})", family.into_str())
}

/// What is known about when a container listened, a sentence each.
#[must_use]
pub(crate) fn listening(it: &Listening) -> Vec<String> {
    let mut said = vec![socket(it.socket)];
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

/// What is known about why it took so long, a sentence each.
#[must_use]
pub(crate) fn causes(phase: &Phase) -> Vec<String> {
    let Cause { adds, failed, wasted, took, sandboxes, runs, teardown, pressure } = &phase.cause;
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
    let of = |part: Duration| format!("{} of {}", span(part), span(whole));
    if !teardown.is_zero() {
        said.push(format!("other network namespaces were taken apart for {}", of(*teardown)));
    }
    if let Some(cpu) = pressure.cpu.filter(|cpu| cpu.periods > 0 || !cpu.throttled.is_zero()) {
        said.push(format!("throttled {} of {} ({} periods)", span(cpu.throttled), span(whole), cpu.periods));
    }
    if let Some(memory) = pressure.memory.filter(|it| it.high + it.max + it.oom > 0) {
        let counts = [(memory.high, "high"), (memory.max, "max"), (memory.oom, "oom")];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, name)| format!("{name} {count} times")).collect();
        said.push(format!("memory limit reached: {}", counts.join(", ")));
    }
    let stalls = [(pressure.cpu_stall, "CPU"), (pressure.memory_stall, "memory"), (pressure.io_stall, "I/O")];
    for (stall, name) in stalls {
        // A small wait is normal, so it is not mentioned.
        if let Some(stall) = stall.filter(|stall| stall.some * 10 >= whole && !stall.some.is_zero()) {
            said.push(format!("waited for {name} {}", of(stall.some)));
        }
    }
    if phase.gapped {
        said.push("something was lost meanwhile".to_owned());
    }
    said
}

/// `3.21 s, slowest cni bridge 2.00 s`, and why it is incomplete.
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
