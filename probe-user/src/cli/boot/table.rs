//! The table of restarts: a row for each boot, then the mean, the difference of each column from the one
//! before, and the ranks.

use std::array::from_fn;

use crate::{
    cli::table::aligned,
    engine::boot::report::{NodeBoot, Zero},
    model::recovery::{Grouping, Recovered, Source},
    sink::{
        escape::escaped,
        render::recovery::{
            self, Milestone,
            summary::{self, TableRow},
        },
    },
};

pub(super) const CELLS: usize = 11;
const HEADINGS: [&str; CELLS] = [
    "BOOT (UTC)",
    "KERNEL",
    "KUBELET",
    "STATIC POD",
    "FIRST SERVICE",
    "LAST SERVICE",
    "1",
    "2",
    "3",
    "4",
    "WHOLE",
];
const CAPTION: &str =
    "ms from the order of the restart (* from the kernel's start, ~ not exact), and the periods between, s";

pub(super) fn text(boots: &[NodeBoot<'_>], grouping: Option<&Grouping>, verbose: bool) -> String {
    let listening = boots.iter().any(|boot| boot.report.recovered == Recovered::Listening);
    let missed = boots.iter().any(|boot| recovery::has_missed(boot.report));
    let captions = [(listening, "; + to when pods first listened"), (missed, "; ! later than the target")];
    let caption: String = captions.into_iter().filter_map(|(is_so, text)| is_so.then_some(text)).collect();
    let rows = summary::table(boots, grouping);
    let mut text = table(&format!("{CAPTION}{caption}"), HEADINGS, rows, &summary::notes(boots));
    for boot in boots {
        text += &section(&title(boot), &recovery::notes(boot));
        if verbose {
            let listed =
                aligned(["MILESTONE", "AFTER BOOT", "STEP", "PRECISION", "SOURCE", ""], &milestones(boot));
            for line in listed.lines() {
                text += &format!("  {line}\n");
            }
        }
    }
    text
}

/// The rows of boots or of restarts below their headings, and notes about all of them.
pub(super) fn table(caption: &str, headings: [&str; CELLS], rows: Vec<TableRow>, notes: &[String]) -> String {
    let cells = rows.into_iter().map(|TableRow { name, about, numbers }| {
        let mut cells = [name, about].into_iter().chain(numbers);
        from_fn(|_| cells.next().unwrap_or_default())
    });
    let table = aligned(headings, &cells.collect::<Vec<_>>());
    let notes: String = notes.iter().map(|note| format!("{}\n", escaped(note))).collect();
    let space = if notes.is_empty() { "" } else { "\n" };
    format!("{caption}\n{table}{space}{notes}")
}

/// The notes about one boot or restart.
pub(super) fn section(title: &str, notes: &[String]) -> String {
    let notes: String = notes.iter().map(|note| format!("  {}\n", escaped(note))).collect();
    format!("\n{}\n{notes}", escaped(title))
}

pub(super) fn title(boot: &NodeBoot<'_>) -> String {
    let id = boot.recovery.boot.as_ref().map(|boot| boot.boot_id.as_str()).unwrap_or_default();
    format!("{} {} {id}", recovery::began(boot.recovery), boot.node).trim_end().to_owned()
}

/// Returns the milestones in the order of their times, after the reboot order, each with the time since the
/// one before.
fn milestones(boot: &NodeBoot<'_>) -> Vec<[String; 6]> {
    let mut last = None;
    let mut rows = Vec::new();
    if let Zero::Order { ordered, before_ns } = &boot.report.zero {
        let at = before_ns.saturating_neg();
        rows.push(milestone("reboot ordered", at, &mut last, ordered.source, ordered.by.clone()));
    }
    for Milestone { name, mark, pod } in recovery::milestones(boot.recovery, boot.report) {
        let at = i64::try_from(mark.at.0).unwrap_or(i64::MAX);
        let pod = pod.map(|pod| format!("{} ({})", recovery::name(pod), recovery::kind(pod)));
        rows.push(milestone(name.title(), at, &mut last, mark.source, pod.unwrap_or_default()));
    }
    rows
}

/// `at`: since boot, ns. `last`: the same of the milestone before.
fn milestone(name: &str, at: i64, last: &mut Option<i64>, source: Source, detail: String) -> [String; 6] {
    let step = last.replace(at).map(|last| recovery::seconds(at.saturating_sub(last))).unwrap_or_default();
    let precision = recovery::precision(source).to_owned();
    let source = recovery::source(source).to_owned();
    [name.to_owned(), recovery::seconds(at), step, precision, source, detail]
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::{
        super::{Row, boots},
        text,
    };
    use crate::{
        model::{
            id::ContainerId,
            recovery::{
                BootRead, Kind, NetworkAttempt, Ordered, Pod, PreviousBoot, RecoveredPod, Recovery, Source,
                TimedSource, Unseen,
            },
            time::Timestamp,
        },
        sink::render::jsonl::boot as json,
    };

    const WALL: i64 = 1_795_237_053_000_000_000;

    fn mark(ms: u64) -> TimedSource {
        TimedSource { at: Timestamp(ms * 1_000_000), source: Source::Hook }
    }

    fn pod(namespace: &str, name: &str, kind: Kind) -> Pod {
        let (namespace, name) = (Some(namespace.to_owned()), Some(name.to_owned()));
        Pod { namespace, name, uid: None, kind, listens: false, interfaces: Vec::new() }
    }

    /// A boot that was ordered 10 s before it began.
    fn boot(id: &str, n: i64, columns: [u64; 4]) -> Row {
        let [kubelet, of_static, first, last] = columns.map(|ms| mark(ms - 10_000));
        let service = |name: &str, mark| RecoveredPod {
            pod: pod("default", name, Kind::Service),
            mark,
            listened: None,
        };
        let pods = vec![
            RecoveredPod {
                pod: pod("kube-system", "etcd-edge", Kind::Static),
                mark: of_static,
                listened: None,
            },
            service("nginx-1", first),
            service("nginx-2", last),
        ];
        let wall = WALL + n * 86_400_000_000_000;
        let before = PreviousBoot {
            boot_id: Some("other".to_owned()),
            ordered: Some(Ordered {
                wall_ns: wall - 10_000_000_000,
                by: "systemctl reboot".to_owned(),
                source: Source::Hook,
            }),
            alive_wall_ns: Some(wall - 7_000_000_000),
            pods: Some(pods.iter().map(|back| back.pod.clone()).collect()),
            pods_left_out: 0,
            unseen: None,
        };
        let recovery = Recovery {
            boot: Some(BootRead {
                boot_id: id.to_owned(),
                kernel: "6.1.0-56".to_owned(),
                boot_wall_ns: wall,
                before,
                ..BootRead::default()
            }),
            quiet: Duration::from_secs(60),
            watched_since: Some(Timestamp(2_000_000_000)),
            runtime: Some(mark(3_250)),
            kubelet: Some(kubelet),
            pods,
            ..Recovery::default()
        };
        Row::new("edge-1".to_owned(), recovery, Timestamp(100_000_000_000))
    }

    fn rows() -> Vec<Row> {
        let mut second = boot("b", 1, [25_333, 34_921, 47_638, 48_461]);
        let id = |digit: &str| ContainerId::parse(&digit.repeat(64)).expect("an id");
        let at = |ms| mark(ms).at;
        second.recovery.tries = vec![
            NetworkAttempt {
                sandbox: id("a"),
                began: at(30_000),
                ended: at(30_100),
                failed: Some("flannel".to_owned()),
            },
            NetworkAttempt {
                sandbox: id("b"),
                began: at(33_000),
                ended: at(33_100),
                failed: Some("flannel".to_owned()),
            },
            NetworkAttempt { sandbox: id("c"), began: at(36_000), ended: at(36_250), failed: None },
        ];
        let mut cut = boot("c", 2, [19_000, 26_000, 33_000, 34_000]);
        let before = &mut cut.recovery.boot.as_mut().expect("a boot").before;
        before.ordered = None;
        if let Some(pods) = &mut before.pods {
            pods.push(pod("default", "nginx-3", Kind::Service));
        }
        // The agent started after everything.
        cut.recovery.watched_since = Some(Timestamp(600_000_000_000));
        cut.recovery.kubelet.as_mut().expect("a kubelet").source = Source::ProcStart;
        cut.recovery.pods.iter_mut().for_each(|back| back.mark.source = Source::FileTime);
        let first = boot("a", 0, [21_667, 31_318, 37_816, 38_581]);
        let now = Timestamp(100_000_000_000);
        [first, second, cut].map(|row| Row::new(row.node, row.recovery, now)).into()
    }

    #[test]
    fn the_table_shows_the_report() {
        assert_eq!(
            text(&boots(&rows()), None, false),
            "\
ms from the order of the restart (* from the kernel's start, ~ not exact), and the periods between, s
BOOT (UTC)             KERNEL    KUBELET  STATIC POD  FIRST SERVICE  LAST SERVICE  1      2      3      4      WHOLE
2026-11-21 04:57:33    6.1.0-56  21667    31318       37816          38581         21.67  9.65   6.50   0.77   38.58
2026-11-22 04:57:33    6.1.0-56  25333    34921       47638          48461         25.33  9.59   12.72  0.82   48.46
2026-11-23 04:57:33 *  6.1.0-56  ~9000    ~16000      ~23000         ~24000        ~9.00  ~7.00  ~7.00  ~1.00  ~24.00
Avg of 2                         23500    33120       42727          43521         23.50  9.62   9.61   0.79   43.52
Diff                             23500    9620        9608           794           -      -      -      -      -
Min                              21667    31318       37816          38581         21.67  9.59   6.50   0.77   38.58
p50                              21667    31318       37816          38581         21.67  9.59   6.50   0.77   38.58
p90                              25333    34921       47638          48461         25.33  9.65   12.72  0.82   48.46
Max                              25333    34921       47638          48461         25.33  9.65   12.72  0.82   48.46

the rows below the boots are of 2 of 3 boots; without 2026-11-23 04:57:33 * (order not known)

2026-11-21 04:57:33 edge-1 a
  ordered by \"systemctl reboot\" 10.000 s before the kernel's start
  all 2 service pods of before are back

2026-11-22 04:57:33 edge-1 b
  ordered by \"systemctl reboot\" 10.000 s before the kernel's start
  CNI: ADD failed 2 times before the first success (flannel): 6.000 s lost
  all 2 service pods of before are back

2026-11-23 04:57:33 edge-1 c
  order not seen (last heartbeat 2026-11-23 04:57:26, 7.000 s before the kernel's start): times count from the kernel's start
  CNI: what failed, and the time that was lost by it, was not seen before the agent began to look 600.000 s after the boot
  the last one by 60 s without another; not back: default/nginx-3
  the agent began to look 600.000 s after the boot: what was before is known from files, if at all
"
        );
    }

    #[test]
    fn each_milestone_says_how_well_it_is_known() {
        let text = text(&boots(&rows()[..1]), None, true);
        let (_, listed) = text.split_once("are back\n").expect("the notes");
        assert_eq!(
            listed,
            "  \
  MILESTONE          AFTER BOOT  STEP      PRECISION  SOURCE
  reboot ordered     -10.000 s             exact      a hook            systemctl reboot
  kernel start       0.000 s     10.000 s  exact      the clock's zero
  runtime started    3.250 s     3.250 s   exact      a hook
  kubelet started    11.667 s    8.417 s   exact      a hook
  first static pod   21.318 s    9.651 s   exact      a hook            kube-system/etcd-edge (static, by its UID)
  first service pod  27.816 s    6.498 s   exact      a hook            default/nginx-1 (service, assumed)
  last service pod   28.581 s    0.765 s   exact      a hook            default/nginx-2 (service, assumed)
"
        );
    }

    #[test]
    fn a_boot_that_missed_its_target_has_a_mark() {
        let mut rows = rows();
        let told = text(&boots(&rows), None, false);
        assert!(!told.contains('!') && !told.contains("target"), "{told}");
        for row in &mut rows {
            let target = Some(Duration::from_secs(40));
            let recovery = Recovery { target, ..row.recovery.clone() };
            *row = Row::new(row.node.clone(), recovery, row.now);
        }
        let told = text(&boots(&rows), None, false);
        let begins = |text: &str| told.lines().any(|line| line.starts_with(text));
        assert!(
            begins("ms from")
                && told.lines().next().is_some_and(|line| line.ends_with("; ! later than the target"))
        );
        assert!(
            begins("2026-11-21 04:57:33    ")
                && begins("2026-11-22 04:57:33 !  ")
                && begins("2026-11-23 04:57:33 *  ")
        );
        assert!(begins("1 of 3 boots met the target of 40.000 s, 1 missed it, not known of 1"), "{told}");
        assert!(begins("  missed the target of 40.000 s by 8.461 s"), "{told}");
        let bytes = json::lines(&boots(&rows), None).expect("JSON");
        let lines: Vec<serde_json::Value> =
            bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
        lines.iter().for_each(|line| check(line, include_str!("../../../../docs/boot.md")));
        let outcomes: Vec<_> = lines[..3].iter().map(|line| &line["boot"]["target"]["outcome"]).collect();
        assert_eq!(outcomes, ["met", "missed", "order_unknown"]);
        assert_eq!(lines[1]["boot"]["target"]["over_ns"], "8461000000");
        let targets = serde_json::json!({ "met": 1, "missed": 1, "not_known": 1 });
        assert_eq!(lines[4]["statistics"]["targets"], targets);
    }

    #[test]
    fn groups_are_compared_with_the_first() {
        let labelled = |id, n, columns, edge: Option<&str>| {
            let mut row = boot(id, n, columns);
            let labels = edge.map(|value| ("edge".to_owned(), value.to_owned()));
            row.recovery.boot.as_mut().expect("a boot").labels = labels.into_iter().collect();
            row
        };
        let rows = [
            labelled("a", 0, [21_667, 31_318, 37_816, 38_581], Some("no")),
            labelled("b", 1, [25_333, 34_921, 47_638, 48_461], Some("con\x1b[2J")),
            labelled("c", 2, [26_000, 35_952, 49_016, 49_867], None),
            labelled("d", 3, [21_669, 31_320, 37_818, 38_583], Some("no")),
        ];
        let grouping = "label:edge".parse().expect("a grouping");
        let told = text(&boots(&rows), Some(&grouping), false);
        let lines: Vec<String> = told
            .lines()
            .skip(6)
            .map_while(|line| {
                (!line.is_empty()).then(|| line.split_whitespace().collect::<Vec<_>>().join(" "))
            })
            .collect();
        let expected = [
            "no: Avg of 2 21668 31319 37817 38582 21.67 9.65 6.50 0.77 38.58",
            "con\\u{1b}[2J: Avg of 1 25333 34921 47638 48461 25.33 9.59 12.72 0.82 48.46",
            "con\\u{1b}[2J: less no 3665 3602 9821 9879 3.67 -0.06 6.22 0.06 9.88",
            "none: Avg of 1 26000 35952 49016 49867 26.00 9.95 13.06 0.85 49.87",
            "none: less no 4332 4633 11199 11285 4.33 0.30 6.57 0.09 11.29",
        ];
        assert_eq!(lines, expected, "{told}");
        assert!(told.contains("the rows below the boots are of 4 of 4 boots\n"), "{told}");
        assert!(told.contains("  with edge=no\n"), "{told}");
        let bytes = json::lines(&boots(&rows), Some(&grouping)).expect("JSON");
        let page = include_str!("../../../../docs/boot.md");
        let groups: Vec<serde_json::Value> = bytes
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .filter(|line: &serde_json::Value| line.get("group").is_some())
            .collect();
        groups.iter().for_each(|group| check(group, page));
        let [no, connected, none] = &groups[..] else { panic!("{groups:#?}") };
        assert_eq!((&no["group"]["by"], &no["group"]["name"]), (&"label:edge".into(), &"no".into()));
        assert_eq!(no["group"]["average"]["boots"], 2);
        assert_eq!(no["group"].get("difference"), None);
        assert_eq!(connected["group"]["difference"]["whole_ns"], "9879000000");
        assert_eq!((none["group"].get("name"), &none["group"]["title"]), (None, &"none".into()));
    }

    #[test]
    fn boots_that_nobody_saw_leave_a_gap() {
        let mut rows = rows();
        let boot = rows[2].recovery.boot.as_mut().expect("a boot");
        let source = Source::Journal;
        boot.before.unseen = Some(Unseen { boots: 2, last_wall_ns: WALL, source });
        let told = text(&boots(&rows), None, false);
        let lines: Vec<&str> = told.lines().collect();
        let numbers: Vec<&str> = lines[4].split_whitespace().collect();
        assert_eq!(numbers[..4], ["2", "boots", "not", "seen"], "{told}");
        assert!(numbers.len() == 13 && numbers[4..].iter().all(|it| *it == "-"), "{told}");
        assert!(lines[5].starts_with("2026-11-23"), "{told}");
        let note =
            "at least 2 boots between the last one that was seen and this one were not seen, by the journal";
        assert!(lines.iter().any(|line| line.trim_start() == note), "{told}");
        // They do not count in the mean.
        assert!(told.contains("Avg of 2 "), "{told}");
        let bytes = json::lines(&boots(&rows[2..]), None).expect("JSON");
        let line = bytes.split(|byte| *byte == b'\n').next().expect("a line");
        let told: serde_json::Value = serde_json::from_slice(line).expect("JSON");
        let unseen = serde_json::json!({ "boots": 2, "source": "journal", "title": "2 boots not seen" });
        assert_eq!(told["boot"]["unseen"], unseen);
    }

    #[test]
    fn what_was_left_out_is_told() {
        let mut row = boot("a", 0, [21_667, 31_318, 37_816, 38_581]);
        assert!(!text(&boots(std::slice::from_ref(&row)), None, false).contains("truncated"));
        let json = |row: &Row| -> serde_json::Value {
            let bytes = json::lines(&boots(std::slice::from_ref(row)), None).expect("JSON");
            serde_json::from_slice(bytes.split(|byte| *byte == b'\n').next().expect("a line")).expect("JSON")
        };
        assert_eq!(json(&row)["boot"].get("truncated"), None);
        (row.recovery.pods_left_out, row.recovery.tries_left_out) = (6, 40);
        let told = text(&boots(std::slice::from_ref(&row)), None, false);
        let note = "truncated: at least 6 more pods were back and 40 CNI calls for more sandboxes were made than are kept of one";
        assert!(told.lines().any(|line| line.trim_start().starts_with(note)), "{told}");
        assert_eq!(json(&row)["boot"]["truncated"], serde_json::json!({ "pods": 6, "cni_calls": 40 }));
        // No pod from before is missing.
        (row.recovery.pods_left_out, row.recovery.tries_left_out) = (0, 0);
        row.recovery.boot.as_mut().expect("a boot").before.pods_left_out = 7;
        let told = text(&boots(std::slice::from_ref(&row)), None, false);
        let note = "truncated: at least 7 more pods were there before the restart than are kept";
        assert!(told.lines().any(|line| line.trim_start().starts_with(note)), "{told}");
        let truncated = serde_json::json!({ "pods": 0, "cni_calls": 0, "pods_before": 7 });
        assert_eq!(json(&row)["boot"]["truncated"], truncated);
    }

    #[test]
    fn no_name_moves_the_cursor() {
        let Row { mut recovery, now, .. } = boot("a", 0, [21_667, 31_318, 37_816, 38_581]);
        recovery.pods[1].pod.name = Some("web\x1b[2J".to_owned());
        let boot = recovery.boot.as_mut().expect("a boot");
        boot.kernel = "6\x1b[2J".to_owned();
        boot.before.ordered.as_mut().expect("an order").by = "reboot \x1b[2J\r".to_owned();
        boot.before.pods = None;
        let told = text(&boots(&[Row::new("edge\x1b[2J".to_owned(), recovery, now)]), None, true);
        assert!(told.contains("web\\u{1b}[2J") && told.contains("reboot \\u{1b}"), "{told}");
        assert!(!told.contains(|c: char| c.is_control() && c != '\n'), "{told}");
    }

    #[test]
    fn json_has_a_line_for_each_boot_and_one_for_the_mean() {
        let bytes = json::lines(&boots(&rows()), None).expect("JSON");
        let lines: Vec<serde_json::Value> =
            bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
        assert_eq!(lines.len(), 5);
        let (first, cut) = (&lines[1]["boot"], &lines[2]["boot"]);
        assert_eq!(first["cni"]["lost_ns"], "6000000000");
        assert_eq!(first["whole_ns"], "48461000000");
        assert_eq!(first["order"]["before_boot_ns"], "10000000000");
        assert_eq!((&cut["zero"], &cut["no_order"]), (&"kernel".into(), &"not_seen".into()));
        assert_eq!((&cut["close"], &cut["missing"][0]), (&"quiet".into(), &"default/nginx-3".into()));
        assert_eq!(lines[3]["average"]["periods"]["fourth_ns"], "794000000");
        for exact in [first, &lines[3]["average"]] {
            assert_eq!(exact["inexact"].as_array().map(Vec::len), Some(0), "{exact:#}");
        }
        assert_eq!(cut["inexact"].as_array().map(Vec::len), Some(8), "{cut:#}");
        assert_eq!(cut["cni"]["unseen_until_ns"], "600000000000");
        let statistics = &lines[4]["statistics"];
        let ranks = statistics["ranks"].as_array().expect("ranks");
        let whole: Vec<_> = ranks.iter().map(|it| (&it["rank"], &it["whole_ns"])).collect();
        let (least, most) = ("38581000000".into(), "48461000000".into());
        let names = ["min", "p50", "p90", "max"].map(serde_json::Value::from);
        assert_eq!(whole, names.iter().zip([&least, &least, &most, &most]).collect::<Vec<_>>());
        let left_out = serde_json::json!([{ "boot_id": "c", "why": "order_unknown",
            "title": "2026-11-23 04:57:33 *: order not known" }]);
        assert_eq!((&statistics["boots"], &statistics["left_out"]), (&2.into(), &left_out));
    }

    /// `docs/boot.md` shows this table, and has every member's name in backquotes.
    #[test]
    fn the_page_shows_what_is_written() {
        let page = include_str!("../../../../docs/boot.md");
        let told = text(&boots(&rows()), None, false);
        let (table, _) = told.split_once("\n\n2026").expect("a table");
        assert!(page.contains(table), "{table}");
        let bytes = json::lines(&boots(&rows()), None).expect("JSON");
        for line in String::from_utf8(bytes).expect("text").lines() {
            check(&serde_json::from_str(line).expect("JSON"), page);
        }
    }

    pub(in crate::cli::boot) fn check(value: &serde_json::Value, page: &str) {
        for (name, value) in value.as_object().into_iter().flatten() {
            let is_there = page.contains(&format!("`{name}`")) || page.contains(&format!("\"{name}\":"));
            assert!(is_there, "{name}");
            check(value, page);
        }
        value.as_array().into_iter().flatten().for_each(|value| check(value, page));
    }
}
