//! Computes when the pods of a boot would have been back if one thing had been otherwise.
//!
//! Each pod's start is moved by what the change takes out of its phases, and the report is made again of the
//! pods that were moved. What a pod would have done at another time is not known exactly: when the kubelet
//! would have tried again, and how much of an unexplained time was a pull. So each result has bounds.

use std::time::Duration;

use super::report::RecoveryReport;
use crate::model::{
    fact::PodName,
    phase::{Kind as PhaseKind, Phase, Start},
    recovery::{Kind, Pod, RecoveredPod, Recovery},
    time::Timestamp,
};

/// What is otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The pods with this name, or namespace and name, use the node's network.
    HostNetwork(String),
    /// No image has to be pulled.
    ImagePresent,
    /// The network is ready this much earlier.
    CniReady(Duration),
}

/// The least and the most time that is saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub least: Duration,
    pub most: Duration,
}

/// A pod and what the change saves of the time until it is back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saving {
    pub pod: Pod,
    /// When it was back, without the change.
    pub back: Timestamp,
    pub saves: Bounds,
}

/// A recovery with the change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhatIf {
    /// If the least is saved.
    pub least: RecoveryReport,
    /// If the most is saved.
    pub most: RecoveryReport,
    /// The pods of which something may be saved, the most first.
    pub savings: Vec<Saving>,
    /// The pods whose starts are not known. They are back when they were.
    pub unknown: Vec<Pod>,
}

/// The time within which the network became ready, and how much earlier it would be ready.
#[derive(Clone, Copy, Debug)]
struct Network {
    /// It was not ready at this time.
    not_yet: Timestamp,
    /// It was ready at this time.
    ready: Timestamp,
    /// A pod may have waited for it from this time on: the first pod came that is not static.
    since: Timestamp,
    earlier: Bounds,
}

impl Bounds {
    fn exactly(span: Duration) -> Self {
        Self { least: span, most: span }
    }

    fn at_most(most: Duration) -> Self {
        Self { least: Duration::ZERO, most }
    }

    fn and(self, other: Self) -> Self {
        Self { least: self.least.saturating_add(other.least), most: self.most.saturating_add(other.most) }
    }
}

impl WhatIf {
    /// Computes the recovery anew. `starts` are the starts of the boot's pods. `Err`: why nothing can be
    /// computed.
    pub fn of(
        recovery: &Recovery,
        starts: &[Start],
        change: &Change,
        now: Timestamp,
    ) -> Result<Self, &'static str> {
        let known: Vec<(&RecoveredPod, Option<&Start>)> =
            recovery.pods.iter().map(|back| (back, start_of(back, starts))).collect();
        let network = Network::of(recovery, &known, change, now);
        match change {
            Change::HostNetwork(name) => {
                if !known.iter().any(|(back, start)| start.is_some() && is_named(&back.pod, name)) {
                    return Err("no start of this pod is known");
                }
            }
            Change::CniReady(_) if network.is_none() => {
                return Err("it is not known when its network was ready, or no start of a pod is known");
            }
            Change::CniReady(_) | Change::ImagePresent => {}
        }
        let saves = known.iter().map(|(back, start)| {
            start.map(|start| saved(back, start, change, network.as_ref())).unwrap_or_default()
        });
        let saves: Vec<Bounds> = saves.collect();
        let least = moved(recovery, saves.iter().map(|it| it.least), now);
        let most = moved(recovery, saves.iter().map(|it| it.most), now);
        let each = known.iter().zip(&saves).filter(|(_, saves)| !saves.most.is_zero());
        let mut savings: Vec<Saving> = each
            .map(|((back, _), saves)| Saving { pod: back.pod.clone(), back: back.mark.at, saves: *saves })
            .collect();
        savings.sort_by_key(|it| std::cmp::Reverse((it.saves.most, it.saves.least)));
        let unknown = known.iter().filter(|(_, start)| start.is_none());
        Ok(Self { least, most, savings, unknown: unknown.map(|(back, _)| back.pod.clone()).collect() })
    }
}

