//! What a recovery means, by numbers alone.

use std::time::Duration;

use super::{
    average::average,
    comparable::{Counted, counted},
    group::groups,
    numbers::{Number, Numbers, Row},
    report::{NoOrder, RecoveryReport, Zero},
    restart::statistics,
    spread::{Rank, spread},
    target::{Outcome, Target},
};
use crate::model::{
    change::End,
    id::{ContainerId, PodUid},
    recovery::{
        BootRead, DaemonEnd, FirstPod, Kind, NetworkAttempt, OpenAttempt, Ordered, Pod, PreviousBoot,
        Recovered, RecoveredPod, Recovery, Restart, RestartClose, Rules, Source, TimedSource, Unseen,
    },
    time::Timestamp,
};

const SECOND: i64 = 1_000_000_000;
/// Whether a number is inexact, and whether those of a row are.
fn is_inexact(number: Option<Number>) -> bool {
    number.is_some_and(|it| it.is_inexact)
}

fn marks(numbers: Numbers) -> ([bool; 4], [bool; 4]) {
    (numbers.columns.map(is_inexact), numbers.periods.map(is_inexact))
}

fn ns(number: Option<Number>) -> Option<i64> {
    number.map(|it| it.ns)
}

fn row(row: Row) -> [Option<i64>; 4] {
    row.map(ns)
}

const WALL: i64 = 1_795_000_000 * SECOND;

/// A boot that was ordered `ordered` ns before it, and whose kubelet started `kubelet` ns after it.
fn boot(ordered: Option<i64>, kubelet: Option<u64>) -> Recovery {
    let ordered = ordered.map(|before| Ordered {
        wall_ns: WALL - before,
        by: "reboot".to_owned(),
        source: Source::Wtmp,
    });
    let before = PreviousBoot { boot_id: Some("a".to_owned()), ordered, ..PreviousBoot::default() };
    let boot = BootRead { boot_wall_ns: WALL, before, ..BootRead::default() };
    let kubelet = kubelet.map(|at| TimedSource { at: Timestamp(at), source: Source::Hook });
    Recovery { boot: Some(boot), kubelet, ..Recovery::default() }
}

fn report(ordered: Option<i64>, kubelet: Option<u64>) -> RecoveryReport {
    RecoveryReport::of(&boot(ordered, kubelet), Timestamp(1))
}

#[test]
fn an_order_counts_if_the_clock_and_the_time_between_allow_it() {
    let of = |before| report(Some(before), None).zero;
    assert!(matches!(of(12 * SECOND), Zero::Order { before_ns, .. } if before_ns == 12 * SECOND));
    // The hardware clock counts seconds, so it is not known how long before the boot the order was.
    assert!(matches!(of(-SECOND), Zero::Order { before_ns: 0, .. }));
    let inexact = |before: i64| {
        let mut recovery = boot(Some(before), Some(1));
        let ordered = recovery.boot.as_mut().and_then(|boot| boot.before.ordered.as_mut());
        ordered.expect("an order").source = Source::Hook;
        marks(RecoveryReport::of(&recovery, Timestamp(1)).numbers)
    };
    let first = [true, false, false, false];
    assert_eq!((inexact(0), inexact(-1)), (([false; 4], [false; 4]), (first, first)));
    assert!(matches!(of(-3 * SECOND), Zero::Kernel(NoOrder::NotComparable(_))));
    assert!(matches!(of(8 * 3600 * SECOND), Zero::Kernel(NoOrder::NotComparable(_))), "it was off overnight");
    assert!(matches!(of(i64::MIN / 2), Zero::Kernel(NoOrder::NotComparable(_))));
    assert_eq!(report(None, None).zero, Zero::Kernel(NoOrder::NotSeen { alive_wall_ns: None }));
    assert_eq!(RecoveryReport::of(&Recovery::default(), Timestamp(9)).zero, Zero::Kernel(NoOrder::NoHistory));
}

/// Measured boots, ms: native, with a connected edge, with a disconnected one.
#[test]
fn the_difference_of_the_means_is_the_mean_period() {
    let of = |columns: [Option<u64>; 4]| {
        let marks = columns.map(|at| Some(TimedSource { at: Timestamp(at?), source: Source::Hook }));
        row(Numbers::of(marks, 0, true).periods)
    };
    for (columns, periods) in [
        ([21_667, 31_318, 37_816, 38_581], [21_667, 9_651, 6_498, 765]),
        ([25_333, 34_921, 47_638, 48_461], [25_333, 9_588, 12_717, 823]),
        ([26_000, 35_952, 49_016, 49_867], [26_000, 9_952, 13_064, 851]),
    ] {
        assert_eq!(of(columns.map(Some)), periods.map(Some));
    }
    assert_eq!(of([Some(1), None, Some(5), Some(4)]), [Some(1), None, None, Some(-1)]);
}

