//! The comparison of synthetic recordings.

use std::{collections::BTreeMap, path::PathBuf};

use super::{
    About, Diff, Summary, json,
    recorded::{Found, Orders, Pod, Recorded},
    row::{Limits, Row, Verdict, rows},
};
use crate::{
    cli::args::Form,
    engine::Settings,
    model::{finding::Severity, phase::Kind},
    recording::Header,
};

const LIMITS: Limits = Limits { percent: 10, pods: 10, rows: 1 };

/// A node of 20 pods with a sandbox each. Their starts take between 1.0 and 1.2 s.
fn healthy() -> Recorded {
    let orders = Orders { started: 1, sandboxes: 1, adds: 1, ..Orders::default() };
    let pod = Pod { orders, ..Pod::default() };
    let mut it = Recorded {
        header: Header {
            made_by: "0.1.0".to_owned(),
            node: "edge-1".to_owned(),
            boot_id: "b".to_owned(),
            kernel: "6.12.1".to_owned(),
            boot_wall_ns: 0,
            settings: Settings::default(),
        },
        starts: Vec::new(),
        pods: vec![pod; 20],
        findings: BTreeMap::new(),
        released: vec![1.0; 20],
        cut_off: None,
        gaps: 0,
    };
    it.take(20, 0.0, 0.0);
    it
}

impl Recorded {
    /// Gives it starts. `prepare` and `pause` are the seconds that these phases take more than in a healthy
    /// one.
    fn take(&mut self, starts: u32, prepare: f64, pause: f64) {
        let spread: Vec<f64> = (0..starts).map(|n| 0.2 * f64::from(n) / 20.0).collect();
        let phase = |base: f64| spread.iter().map(|it| base + it / 2.0).collect();
        self.starts = vec![
            (Some(Kind::Prepare), phase(0.999 + prepare)),
            (Some(Kind::Pause), phase(0.001 + pause)),
            (None, spread.iter().map(|it| 1.0 + prepare + pause + it).collect()),
        ];
    }
}

fn verdict(rows: &[Row], name: &str) -> Verdict {
    rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no {name}: {rows:?}")).verdict
}

fn worse(a: &Recorded, b: &Recorded) -> Vec<String> {
    let rows = rows(a, b, LIMITS);
    rows.into_iter().filter(|row| row.verdict.is_worse()).map(|row| row.name).collect()
}

#[test]
fn a_recording_is_the_same_as_itself() {
    let it = healthy();
    let rows = rows(&it, &it, LIMITS);
    assert_eq!(rows.len(), 9);
    assert!(rows.iter().all(|row| row.verdict == Verdict::Same && row.difference == Some(0.0)), "{rows:?}");
}

#[test]
fn a_phase_that_delays_the_start_by_more_than_the_limit_is_worse() {
    let before = healthy();
    let mut slower = healthy();
    slower.take(20, 0.3, 0.0);
    assert_eq!(worse(&before, &slower), ["prepare", "whole start"]);
    let back = rows(&slower, &before, LIMITS);
    assert_eq!([verdict(&back, "prepare"), verdict(&back, "pause")], [Verdict::Better, Verdict::Same]);
    // It takes 200 times as long, and the start hardly longer.
    let mut little = healthy();
    little.take(20, 0.0, 0.09);
    let rows = rows(&before, &little, LIMITS);
    assert_eq!(verdict(&rows, "pause"), Verdict::WithinLimit);
    assert_eq!(worse(&before, &little), [""; 0]);
}

#[test]
fn too_few_starts_tell_nothing() {
    let before = healthy();
    let mut slower = healthy();
    slower.take(9, 5.0, 0.0);
    let rows = rows(&before, &slower, LIMITS);
    for name in ["prepare", "pause", "whole start"] {
        assert_eq!(verdict(&rows, name), Verdict::TooFew);
    }
    assert_eq!(worse(&before, &slower), [""; 0]);
}