impl Network {
    fn of(
        recovery: &Recovery,
        known: &[(&RecoveredPod, Option<&Start>)],
        change: &Change,
        now: Timestamp,
    ) -> Option<Self> {
        let ready = RecoveryReport::of(recovery, now).cni.first?.at;
        let failed = recovery.tries.iter().filter(|it| it.failed.is_some() && it.began < ready);
        let not_yet = failed.map(|it| it.began).max();
        let not_yet = not_yet.or(recovery.network_configured.map(|it| it.at)).unwrap_or_default().min(ready);
        let of_server = known.iter().filter(|(back, _)| back.pod.kind != Kind::Static);
        let since = of_server.filter_map(|(_, start)| Some(start.as_ref()?.begin)).min()?;
        let earlier = match change {
            Change::CniReady(span) => Bounds::exactly(*span),
            // What makes the network ready is a pod too, and came before it.
            Change::ImagePresent => {
                let before = known.iter().filter(|(back, _)| back.mark.at <= ready);
                let saved = before.filter_map(|(back, start)| Some(pulls(back, start.as_ref()?).most));
                Bounds::at_most(saved.max().unwrap_or_default())
            }
            Change::HostNetwork(_) => Bounds::default(),
        };
        Some(Self { not_yet, ready, since, earlier })
    }

    /// Returns how long a pod that came at this time may have waited for the network before that.
    fn awaited(&self, begin: Timestamp) -> Duration {
        begin.min(self.ready).since(self.since)
    }

    /// Returns what a pod saves if the network is ready earlier.
    fn saves(&self, start: &Start, phases: &[&Phase]) -> Bounds {
        let Bounds { least, most } = self.earlier;
        if most.is_zero() || !phases.iter().any(|it| is_of_network(it)) {
            return Bounds::default();
        }
        let Some(retry) = phases.iter().find(|it| it.kind == PhaseKind::Retry) else {
            return Bounds::at_most(self.awaited(start.begin).min(most));
        };
        if retry.begin >= self.ready {
            return Bounds::default();
        }
        // The first try that begins after the network is ready succeeds.
        let at_once = !least.is_zero() && self.ready.saturating_sub(least) <= retry.begin;
        let earliest = self.not_yet.saturating_sub(most).max(retry.begin);
        Bounds { least: if at_once { retry.took() } else { Duration::ZERO }, most: retry.end.since(earliest) }
    }
}

/// Returns the report with each pod back earlier by its span.
fn moved(recovery: &Recovery, spans: impl Iterator<Item = Duration>, now: Timestamp) -> RecoveryReport {
    let mut moved = recovery.clone();
    for (back, span) in moved.pods.iter_mut().zip(spans) {
        back.mark.at = back.mark.at.saturating_sub(span);
        back.listened = back.listened.map(|at| at.saturating_sub(span));
    }
    RecoveryReport::of(&moved, now)
}

/// Returns the start in which a pod came back.
fn start_of<'a>(back: &RecoveredPod, starts: &'a [Start]) -> Option<&'a Start> {
    let of_pod = starts.iter().filter(|it| {
        let PodName { namespace, name, uid } = &it.pod;
        back.pod.has(namespace.as_ref(), name.as_ref(), uid.as_ref())
    });
    of_pod.filter(|it| it.begin <= back.mark.at && back.mark.at <= it.end).min_by_key(|it| it.begin)
}

fn is_named(pod: &Pod, asked: &str) -> bool {
    let Some(name) = pod.name.as_deref() else { return false };
    match asked.split_once('/') {
        Some((namespace, asked)) => name == asked && pod.namespace.as_deref() == Some(namespace),
        None => name == asked,
    }
}

/// Returns what the change saves of a pod's start.
fn saved(back: &RecoveredPod, start: &Start, change: &Change, network: Option<&Network>) -> Bounds {
    let phases = until_back(back, start);
    match change {
        Change::HostNetwork(name) if !is_named(&back.pod, name) => Bounds::default(),
        Change::HostNetwork(_) => {
            let of_network = phases.iter().filter(|it| is_of_network(it)).map(|it| it.took());
            let of_network: Duration = of_network.sum();
            if of_network.is_zero() {
                return Bounds::default();
            }
            let retries = phases.iter().filter(|it| it.kind == PhaseKind::Retry).map(|it| {
                // Sandboxes of which no ADD failed may have failed for another reason.
                if it.cause.failed > 0 { Bounds::exactly(it.took()) } else { Bounds::at_most(it.took()) }
            });
            let awaited = network.map(|it| it.awaited(start.begin)).unwrap_or_default();
            retries.fold(Bounds::exactly(of_network), Bounds::and).and(Bounds::at_most(awaited))
        }
        Change::ImagePresent => {
            let earlier = network.map(|it| it.saves(start, &phases)).unwrap_or_default();
            pulls(back, start).and(earlier)
        }
        Change::CniReady(_) => network.map(|it| it.saves(start, &phases)).unwrap_or_default(),
    }
}

/// Returns the phases that ended before the pod was back.
fn until_back<'a>(back: &RecoveredPod, start: &'a Start) -> Vec<&'a Phase> {
    start.phases.iter().filter(|it| it.end <= back.mark.at).collect()
}

