//! The metrics: their reference page, and the metrics of a recording.

mod scrape;

use std::{collections::BTreeSet, fs, path::Path};

use probe_user::sink::metrics::{agent_stats::AgentStats, label::PodLabel, page};
use tests::golden;

/// The heading that ends the written part of the page.
const REFERENCE: &str = "## Reference\n\n";

fn tests() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_reference_is_generated_from_the_registry() {
    let path = tests().join("../docs/metrics.md");
    let page = fs::read_to_string(&path).expect("the page");
    let (words, _) = page.split_once(REFERENCE).expect("the heading of the reference");
    golden::expect(&path, &format!("{words}{REFERENCE}{}", page::reference().trim_end().to_owned() + "\n"));
}

#[test]
fn every_label_of_the_reference_has_its_values_on_the_page() {
    let page = fs::read_to_string(tests().join("../docs/metrics.md")).expect("the page");
    let (words, reference) = page.split_once(REFERENCE).expect("the heading of the reference");
    let (_, values) = words.split_once("\n## Values\n").expect("the table of values");
    let values = values.split("\n## ").next().unwrap_or_default();
    let described: BTreeSet<&str> =
        values.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let rows = reference.lines().filter(|line| line.starts_with("| `"));
    let labels = rows.flat_map(|row| row.split('|').nth(3).unwrap_or_default().split(", "));
    let labels = labels.filter_map(|label| label.trim().strip_prefix('`')?.strip_suffix('`')).collect();
    assert_eq!(described, labels);
}

#[test]
fn a_recording_gives_the_expected_metrics() {
    let recording = tests().join("data/recordings/demo.jsonl");
    let scrape_text = scrape::of(&recording, &[], &AgentStats::default()).expect("a recording");
    golden::expect(&recording.with_extension("metrics"), &scrape_text);
}

#[test]
fn pod_labels_are_there_on_request() {
    let recording = tests().join("data/recordings/demo.jsonl");
    let scrape_text = scrape::of(&recording, &PodLabel::ALL, &AgentStats::default()).expect("a recording");
    let leak = "sandprobe_ip_leaks_total{namespace=\"default\",pod=\"report\",reason=\"del_blind\",workload=\"report\"} 1";
    assert!(scrape_text.lines().any(|line| line == leak), "{scrape_text}");
    assert!(
        scrape_text.contains("sandprobe_pod_start_duration_seconds_count{containers_known=\"false\",namespace=\"default\",workload="),
        "{scrape_text}"
    );
    assert!(!scrape_text.contains("sandprobe_events_total{namespace"), "{scrape_text}");
}