/// Every other pod has a second sandbox, which is not released.
fn with_second_sandboxes() -> Recorded {
    let mut second = healthy();
    for pod in second.pods.iter_mut().step_by(2) {
        pod.orders = Orders { sandboxes: 2, adds: 2, ..pod.orders };
        pod.findings.insert("duplicate_sandbox", 1);
    }
    second.released.extend([0.0; 10]);
    let found = Found { count: 10, others: 0, worst: Severity::Warning };
    second.findings.insert("duplicate_sandbox", found);
    second
}

#[test]
fn the_second_sandbox_is_worse_and_its_repair_is_better() {
    let before = healthy();
    let second = with_second_sandboxes();
    let expected = ["sandboxes / pod", "ADDs / pod", "releases / ADD", "duplicate_sandbox"];
    assert_eq!(worse(&before, &second), expected);
    let repaired = rows(&second, &before, LIMITS);
    assert!(expected.iter().all(|name| verdict(&repaired, name) == Verdict::Better), "{repaired:?}");
    assert_eq!(verdict(&rows(&second, &second, LIMITS), "duplicate_sandbox"), Verdict::Same);
}

#[test]
fn a_finding_that_needs_nobody_is_not_judged_and_one_of_the_node_only_if_it_is_new() {
    let before = healthy();
    let mut after = healthy();
    after.findings.insert("abandoned_store", of_node(1, Severity::Info));
    after.findings.insert("cni_failing", of_node(1, Severity::Warning));
    let rows = rows(&before, &after, LIMITS);
    assert_eq!(verdict(&rows, "abandoned_store"), Verdict::NotJudged);
    assert_eq!(verdict(&rows, "cni_failing"), Verdict::New);
    assert_eq!(worse(&after, &after), [""; 0]);
}

fn of_node(count: usize, worst: Severity) -> Found {
    Found { count, others: count, worst }
}

#[test]
fn a_leak_of_before_the_recording_does_not_hide_those_of_pods() {
    for (a, b, expected) in [
        ((0, 1), (15, 1), Verdict::Worse),
        ((15, 1), (0, 1), Verdict::Better),
        ((1, 1), (1, 1), Verdict::Same),
        // Without pods they are only counted.
        ((0, 10), (0, 9), Verdict::Better),
        ((0, 10), (0, 10), Verdict::Same),
        ((0, 10), (0, 11), Verdict::WithinLimit),
        ((0, 10), (0, 12), Verdict::Worse),
        ((1, 10), (1, 12), Verdict::Worse),
        // The leaks of pods were joined.
        ((15, 0), (0, 15), Verdict::Better),
        // Leaks from before the recordings are in no number.
        ((0, 0), (0, 0), Verdict::Same),
    ] {
        let rows = rows(&with_leaks(a), &with_leaks(b), LIMITS);
        assert_eq!(verdict(&rows, "leaked_address"), expected, "{a:?} {b:?}");
    }
}

/// The first ones are of a pod each.
fn with_leaks((of_pods, others): (usize, usize)) -> Recorded {
    let mut it = healthy();
    for pod in &mut it.pods[..of_pods] {
        pod.findings.insert("leaked_address", 1);
    }
    let found = Found { count: of_pods + others, others, worst: Severity::Warning };
    it.findings.insert("leaked_address", found);
    it
}

#[test]
fn a_more_severe_finding_is_new() {
    let (mut a, mut b) = (healthy(), healthy());
    for (before, after) in [(Severity::Info, Severity::Warning), (Severity::Warning, Severity::Critical)] {
        a.findings.insert("pool_exhaustion", of_node(1, before));
        b.findings.insert("pool_exhaustion", of_node(1, after));
        assert_eq!(worse(&a, &b), ["pool_exhaustion"]);
        assert_eq!(worse(&b, &a), [""; 0]);
    }
}

#[test]
fn pods_that_do_not_start_are_worse() {
    let before = healthy();
    let mut after = healthy();
    after.take(0, 0.0, 0.0);
    after.pods.iter_mut().step_by(2).for_each(|pod| pod.orders.started = 0);
    assert_eq!(worse(&before, &after), ["started / pod"]);
    assert_eq!(verdict(&rows(&after, &before, LIMITS), "started / pod"), Verdict::Better);
}

