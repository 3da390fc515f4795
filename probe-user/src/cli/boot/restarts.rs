//! The table of the restarts of a runtime or of the kubelet alone: a row for each, then the mean and the
//! ranks of each program.

use super::table::{CELLS, section, table};
use crate::{
    engine::boot::{report::NodeBoot, restart::statistics},
    sink::render::recovery::{self, restart},
};

const HEADINGS: [&str; CELLS] =
    ["RESTART (UTC)", "PROGRAM", "STARTED", "READY", "FIRST POD", "AS BEFORE", "1", "2", "3", "4", "WHOLE"];
const CAPTION: &str = "ms from the end of the program (* from its start, the end was not seen; ~ not exact), and the periods \
                       between, s";

pub(super) fn text(boots: &[NodeBoot<'_>]) -> String {
    let all = restart::all(boots);
    if all.is_empty() {
        return "no restart of a runtime or of the kubelet alone was seen\n".to_owned();
    }
    let statistics = statistics(all.iter().map(|it| it.restart));
    let mut notes: Vec<String> = statistics.iter().filter_map(restart::composition).collect();
    notes.extend(boots.iter().filter_map(left_out));
    let mut text = table(CAPTION, HEADINGS, restart::table(&all), &notes);
    for it in &all {
        let marks: String = restart::marks(it.restart).iter().map(|mark| format!(" ({mark})")).collect();
        let title = format!("{} {} {}{marks}", it.title(), it.boot.node, it.restart.comm);
        text += &section(&title, &restart::notes(it.restart));
    }
    text
}

/// Names the restarts of a boot that are no longer kept.
fn left_out(boot: &NodeBoot<'_>) -> Option<String> {
    let left_out = &boot.recovery.restarts.left_out;
    let each: Vec<String> = left_out.iter().map(|(comm, count)| format!("{count} of {comm}")).collect();
    let began = recovery::began(boot.recovery);
    (!each.is_empty()).then(|| format!("of the boot {began} older ones are not kept: {}", each.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{
        super::{Row, boots, replayed},
        text,
    };
    use crate::{
        model::{
            change::{End, Process},
            id::TaskKey,
            recovery::{
                BootRead, Calls, Daemon, DaemonEnd, FirstPod, HeldPod, Kind, KubeletListens, LessNetwork,
                Pod, Recovery, Restart, RestartClose, Restarts, Source, TimedSource, Told,
            },
            time::Timestamp,
        },
        sink::render::jsonl::boot as json,
    };

    const WALL: i64 = 1_795_237_053_000_000_000;
    const DAY: u64 = 86_400_000;

    fn at(ms: u64) -> Timestamp {
        Timestamp(ms * 1_000_000)
    }

    fn pod(name: &str) -> Pod {
        let (namespace, name) = (Some("default".to_owned()), Some(name.to_owned()));
        Pod { namespace, name, uid: None, kind: Kind::Service, listens: false, interfaces: Vec::new() }
    }

    fn systemd() -> Process {
        Process { key: TaskKey::new(1, 0), parent: TaskKey::default(), comm: "systemd".to_owned() }
    }

    fn ended(ms: u64, code: u32) -> DaemonEnd {
        let end = End { code, ..End::default() };
        DaemonEnd { at: at(ms), end, told: Some(Told { signal: 15, by: systemd() }) }
    }

    /// A runtime that ended at `ms`, started again `started` ms later, and answered over CRI or to a hook
    /// `ready` ms after its end.
    fn runtime(ms: u64, started: u64, ready: u64, source: Source) -> Restart {
        let (comm, was) = ("containerd".to_owned(), "containerd 2.1.4".to_owned());
        Restart {
            is: Some(was.clone()),
            ended: Some(ended(ms, 0)),
            started: Some(TimedSource::hooked(at(ms + started))),
            answers: Some(TimedSource { at: at(ms + ready), source }),
            close: Some(RestartClose::AsBefore),
            comm,
            was,
            ran_since: at(4_000),
            noticed_at: at(ms),
            ..Restart::default()
        }
    }

    /// A boot of a node, `n` days later than the first.
    fn row(node: &str, id: &str, n: i64, restarts: Restarts) -> Row {
        let boot_wall_ns = WALL + n * 86_400_000_000_000;
        let boot = BootRead { boot_id: id.to_owned(), boot_wall_ns, ..BootRead::default() };
        let recovery = Recovery { boot: Some(boot), restarts, ..Recovery::default() };
        Row::new(node.to_owned(), recovery, Timestamp::ZERO)
    }

    fn rows() -> Vec<Row> {
        let upgraded =
            Restart { is: Some("containerd 2.1.5".to_owned()), ..runtime(DAY, 212, 1530, Source::Cri) };
        let killed_at = DAY + 9_000_000;
        let held = |name: &str, replaced, from: u64, took: u64| HeldPod {
            pod: pod(name),
            replaced,
            since: at(killed_at + from),
            until: (took > 0).then(|| at(killed_at + from + took)),
        };
        let end = End { code: 137, signal: Some(9), killer: None, oom: true };
        let killed = Restart {
            ended: Some(DaemonEnd { at: at(killed_at), end, told: None }),
            first_pod: Some(FirstPod { pod: pod("web-2"), at: at(killed_at + 6402) }),
            held: vec![
                held("web-2", false, 0, 6402),
                held("web-7", false, 0, 14_933),
                held("db-0", true, 7000, 2500),
            ],
            calls: Calls { cut_off: 2, killed: 0, failed: 0, hung: 1 },
            less_network: vec![LessNetwork { pod: pod("db-0"), missing: vec!["net1".to_owned()] }],
            ..runtime(killed_at, 5106, 5871, Source::Hook)
        };
        let listens = |port, ms| KubeletListens { port, at: at(2 * DAY + ms) };
        let kubelet = Restart {
            daemon: Daemon::Kubelet,
            comm: "kubelet".to_owned(),
            was: "kubelet".to_owned(),
            is: Some("kubelet".to_owned()),
            ended: Some(DaemonEnd { told: None, ..ended(2 * DAY, 1) }),
            again: 12,
            ended_again: Some(DaemonEnd { told: None, ..ended(2 * DAY + 110_000, 1) }),
            answers: None,
            listens: vec![listens(10_248, 120_944), listens(10_250, 120_902)],
            ..runtime(2 * DAY, 120_121, 0, Source::Hook)
        };
        let unseen = Restart {
            ended: None,
            started: Some(TimedSource { at: at(3 * DAY), source: Source::ProcStart }),
            ..runtime(3 * DAY, 0, 900, Source::Hook)
        };
        let open = Restart {
            started: None,
            answers: None,
            is: None,
            close: None,
            held: vec![HeldPod { until: None, ..held("web-9", false, 0, 0) }],
            held_left_out: 3,
            ..runtime(4 * DAY, 0, 0, Source::Hook)
        };
        let boot = |id: &str, n: i64, restarts| row("edge-1", id, n, restarts);
        // The shutdown ended the runtime of the first boot.
        let down = Restart { daemon: Daemon::Runtime, ..open.clone() };
        let first = Restarts { open: vec![down], ..Restarts::default() };
        let past = vec![upgraded, killed, kubelet, unseen];
        let last = Restarts { open: vec![open], past, left_out: [("kubelet".to_owned(), 3)].into() };
        vec![boot("a", 0, first), boot("b", 5, last)]
    }

    /// docs/boot.md begins its section with the same table.
    #[test]
    fn the_table_has_a_row_for_each_restart_and_those_of_each_program() {
        assert_eq!(
            text(&boots(&rows())),
            "\
ms from the end of the program (* from its start, the end was not seen; ~ not exact), and the periods between, s
RESTART (UTC)          PROGRAM     STARTED  READY   FIRST POD  AS BEFORE  1       2      3     4     WHOLE
2026-11-27 04:57:33    containerd  212      ~1530   -          ~1530      0.21    ~1.32  -     -     ~1.53
2026-11-27 07:27:33    containerd  5106     5871    6402       14933      5.11    0.77   0.53  8.53  14.93
2026-11-28 04:57:33    kubelet     120121   120944  -          120944     120.12  0.82   -     -     120.94
2026-11-29 04:57:33 *  containerd  ~0       ~900    -          ~900       ~0.00   ~0.90  -     -     ~0.90
2026-11-30 04:57:33    containerd  -        -       -          -          -       -      -     -     -
containerd: Avg of 2               2659     ~3701   6402       ~8232      2.66    ~1.04  0.53  8.53  ~8.23
containerd: Min                    212      ~1530   6402       ~1530      0.21    0.77   0.53  8.53  ~1.53
containerd: p50                    212      ~1530   6402       ~1530      0.21    0.77   0.53  8.53  ~1.53
containerd: p90                    5106     5871    6402       14933      5.11    ~1.32  0.53  8.53  14.93
containerd: Max                    5106     5871    6402       14933      5.11    ~1.32  0.53  8.53  14.93

containerd: 2 of 4 restarts count; the others are not complete, or their beginning was not seen
of the boot 2026-11-26 04:57:33 older ones are not kept: 3 of kubelet

2026-11-27 04:57:33 edge-1 containerd
  containerd 2.1.4 ended after 23h59m: exit 0, after SIGTERM from systemd[1]
  with containerd 2.1.5 instead
  as before: no pod waited for it

2026-11-27 07:27:33 edge-1 containerd (less network)
  containerd 2.1.4 ended after 1d02h: killed by SIGKILL (out of memory)
  with containerd 2.1.4 as before
  2 pods waited, the longest 14.933 s (default/web-7)
  1 pod got another sandbox with nothing wrong in the one before, the longest 2.500 s (default/db-0)
  CNI calls: 2 under way when the runtime ended, 1 hung
  came back with less network than before: default/db-0 (without net1)
  as before: no pod waits any more

2026-11-28 04:57:33 edge-1 kubelet
  kubelet ended after 1d23h: exit 1
  it began and ended again 12 times, the last time: exit 1
  with kubelet as before
  as before: no pod waited for it

2026-11-29 04:57:33 * edge-1 containerd (end not seen)
  the end of containerd 2.1.4 was not seen: times count from the start of the new process
  with containerd 2.1.4 as before
  as before: no pod waited for it

2026-11-30 04:57:33 edge-1 containerd (not complete)
  containerd 2.1.4 ended after 3d23h: exit 0, after SIGTERM from systemd[1]
  1 pod waited; not through: default/web-9
  truncated: at least 3 pods waited beside those that are kept
  it has not started again yet
"
        );
        assert_eq!(text(&[]), "no restart of a runtime or of the kubelet alone was seen\n");
        let page = include_str!("../../../../docs/boot.md");
        let shown = page.split("```text\n").skip(1).filter_map(|it| it.split("```").next());
        assert!(
            shown.into_iter().any(|shown| text(&boots(&rows())).starts_with(shown)),
            "not as in docs/boot.md"
        );
    }

    #[test]
    fn one_that_does_not_stay_up_says_so_and_one_that_was_stopped_is_told_after_the_next_boot_too() {
        let down = Restart {
            started: None,
            answers: None,
            is: None,
            close: None,
            ..runtime(DAY, 0, 0, Source::Hook)
        };
        let stopped = Restart { close: Some(RestartClose::Stopped), ..down.clone() };
        let last = Some(DaemonEnd { told: None, ..ended(DAY + 18_720_000, 2) });
        let failing = Restart { again: 4321, ended_again: last, ..down.clone() };
        let open = |it: &Restart| Restarts { open: vec![it.clone()], ..Restarts::default() };
        let past = Restarts { past: vec![stopped], ..Restarts::default() };
        // A daemon that had not started by the end of a boot is reported with the last boot of each node.
        let rows = [
            row("edge-1", "a", 0, open(&down)),
            row("edge-1", "b", 5, past),
            row("edge-1", "c", 9, open(&failing)),
            row("edge-2", "d", 9, open(&down)),
            row("edge-3", "e", 9, Restarts::default()),
        ];
        let told = text(&boots(&rows));
        let (table, notes) = told.split_once("\n\n").expect("notes");
        assert_eq!(table.lines().count(), 2 + 3, "{told}");
        assert_eq!(
            notes,
            "\
containerd: 0 of 3 restarts count; the others are not complete, or their beginning was not seen

2026-11-27 04:57:33 edge-1 containerd (not complete)
  containerd 2.1.4 ended after 23h59m: exit 0, after SIGTERM from systemd[1]
  it did not start again within 30 minutes: it was stopped

2026-12-01 04:57:33 edge-1 containerd (not complete)
  containerd 2.1.4 ended after 23h59m: exit 0, after SIGTERM from systemd[1]
  it began and ended again 4321 times, the last time: exit 2
  it does not stay up: the last of these ended 5h12m after the first

2026-12-01 04:57:33 edge-2 containerd (not complete)
  containerd 2.1.4 ended after 23h59m: exit 0, after SIGTERM from systemd[1]
  it has not started again yet
"
        );
        let notes = |rows: &[Row]| text(&boots(rows)).split("\n\n").nth(1).expect("notes").to_owned();
        let only = "containerd: 0 of 1 restart counts; it is not complete, or its beginning was not seen";
        assert_eq!(notes(&rows[3..]), only);
        let whole = Restarts { past: vec![runtime(DAY, 212, 1530, Source::Cri)], ..Restarts::default() };
        let beside = [row("edge-1", "a", 0, whole), row("edge-2", "d", 9, open(&down))];
        let other = "containerd: 1 of 2 restarts counts; the other one is not complete, or its beginning was not seen";
        assert_eq!(notes(&beside), other);
    }

    /// tests/data/recordings/boots/runtime-restart.jsonl: a containerd without pods that was ended and
    /// started again, and then killed and started again.
    #[test]
    fn a_recorded_restart_gives_its_table_on_any_machine() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../tests/data/recordings/boots/runtime-restart.jsonl");
        let (rows, is_whole) = replayed::rows(&[file]).expect("a recording");
        assert!(is_whole);
        assert_eq!(
            text(&boots(&rows)),
            "\
ms from the end of the program (* from its start, the end was not seen; ~ not exact), and the periods between, s
RESTART (UTC)         PROGRAM     STARTED  READY  FIRST POD  AS BEFORE  1     2      3  4  WHOLE
2026-11-26 05:14:36   containerd  2011     ~3022  -          ~3022      2.01  ~1.01  -  -  ~3.02
2026-11-26 05:15:48   containerd  1009     ~2023  -          ~2023      1.01  ~1.01  -  -  ~2.02
containerd: Avg of 2              1510     ~2522  -          ~2522      1.51  ~1.01  -  -  ~2.52
containerd: Min                   1009     ~2023  -          ~2023      1.01  ~1.01  -  -  ~2.02
containerd: p50                   1009     ~2023  -          ~2023      1.01  ~1.01  -  -  ~2.02
containerd: p90                   2011     ~3022  -          ~3022      2.01  ~1.01  -  -  ~3.02
containerd: Max                   2011     ~3022  -          ~3022      2.01  ~1.01  -  -  ~3.02

2026-11-26 05:14:36 edge-1 containerd
  containerd 1.6.20~ds1-1+deb12u3 ended after 16.04 s: exit 0, after SIGTERM from restart.sh[1676]
  with containerd 1.6.20~ds1-1+deb12u3 as before
  as before: no pod waited for it

2026-11-26 05:15:48 edge-1 containerd
  containerd 1.6.20~ds1-1+deb12u3 ended after 1m10s: killed by SIGKILL from restart.sh[1676]
  with containerd 1.6.20~ds1-1+deb12u3 as before
  as before: no pod waited for it
"
        );
    }

    #[test]
    fn json_has_the_same_numbers() {
        let rows = rows();
        let bytes = json::restart_lines(&boots(&rows)).expect("JSON");
        let lines: Vec<serde_json::Value> = String::from_utf8(bytes)
            .expect("text")
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let [upgraded, killed, kubelet, unseen, open, of_containerd, of_kubelet] = lines.as_slice() else {
            panic!("{lines:#?}");
        };
        let restart = &upgraded["restart"];
        assert_eq!(restart["columns"]["as_before_ns"], "1530000000");
        assert_eq!(
            (&restart["end"]["told_by"]["comm"], &restart["end"]["code"]),
            (&"systemd".into(), &0.into())
        );
        let inexact = serde_json::json!(["ready_ns", "as_before_ns", "second_ns"]);
        assert_eq!(restart["inexact"], inexact);
        let restart = &killed["restart"];
        assert_eq!(
            (&restart["whole_ns"], &restart["first_pod"]),
            (&"14933000000".into(), &"default/web-2".into())
        );
        assert_eq!(restart["pods"][2]["replaced"], true);
        assert_eq!((&restart["calls"]["cut_off"], &restart["end"]["oom"]), (&2.into(), &true.into()));
        assert_eq!(
            (&kubelet["restart"]["again"], &kubelet["restart"]["close"]),
            (&12.into(), &"as_before".into())
        );
        assert_eq!((unseen["restart"].get("end"), open["restart"].get("close")), (None, None));
        assert_eq!(open["restart"]["pods_left_out"], 3);
        let of = &of_containerd["restart_statistics"];
        assert_eq!(
            (&of["program"], &of["restarts"], &of["all"]),
            (&"containerd".into(), &2.into(), &4.into())
        );
        assert_eq!(of["ranks"][3]["whole_ns"], "14933000000");
        assert_eq!(of_kubelet["restart_statistics"]["restarts"], 1);
        let notes = serde_json::json!(["kubelet: 3 restarts before these are not kept"]);
        let of = &of_kubelet["restart_statistics"];
        assert_eq!((&of["left_out"], &of["notes"]), (&3.into(), &notes));
        assert_eq!(of_containerd["restart_statistics"].get("left_out"), None);
        // Not even where none of a program is kept.
        let left_out = [("crio".to_owned(), 9)].into();
        let row = row("edge-1", "a", 0, Restarts { left_out, ..Restarts::default() });
        let line = json::restart_lines(&boots(&[row])).expect("JSON");
        let line: serde_json::Value = serde_json::from_slice(&line).expect("one line");
        assert_eq!(line["restart_statistics"]["program"], "crio");
        assert_eq!(
            (&line["restart_statistics"]["all"], &line["restart_statistics"]["left_out"]),
            (&0.into(), &9.into())
        );
    }
}