#[test]
fn a_mean_is_of_what_counts_from_the_same() {
    let of = |ordered: Option<i64>, kubelet: u64| report(ordered.map(|it| it * SECOND), Some(kubelet));
    let ordered = [of(Some(10), 4_000_000_001), of(Some(11), 5_000_000_000)];
    let cut = of(None, 1_000_000_000);
    let mean = average(ordered.iter().chain([&cut]));
    assert_eq!((mean.boots, ns(mean.numbers.columns[0])), (2, Some(15_000_000_001)));
    assert_eq!(mean.numbers.whole(), None);
    let mean = average([&cut].into_iter());
    assert_eq!((mean.boots, ns(mean.numbers.columns[0])), (1, Some(1_000_000_000)));
    assert_eq!(average([].into_iter()).boots, 0);
}

fn service(name: &str) -> Pod {
    Pod {
        namespace: Some("default".to_owned()),
        name: Some(name.to_owned()),
        uid: None,
        kind: Kind::Service,
        listens: false,
        interfaces: Vec::new(),
    }
}

/// Two service pods are back; a third one that was there before is missing, unless `is_all`.
fn with_pods(columns: [Option<u64>; 3], is_all: bool) -> RecoveryReport {
    let pod = |name: &str, kind| Pod { kind, ..service(name) };
    let back = |name, kind, at: Option<u64>| {
        let mark = TimedSource { at: Timestamp(at?), source: Source::Hook };
        Some(RecoveredPod { pod: pod(name, kind), mark, listened: None })
    };
    let mut recovery = boot(Some(SECOND), columns[0]);
    let [_, static_pod, first] = columns;
    let last = first.map(|at| at + 100);
    recovery.pods = [
        back("etcd", Kind::Static, static_pod),
        back("a", Kind::Service, first),
        back("b", Kind::Service, last),
    ]
    .into_iter()
    .flatten()
    .collect();
    let before = &mut recovery.boot.as_mut().expect("a boot").before;
    let names: &[&str] = if is_all { &["a", "b"] } else { &["a", "b", "c"] };
    before.pods = Some(names.iter().map(|name| pod(name, Kind::Service)).collect());
    if let Some(order) = &mut before.ordered {
        order.source = Source::Hook;
    }
    recovery.quiet = Duration::from_secs(60);
    RecoveryReport::of(&recovery, Timestamp(1_000))
}

/// Boots can lack a column: the node had no static pods then, or no agent reported its kubelet.
#[test]
fn a_difference_is_of_the_boots_that_have_both_columns() {
    let whole = with_pods([Some(100), Some(200), Some(300)], true);
    let bare = with_pods([Some(700), None, Some(900)], true);
    let mean = average([&whole, &bare].into_iter());
    let of = |columns: [i64; 4]| columns.map(Some);
    let from = |at: i64| SECOND + at;
    assert_eq!(row(mean.numbers.columns), of([from(400), from(200), from(600), from(700)]));
    // The difference of these means would be -200.
    assert_eq!(row(mean.numbers.periods), of([from(400), 100, 100, 100]));
    assert_eq!(ns(mean.numbers.whole()), Some(from(700)));
}

#[test]
fn the_last_pod_so_far_is_in_no_mean() {
    let whole = with_pods([Some(100), Some(200), Some(300)], true);
    let open = with_pods([Some(300), Some(400), Some(500)], false);
    assert!(open.numbers.whole().is_some() && !open.is_closed());
    let mean = average([&whole, &open].into_iter());
    let numbers = mean.numbers;
    assert_eq!((mean.boots, ns(numbers.columns[2])), (2, Some(SECOND + 400)));
    assert_eq!((ns(numbers.periods[3]), numbers.whole()), (Some(100), whole.numbers.whole()));
    let alone = average([&open].into_iter()).numbers;
    assert_eq!((alone.whole(), alone.periods[3]), (None, None));
    let mut inexact = open.numbers;
    inexact.columns[3].as_mut().expect("a last pod").is_inexact = true;
    inexact.periods[3].as_mut().expect("a last pod").is_inexact = true;
    let open = RecoveryReport { numbers: inexact, ..open };
    assert_eq!(marks(average([&whole, &open].into_iter()).numbers), ([false; 4], [false; 4]));
}

