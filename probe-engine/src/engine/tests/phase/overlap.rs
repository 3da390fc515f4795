//! A phase's causes existed while the phase lasted, whatever else happens on the node.

use std::time::Duration;

use probe_common::id::CgroupKey;
use proptest::prelude::*;

use super::{FAILED, MINUTE, add, begin, container, pause, play};
use crate::{
    engine::tests::story::{DAEMON, POD_NETNS, Story, Who, id, ms},
    model::{
        fact::{CpuUse, Fact, Mechanism, Pressure, PressureRead, Signal},
        phase::{Kind, Phase},
        time::Timestamp,
    },
};

/// Begin and end, ms.
type Span = (u64, u64);

/// The events of one start, and of other pods at the same time.
#[derive(Clone, Debug)]
struct Scene {
    /// Other namespaces: when each is dropped, and how long its teardown takes. None: the teardown does not
    /// end.
    others: Vec<(u64, Option<u64>)>,
    is_end_seen: bool,
    losses: Vec<u64>,
    /// When the pod's cgroup is read, and by how much its throttled time has grown by then.
    readings: Vec<Span>,
    /// A sandbox before this one failed.
    retried: bool,
    /// The successive calls of plugins: which plugin, the pause before the call, its duration, and whether it
    /// fails.
    calls: Vec<(bool, u64, u64, bool)>,
}

/// A call of a plugin in the scene.
struct Call {
    plugin: &'static str,
    span: Span,
    failed: bool,
}

fn scene() -> impl Strategy<Value = Scene> {
    use proptest::collection::vec;
    let others = vec((50_u64..4000, proptest::option::of(1_u64..2000)), 0..6);
    let losses = vec(50_u64..6000, 0..4);
    let readings = vec((101_u64..4500, 0_u64..50), 0..6);
    let calls = vec((any::<bool>(), 1_u64..200, 1_u64..300, any::<bool>()), 1..5);
    (others, any::<bool>(), losses, readings, any::<bool>(), calls).prop_map(
        |(others, is_end_seen, losses, mut readings, retried, calls)| {
            readings.sort_unstable();
            readings.dedup_by_key(|(at, _)| *at);
            Scene { others, is_end_seen, losses, readings, retried, calls }
        },
    )
}

impl Scene {
    /// The story, and the calls of plugins for its sandbox.
    fn story(&self) -> (Story, Vec<Call>) {
        let mut story = Story::new();
        let freed = self.is_end_seen.then_some(Mechanism::RawTracepoint);
        story.at(1).attached(Signal::NetnsFreed, freed);
        for (inode, _) in (POD_NETNS + 10..).zip(&self.others) {
            story.at(10).netns(Who::new(900, 899, "ip"), inode, u64::from(inode));
        }
        for (inode, (at, takes)) in (POD_NETNS + 10..).zip(&self.others) {
            story.at(*at).dropped(inode, u64::from(inode));
            if let Some(takes) = takes {
                story.at(at + takes).freed(inode);
            }
        }
        for at in &self.losses {
            story.at(*at).lost();
        }
        let mut throttled = 0;
        for (at, more) in &self.readings {
            throttled += more;
            let (used, periods) = (Duration::from_millis(1), throttled);
            let cpu = CpuUse { used, throttled: Duration::from_millis(throttled), periods, limit: None };
            let pressure = Pressure { cpu: Some(cpu), ..Pressure::default() };
            let cgroup = CgroupKey::new(0, 20);
            story.at(*at).listed(Fact::PressureRead(PressureRead { cgroup, pressure }));
        }
        begin(&mut story);
        if self.retried {
            story.at(120).netns(DAEMON, POD_NETNS + 1, 6);
            add(&mut story, 'b', 500, "bridge", (130, 180), FAILED);
        }
        story.at(300).netns(DAEMON, POD_NETNS, 7);
        let (mut at, mut calls) = (300, Vec::new());
        for (pid, (is_first, wait, takes, failed)) in (600..).zip(&self.calls) {
            let plugin = if *is_first { "bridge" } else { "portmap" };
            let span = (at + wait, at + wait + takes);
            add(&mut story, 'a', pid, plugin, span, if *failed { FAILED } else { 0 });
            calls.push(Call { plugin, span, failed: *failed });
            at = span.1;
        }
        pause(&mut story, 'a', at + 50, POD_NETNS);
        container(&mut story, 'c', "main", at + 500);
        story.facts.sort_by_key(|seen| seen.at);
        (story, calls)
    }