/// Whether only a pod with a network of its own has this phase.
fn is_of_network(phase: &Phase) -> bool {
    matches!(phase.kind, PhaseKind::Netns | PhaseKind::Cni { .. } | PhaseKind::Between)
}

/// Returns the time that pulls of the pod's images took. No log shows it for an `image` phase without parts.
fn pulls(back: &RecoveredPod, start: &Start) -> Bounds {
    let images = until_back(back, start).into_iter().filter(|it| it.kind == PhaseKind::Image);
    let each = images.map(|it| {
        if it.parts.is_empty() {
            return Bounds::at_most(it.took());
        }
        let of_pull = it.parts.iter().filter(|part| part.is_of_pull());
        Bounds::exactly(of_pull.map(|part| part.took).sum())
    });
    each.fold(Bounds::default(), Bounds::and)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Bounds, Change, Duration, PhaseKind, PodName, Start, Timestamp, WhatIf};
    use crate::model::{
        fact::Pressure,
        id::ContainerId,
        phase::{Cause, Part, PartKind, Phase},
        recovery::{Kind, NetworkAttempt, Pod, RecoveredPod, Recovery, TimedSource},
    };

    fn at(ms: u64) -> Timestamp {
        Timestamp(ms * 1_000_000)
    }

    fn id(digit: &str) -> ContainerId {
        ContainerId::parse(&digit.repeat(64)).expect("an id")
    }

    fn back(name: &str, ms: u64) -> RecoveredPod {
        let pod = Pod {
            namespace: Some("default".to_owned()),
            name: Some(name.to_owned()),
            uid: None,
            kind: Kind::Service,
            listens: false,
            interfaces: Vec::new(),
        };
        RecoveredPod { pod, mark: TimedSource::hooked(at(ms)), listened: None }
    }

    /// A start with these phases, one after the other: how many ms each took.
    fn start(name: &str, begin: u64, phases: &[(PhaseKind, u64)]) -> Start {
        let mut end = at(begin);
        let phases: Vec<Phase> = phases
            .iter()
            .map(|(kind, took)| {
                let begin = end;
                end = begin + Duration::from_millis(*took);
                let failed = u32::from(*kind == PhaseKind::Retry);
                Phase {
                    kind: kind.clone(),
                    container: None,
                    begin,
                    end,
                    gapped: false,
                    cause: Cause { failed, ..Cause::default() },
                    pressure: Pressure::default(),
                    parts: Vec::new(),
                }
            })
            .collect();
        Start {
            pod: PodName { namespace: Some("default".to_owned()), name: Some(name.to_owned()), uid: None },
            sandbox: id("a"),
            begin: at(begin),
            end,
            phases,
            plugins: Vec::new(),
            listening: Vec::new(),
            complete: true,
            containers_known: false,
            missing: Vec::new(),
            revised: false,
            rebuilt: false,
            listed: false,
            suspended: false,
            waits: false,
        }
    }

    fn cni() -> PhaseKind {
        PhaseKind::Cni { plugin: "flannel".to_owned(), ifname: "eth0".to_owned() }
    }

    /// The ADD of `web` failed at 10 s and succeeded at 20 s.
    fn boot() -> (Recovery, Vec<Start>) {
        let attempt = |digit, began, failed: Option<&str>| NetworkAttempt {
            sandbox: id(digit),
            began: at(began),
            ended: at(began + 500),
            failed: failed.map(str::to_owned),
        };
        let web = [
            (PhaseKind::Prepare, 1000),
            (PhaseKind::Retry, 10_000),
            (PhaseKind::Netns, 500),
            (cni(), 500),
            (PhaseKind::Pause, 1000),
            (PhaseKind::Image, 1000),
            (PhaseKind::Cgroup, 1000),
        ];
        let node = [(PhaseKind::Pause, 1000), (PhaseKind::Image, 4000)];
        let recovery = Recovery {
            quiet: Duration::from_secs(60),
            tries: vec![attempt("b", 10_000, Some("flannel")), attempt("a", 20_500, None)],
            pods: vec![back("web", 24_000), back("node", 13_000), back("found", 9000)],
            ..Recovery::default()
        };
        (recovery, vec![start("web", 9000, &web), start("node", 8000, &node)])
    }

    /// Returns what each pod saves, in ms.
    fn saves(boot: &(Recovery, Vec<Start>), change: &Change) -> Vec<(String, u128, u128)> {
        let it = WhatIf::of(&boot.0, &boot.1, change, at(200_000)).expect("it is known");
        let told = it.savings.iter().map(|it| {
            let Bounds { least, most } = it.saves;
            (it.pod.name.clone().unwrap_or_default(), least.as_millis(), most.as_millis())
        });
        told.collect()
    }

    fn earlier(seconds: u64) -> Change {
        Change::CniReady(Duration::from_secs(seconds))
    }

    #[test]
    fn a_pod_saves_what_the_change_takes_out_of_its_start() {
        let mut boot = boot();
        let name = |name: &str| name.to_owned();
        // The pod `node` came 1 s before, so `web` may have waited for the network for so long.
        let host = Change::HostNetwork(name("default/web"));
        assert_eq!(saves(&boot, &host), [(name("web"), 11_000, 12_000)]);
        assert_eq!(saves(&boot, &Change::HostNetwork(name("node"))), [], "it is there already");
        // The network was ready between 10 s and 21 s: it may have become so just before the second try.
        assert_eq!(saves(&boot, &earlier(6)), [(name("web"), 0, 10_000)]);
        assert_eq!(saves(&boot, &earlier(11)), [(name("web"), 10_000, 10_000)]);
        // No log shows a pull. The network may have waited for that of `node`.
        let images = Change::ImagePresent;
        assert_eq!(saves(&boot, &images), [(name("web"), 0, 11_000), (name("node"), 0, 4000)]);
        let part = |kind, begin, ms| Part { kind, begin, took: Duration::from_millis(ms), waits: None };
        boot.1[1].phases[1].parts =
            vec![part(PartKind::Pull, at(9000), 3000), part(PartKind::Create, at(12_000), 1000)];
        assert_eq!(saves(&boot, &images), [(name("web"), 0, 11_000), (name("node"), 3000, 3000)]);
    }

    #[test]
    fn the_columns_are_of_the_pods_that_are_moved() {
        let (recovery, starts) = boot();
        let it = WhatIf::of(&recovery, &starts, &earlier(11), at(200_000)).expect("it is known");
        let last = it.least.last_service.expect("a pod");
        assert_eq!((last.pod.name.as_deref(), last.mark.at), (Some("web"), at(14_000)));
        let unknown: Vec<_> = it.unknown.iter().filter_map(|pod| pod.name.as_deref()).collect();
        assert_eq!(unknown, ["found"]);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        let (recovery, starts) = boot();
        let of = |recovery: &Recovery, change| WhatIf::of(recovery, &starts, &change, at(200_000)).err();
        let host = |pod: &str| Change::HostNetwork(pod.to_owned());
        assert!(of(&recovery, host("found")).is_some() && of(&recovery, host("shop/web")).is_some());
        let silent = Recovery { tries: Vec::new(), ..recovery.clone() };
        assert!(of(&silent, earlier(6)).is_some() && of(&silent, host("web")).is_none());
    }

    fn phases() -> impl Strategy<Value = Vec<(PhaseKind, u64)>> {
        let kinds = [
            PhaseKind::Prepare,
            PhaseKind::Retry,
            PhaseKind::Netns,
            cni(),
            PhaseKind::Between,
            PhaseKind::Pause,
            PhaseKind::Image,
            PhaseKind::Init,
            PhaseKind::Cgroup,
        ];
        prop::collection::vec((prop::sample::select(kinds.to_vec()), 0..9000_u64), 0..9)
    }

    proptest! {
        #[test]
        fn nothing_is_later_or_before_its_beginning(
            of in prop::collection::vec((phases(), 0..30_000_u64, 0..12_000_u64), 1..5),
            tries in prop::collection::vec((0..40_000_u64, any::<bool>()), 0..5),
            change in prop_oneof![
                Just(Change::ImagePresent),
                Just(Change::HostNetwork("pod-0".to_owned())),
                (1..40_u64).prop_map(earlier),
            ],
        ) {
            let names: Vec<String> = (0..of.len()).map(|n| format!("pod-{n}")).collect();
            let starts: Vec<Start> =
                of.iter().zip(&names).map(|((phases, begin, _), name)| start(name, *begin, phases)).collect();
            let pods = of.iter().zip(&names).map(|((_, begin, after), name)| back(name, begin + after));
            let tries = tries.iter().map(|(began, failed)| NetworkAttempt {
                sandbox: id("a"),
                began: at(*began),
                ended: at(began + 100),
                failed: failed.then(|| "flannel".to_owned()),
            });
            let recovery =
                Recovery { pods: pods.collect(), tries: tries.collect(), ..Recovery::default() };
            if let Ok(it) = WhatIf::of(&recovery, &starts, &change, at(200_000)) {
                for saving in &it.savings {
                    prop_assert!(saving.saves.least <= saving.saves.most);
                    let start = starts.iter().find(|it| it.pod.name == saving.pod.name).expect("a start");
                    prop_assert!(saving.back.since(start.begin) >= saving.saves.least);
                }
            }
        }
    }
}