/// The order that ended the last seen boot does not count for this boot if other boots were in between.
#[test]
fn an_order_from_before_a_boot_in_between_does_not_count() {
    let ordered = |seconds: i64| {
        Some(Ordered { wall_ns: WALL - seconds * SECOND, by: "reboot".to_owned(), source: Source::Journal })
    };
    let unseen = Some(Unseen { boots: 1, last_wall_ns: WALL - 100 * SECOND, source: Source::Journal });
    let of = |known: i64, others, written: Option<i64>| {
        let before = PreviousBoot {
            boot_id: Some("a".to_owned()),
            ordered: ordered(known),
            ..PreviousBoot::default()
        };
        let before = before.followed_by(others).or_ordered(|| written.and_then(ordered));
        (before.ordered.map(|it| (WALL - it.wall_ns) / SECOND), before.unseen)
    };
    assert_eq!(of(300, None, Some(9)), (Some(300), None));
    assert_eq!(of(300, unseen, None), (None, unseen));
    assert_eq!(of(300, unseen, Some(301)), (None, unseen));
    assert_eq!(of(300, unseen, Some(9)), (Some(9), unseen));
}

#[test]
fn a_number_is_as_exact_as_what_it_is_made_of() {
    let (hook, proc, file) = (Some(Source::Hook), Some(Source::ProcStart), Some(Source::FileTime));
    let of = |is_zero_exact, sources: [Option<Source>; 4]| {
        let of_source = |source: Option<Source>| Some(TimedSource { at: Timestamp(1), source: source? });
        marks(Numbers::of(sources.map(of_source), 0, is_zero_exact))
    };
    assert_eq!(of(true, [hook; 4]), ([false; 4], [false; 4]));
    let late = of(true, [proc, hook, hook, file]);
    assert_eq!(late, ([true, false, false, true], [true, true, false, true]));
    let logged = of(false, [hook, None, hook, hook]);
    assert_eq!(logged, ([true, false, true, true], [true, false, false, false]));

    let inexact = report(Some(SECOND), Some(1));
    let mut numbers = inexact.numbers;
    numbers.columns.iter_mut().chain(&mut numbers.periods).flatten().for_each(|it| it.is_inexact = false);
    let exact = RecoveryReport { numbers, ..inexact.clone() };
    assert_eq!(average([&exact].into_iter()).numbers, numbers);
    assert_eq!(marks(average([&exact, &inexact].into_iter()).numbers), marks(inexact.numbers));
}

/// A restart that was ready `ready` ns after its end, as this source says, and whose first pod started then.
fn restart(ready: u64, source: Source, has_pod: bool) -> Restart {
    let first_pod = FirstPod { pod: service("a"), at: Timestamp(ready + 100) };
    Restart {
        comm: "containerd".to_owned(),
        ended: Some(DaemonEnd { at: Timestamp::ZERO, end: End::default(), told: None }),
        started: Some(TimedSource::hooked(Timestamp(1))),
        answers: Some(TimedSource { at: Timestamp(ready), source }),
        first_pod: has_pod.then_some(first_pod),
        close: Some(RestartClose::AsBefore),
        ..Restart::default()
    }
}

/// The restart that is not exact started no pod, so it is in the mean of no period from or to a pod.
#[test]
fn a_mean_over_restarts_has_the_mark_only_if_a_number_in_it_has() {
    let exact = restart(1_000, Source::Hook, true);
    let of = |other: &Restart| {
        let all = statistics([&exact, other].into_iter());
        assert_eq!((all.len(), all[0].average.boots), (1, 2));
        marks(all[0].average.numbers)
    };
    let columns = [false, true, false, true];
    assert_eq!(of(&restart(2_000, Source::Cri, false)), (columns, [false, true, false, false]));
    assert_eq!(of(&restart(2_000, Source::Cri, true)), (columns, [false, true, true, true]));
    assert_eq!(of(&restart(2_000, Source::Hook, true)), ([false; 4], [false; 4]));
}