    /// For how much of a phase another namespace was being torn down. A teardown whose end is not reported
    /// goes on.
    fn taken_apart(&self, phase: &Phase) -> Duration {
        let is_within = |at: &Timestamp| {
            self.others
                .iter()
                .any(|(from, takes)| ms(*from) <= *at && takes.is_none_or(|takes| *at < ms(from + takes)))
        };
        let moments = (phase.begin.0 / 1_000_000..phase.end.0 / 1_000_000).map(ms);
        Duration::from_millis(u64::try_from(moments.filter(is_within).count()).expect("few"))
    }
}

fn touches(phase: &Phase, (from, to): Span) -> bool {
    ms(from) <= phase.end && ms(to) >= phase.begin
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_blamed_overlaps_in_time_with_what_it_explains(scene in scene()) {
        let (story, calls) = scene.story();
        let starts = play(&story, MINUTE).starts();
        let start = starts.iter().find(|start| start.sandbox == id('a')).expect("a start");
        for phase in &start.phases {
            let cause = &phase.cause;
            prop_assert!(cause.teardown <= scene.taken_apart(phase), "{phase:#?}");
            let lost = scene.losses.iter().any(|at| touches(phase, (at.saturating_sub(1000), *at)));
            prop_assert_eq!(phase.gapped, lost, "{:#?}", phase);
            let before = [100].into_iter().chain(scene.readings.iter().map(|(at, _)| *at));
            let counted = before.zip(&scene.readings).filter(|(from, (to, _))| touches(phase, (*from, *to)));
            let most: u64 = counted.map(|(_, (_, more))| *more).sum();
            let throttled = phase.pressure.cpu.map_or(Duration::ZERO, |cpu| cpu.throttled);
            prop_assert!(throttled <= Duration::from_millis(most), "{phase:#?}");
            match &phase.kind {
                Kind::Retry => {
                    prop_assert_eq!((cause.sandboxes, cause.adds, cause.failed), (1, 1, 1));
                    prop_assert!(scene.retried && touches(phase, (130, 180)), "{phase:#?}");
                }
                Kind::Cni { plugin, .. } => {
                    // Everything that the plugin did counts, even while the time belonged to another phase.
                    let own = || calls.iter().filter(|it| it.plugin == plugin);
                    let is_nested = phase.begin == phase.end;
                    prop_assert!(is_nested || own().any(|it| touches(phase, it.span)), "{phase:#?}");
                    let took = |it: &Call| Duration::from_millis(it.span.1 - it.span.0);
                    let failed = || own().filter(|it| it.failed);
                    prop_assert!(usize::try_from(cause.adds).expect("few") <= own().count(), "{phase:#?}");
                    prop_assert!(usize::try_from(cause.failed).expect("few") <= failed().count(), "{phase:#?}");
                    prop_assert!(cause.wasted <= failed().map(took).sum(), "{phase:#?}");
                    prop_assert!(cause.took <= own().map(took).sum(), "{phase:#?}");
                }
                Kind::Prepare
                | Kind::Netns
                | Kind::Between
                | Kind::Pause
                | Kind::Image
                | Kind::Runtime
                | Kind::Cgroup
                | Kind::PostStart
                | Kind::Init
                | Kind::Listening => {
                    prop_assert_eq!((cause.adds, cause.failed, cause.wasted), (0, 0, Duration::ZERO));
                }
            }
        }
    }
}