#[test]
fn a_finding_that_a_may_have_missed_is_not_new() {
    let partial: [fn(&mut Recorded); 3] =
        [|it| it.gaps = 1, |it| it.cut_off = Some("cut".to_owned()), |it| it.pods.truncate(9)];
    for make_partial in partial {
        let mut before = healthy();
        make_partial(&mut before);
        let after = with_second_sandboxes();
        assert_eq!(verdict(&rows(&before, &after, LIMITS), "duplicate_sandbox"), Verdict::Unknown);
        // It is there, whatever B has missed.
        let mut after = after;
        make_partial(&mut after);
        assert_eq!(verdict(&rows(&healthy(), &after, LIMITS), "duplicate_sandbox"), Verdict::New);
    }
}

#[test]
fn a_recording_that_missed_something_makes_no_start_and_no_order_worse() {
    let partial: [fn(&mut Recorded); 2] = [|it| it.gaps = 1, |it| it.cut_off = Some("cut".to_owned())];
    for make_partial in partial {
        for is_a in [true, false] {
            let mut before = healthy();
            let mut after = with_second_sandboxes();
            after.take(20, 0.3, 0.0);
            after.findings.clear();
            make_partial(if is_a { &mut before } else { &mut after });
            let rows = rows(&before, &after, LIMITS);
            for name in ["prepare", "whole start", "sandboxes / pod", "ADDs / pod", "releases / ADD"] {
                assert_eq!(verdict(&rows, name), Verdict::Unknown, "{name}");
            }
            assert!(rows.iter().all(|row| !row.verdict.is_worse()), "{rows:?}");
        }
    }
}

#[test]
fn each_verdict_is_documented_with_its_word_in_json() {
    let docs = include_str!("../../../../docs/commands.md");
    for it in [
        Verdict::Worse,
        Verdict::New,
        Verdict::WithinLimit,
        Verdict::Same,
        Verdict::Better,
        Verdict::TooFew,
        Verdict::Unknown,
        Verdict::NotJudged,
    ] {
        let json = serde_json::to_value(it).expect("JSON");
        let row = format!("\n| `{}` | `{}` | ", it.word(), json.as_str().expect("a word"));
        assert!(docs.contains(&row), "{row}");
    }
}

/// The example of the docs.
#[test]
fn the_table_is_in_the_docs() {
    let [before, after] = ["before.jsonl", "after.jsonl"].map(PathBuf::from);
    let it = Diff { before, after, limit: 10, min_pods: 10, output: Form::Text };
    let (a, b) = (healthy(), with_second_sandboxes());
    let rows = rows(&a, &b, LIMITS);
    let worse: Vec<&str> =
        rows.iter().filter(|row| row.verdict.is_worse()).map(|row| row.name.as_str()).collect();
    let text = it.text(&a, &b, &rows, &worse);
    let docs = include_str!("../../../../docs/commands.md");
    assert!(
        docs.contains(&format!("```console\n$ sandprobe diff before.jsonl after.jsonl\n{text}```\n")),
        "{text}"
    );
}

#[test]
fn each_row_is_an_object() {
    let it = healthy();
    let rows = rows(&it, &it, LIMITS);
    let bytes = json(
        &rows[..1],
        &Summary {
            of: "verdict",
            verdict: "no_worse",
            worse: Vec::new(),
            limit_percent: 10,
            min_pods: 10,
            a: About::of("a".as_ref(), &it),
            b: About::of("b".as_ref(), &it),
        },
    )
    .expect("JSON");
    let text = String::from_utf8(bytes).expect("text");
    let first = text.lines().next().expect("a row");
    assert!(first.starts_with(r#"{"of":"start","name":"prepare","a":{"count":20,"value":"#), "{first}");
    assert!(first.ends_with(r#""verdict":"same"}"#), "{first}");
    let last = concat!(
        r#"{"of":"verdict","verdict":"no_worse","worse":[],"limit_percent":10,"min_pods":10,"#,
        r#""a":{"file":"a","node":"edge-1","kernel":"6.12.1","boot_id":"b","pods":20},"#,
        r#""b":{"file":"b","node":"edge-1","kernel":"6.12.1","boot_id":"b","pods":20}}"#
    );
    assert_eq!(text.lines().last(), Some(last));
}