#[test]
fn a_pod_is_what_its_uid_and_its_namespace_make_it() {
    let rules = Rules::default();
    let (hash, uid) = ("0123456789abcdef0123456789abcdef", "11111111-2222-3333-4444-555555555555");
    let kind = |namespace: Option<&str>, uid: Option<&str>| {
        Pod::kind_of(namespace, uid.and_then(PodUid::parse).as_ref(), &rules)
    };
    assert_eq!(kind(Some("kube-system"), Some(hash)), Kind::Static);
    assert_eq!(kind(Some("kube-system"), Some(uid)), Kind::System);
    assert_eq!(kind(Some("default"), Some(hash)), Kind::Static);
    assert_eq!(kind(Some("default"), Some(uid)), Kind::Service);
    assert_eq!(kind(None, None), Kind::Service);
}

/// Ten boots whose kubelets started after 1 to 10 s.
#[test]
fn a_rank_is_the_number_of_a_boot() {
    let reports: Vec<RecoveryReport> =
        [3, 1, 10, 2, 5, 4, 9, 7, 6, 8].map(|n| report(Some(10 * SECOND), Some(n * 1_000_000_000))).into();
    let ranks = |count: usize| {
        let all = spread(reports.iter().take(count));
        all.iter().map(|(_, it)| it.columns[0].map(|it| it.ns / SECOND - 10)).collect::<Vec<_>>()
    };
    assert_eq!(ranks(10), [1, 5, 9, 10].map(Some));
    assert_eq!(ranks(3), [1, 3, 10, 10].map(Some));
    assert_eq!(ranks(1), [Some(3); 4]);
    assert_eq!(spread([].into_iter()), []);
    // No boot has a pod, so that there is no number either.
    assert!(spread(reports.iter()).iter().all(|(_, it)| it.columns[1..] == [None; 3]));
}

#[test]
fn each_rank_stands_by_itself() {
    let one = with_pods([Some(100), Some(200), Some(300)], true);
    let other = with_pods([Some(50), Some(250), Some(900)], true);
    let all = spread([&one, &other].into_iter());
    let [(Rank::Min, min), .., (Rank::Max, max)] = &all[..] else { panic!("{all:?}") };
    let from = |at: i64| Some(SECOND + at);
    assert_eq!(row(min.columns), [from(50), from(200), from(300), from(400)]);
    assert_eq!(row(max.columns), [from(100), from(250), from(900), from(1000)]);
    assert_eq!(row(min.periods), [from(50), Some(100), Some(100), Some(100)]);
    let mut numbers = one.numbers;
    for number in numbers.columns.iter_mut().take(1).chain(numbers.periods.iter_mut().take(2)).flatten() {
        number.is_inexact = true;
    }
    let all = spread([&RecoveryReport { numbers, ..one }, &other].into_iter());
    assert_eq!(marks(all[0].1), ([false; 4], [false, true, false, false]));
    assert_eq!(marks(all[3].1), ([true, false, false, false], [true, false, false, false]));
}

#[test]
fn a_boot_counts_in_part_or_not_at_all() {
    let whole = with_pods([Some(100), Some(200), Some(300)], true);
    let open = with_pods([Some(300), Some(400), Some(500)], false);
    let truncated = RecoveryReport { is_truncated: true, ..whole.clone() };
    let cut = RecoveryReport { zero: Zero::Kernel(NoOrder::NoHistory), ..whole.clone() };
    let listening = RecoveryReport { recovered: Recovered::Listening, ..whole.clone() };
    let all = [&listening, &open, &cut, &truncated, &whole];
    let expected =
        [Counted::OtherRule, Counted::NotComplete, Counted::OrderUnknown, Counted::Truncated, Counted::Whole];
    assert_eq!(counted(all.into_iter()), expected);
    let spread = spread(all.into_iter());
    assert_eq!(spread.iter().map(|(_, it)| it.whole()).collect::<Vec<_>>(), [whole.numbers.whole(); 4]);
    assert_eq!(spread[3].1.columns[0], open.numbers.columns[0]);
    assert_eq!(average(all.into_iter()).boots, 3);
    // They count if no order is known, or if the last boot has the other rule.
    assert_eq!(counted([&cut, &cut].into_iter()), [Counted::Whole; 2]);
    assert_eq!(counted([&whole, &listening].into_iter()), [Counted::OtherRule, Counted::Whole]);
}

#[test]
fn groups_are_compared_with_the_first_one() {
    let boot = |columns: [u64; 3]| with_pods(columns.map(Some), true);
    let native = [boot([100, 200, 300]), boot([300, 400, 500])];
    let edge = [boot([400, 400, 900])];
    let unnamed = boot([150, 250, 350]);
    let boots = [
        (Some("native"), &native[0]),
        (Some("edge"), &edge[0]),
        (None, &unnamed),
        (Some("native"), &native[1]),
    ];
    let groups = groups(boots.into_iter());
    let names: Vec<_> = groups.iter().map(|it| (it.name, it.average.boots)).collect();
    assert_eq!(names, [(Some("native"), 2), (Some("edge"), 1), (None, 1)]);
    assert_eq!(groups[0].difference, None);
    let from = |at: i64| Some(SECOND + at);
    assert_eq!(row(groups[0].average.numbers.columns), [from(200), from(300), from(400), from(500)]);
    let edge = groups[1].difference.as_ref().expect("a difference");
    assert_eq!(row(edge.columns), [200, 100, 500, 500].map(Some));
    assert_eq!(row(edge.periods), [200, -100, 400, 0].map(Some));
    let unnamed = groups[2].difference.as_ref().expect("a difference");
    assert_eq!(row(unnamed.columns), [-50; 4].map(Some));
}

/// Otherwise the difference of two means would show which orders or columns the boots lack.
#[test]
fn groups_are_of_comparable_boots_alone() {
    let whole = with_pods([Some(100), Some(200), Some(300)], true);
    let cut = RecoveryReport { zero: Zero::Kernel(NoOrder::NoHistory), ..whole.clone() };
    let bare = with_pods([Some(700), None, Some(900)], true);
    let boots = [(Some("a"), &whole), (Some("b"), &cut), (Some("c"), &bare)];
    let groups = groups(boots.into_iter());
    assert_eq!(groups.iter().map(|it| it.name).collect::<Vec<_>>(), [Some("a"), Some("c")]);
    let difference = groups[1].difference.as_ref().expect("a difference");
    assert_eq!(row(difference.columns), [Some(600), None, Some(600), Some(600)]);
    assert_eq!(row(difference.periods), [Some(600), None, None, Some(0)]);
}

/// Times in seconds: when each ADD began and ended, and whether it failed.
#[test]
fn time_is_lost_to_adds_that_fail_or_hang_before_the_first_success() {
    let lost = |adds: &[(u64, u64, bool)]| {
        let add = |(n, (began, ended, is_failure)): (usize, &(u64, u64, bool))| NetworkAttempt {
            sandbox: ContainerId::parse(&format!("{n:064x}")).expect("an id"),
            began: Timestamp(began * 1_000_000_000),
            ended: Timestamp(ended * 1_000_000_000),
            failed: is_failure.then(|| "flannel".to_owned()),
        };
        let mut recovery = boot(None, Some(1));
        recovery.tries = adds.iter().enumerate().map(add).collect();
        let cni = RecoveryReport::of(&recovery, Timestamp(100 * 1_000_000_000)).cni;
        (cni.failed, cni.hung, cni.lost.as_secs())
    };
    let cases: [(&[_], _); 7] = [
        (&[(10, 11, false), (10, 30, false)], (0, 0, 0)),
        (&[(10, 11, true), (20, 21, false)], (1, 0, 10)),
        // All wait for the same thing, and one is killed in the end.
        (&[(10, 60, false), (12, 60, false), (13, 70, true)], (0, 3, 50)),
        // The next one finds what the first waits for.
        (&[(10, 130, true), (20, 21, false)], (0, 1, 10)),
        (&[(10, 40, true), (50, 51, true), (60, 61, false)], (2, 0, 50)),
        (&[(10, 40, true)], (1, 0, 90)),
        (&[(10, 19, false)], (0, 0, 0)),
    ];
    for (adds, expected) in cases {
        assert_eq!(lost(adds), expected, "{adds:?}");
    }
}

/// ADDs that are under way count like those that have ended, once they take as long as one that hangs.
#[test]
fn an_add_that_hangs_now_is_lost_time_too() {
    let second = |n: u64| Timestamp(n * 1_000_000_000);
    let mut recovery = boot(None, Some(1));
    let sandbox = ContainerId::parse("a1").expect("an id");
    recovery.trying = vec![OpenAttempt { sandbox: sandbox.clone(), began: second(20) }];
    let lost = |recovery: &Recovery, now| {
        let cni = RecoveryReport::of(recovery, second(now)).cni;
        (cni.hung, cni.lost.as_secs())
    };
    assert_eq!(lost(&recovery, 29), (0, 0));
    assert_eq!(lost(&recovery, 35), (1, 15));
    // Another ADD has succeeded: the node did not wait for what hangs since then.
    recovery.tries = vec![NetworkAttempt { sandbox, began: second(25), ended: second(26), failed: None }];
    assert_eq!(lost(&recovery, 60), (1, 5));
    recovery.trying[0].began = second(30);
    assert_eq!(lost(&recovery, 60), (0, 0));
}

#[test]
fn a_target_is_met_missed_or_it_is_not_known() {
    let order = with_pods([Some(1), None, None], true).zero;
    let cut = Zero::Kernel(NoOrder::NoHistory);
    let of = |zero: &Zero, whole: Option<i64>, is_closed| {
        let target =
            Target::of(Duration::from_secs(30), zero.is_order(), whole.map(|it| it * SECOND), is_closed);
        (target.outcome, target.over.map(|ns| ns / SECOND))
    };
    assert_eq!(of(&order, Some(30), true), (Outcome::Met, Some(0)));
    assert_eq!(of(&order, Some(31), true), (Outcome::Missed, Some(1)));
    assert_eq!(of(&order, Some(29), false), (Outcome::NotComplete, Some(-1)));
    assert_eq!(of(&order, None, false), (Outcome::NotComplete, None));
    // It was too long already.
    assert_eq!(of(&order, Some(31), false), (Outcome::Missed, Some(1)));
    assert_eq!(of(&cut, Some(31), true), (Outcome::Missed, Some(1)));
    assert_eq!(of(&cut, Some(20), true), (Outcome::OrderUnknown, Some(-10)));
}

/// The order was 10 s before the kernel's start.
#[test]
fn a_boot_misses_its_target_if_its_time_is_over_before_any_pod_is_back() {
    let of = |before: &[&str], now: i64| {
        let pod = |name: &&str| Pod {
            namespace: Some("default".to_owned()),
            name: Some((*name).to_owned()),
            uid: None,
            kind: Kind::Service,
            listens: false,
            interfaces: Vec::new(),
        };
        let mut recovery = boot(Some(10 * SECOND), Some(1));
        recovery.target = Some(Duration::from_secs(30));
        let known = recovery.boot.as_mut().expect("a boot");
        known.before.pods = Some(before.iter().map(pod).collect());
        let now = Timestamp(u64::try_from(now * SECOND).expect("a time"));
        RecoveryReport::of(&recovery, now).target.expect("a target").outcome
    };
    assert_eq!([of(&["a"], 20), of(&["a"], 21)], [Outcome::NotComplete, Outcome::Missed]);
    assert_eq!(of(&[], 3600), Outcome::NotComplete, "nothing is waited for");
}

#[test]
fn a_boot_has_the_target_of_its_agent() {
    let target = |target| {
        let recovery = Recovery { target, ..boot(Some(SECOND), Some(1)) };
        RecoveryReport::of(&recovery, Timestamp(1)).target.map(|it| it.span)
    };
    assert_eq!(target(None), None);
    assert_eq!(target(Some(Duration::from_secs(30))), Some(Duration::from_secs(30)));
    assert_eq!(Rules::default().target, Duration::from_secs(300));
}

#[test]
fn the_network_comes_with_the_last_system_pod_before_its_first_success() {
    let pod = |name: &str, kind, interfaces: &[&str], at| RecoveredPod {
        pod: Pod {
            namespace: Some("kube-system".to_owned()),
            name: Some(name.to_owned()),
            uid: None,
            kind,
            listens: false,
            interfaces: interfaces.iter().map(|it| (*it).to_owned()).collect(),
        },
        mark: TimedSource::hooked(Timestamp(at)),
        listened: None,
    };
    let done = NetworkAttempt {
        sandbox: ContainerId::parse(&"a".repeat(64)).expect("an id"),
        began: Timestamp(9),
        ended: Timestamp(10),
        failed: None,
    };
    let mut recovery = Recovery {
        pods: vec![
            pod("etcd", Kind::Static, &[], 9),
            pod("kube-proxy", Kind::System, &[], 4),
            pod("flannel", Kind::System, &[], 5),
            pod("coredns", Kind::System, &["eth0"], 6),
            pod("late", Kind::System, &[], 11),
        ],
        tries: vec![done],
        ..boot(None, None)
    };
    let named = |recovery: &Recovery| RecoveryReport::of(recovery, Timestamp(20)).network_pod?.pod.name;
    assert_eq!(named(&recovery).as_deref(), Some("flannel"));
    recovery.tries.clear();
    assert_eq!(named(&recovery), None, "the network is not known to be ready");
}
