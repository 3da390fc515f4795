//! The metrics: their reference page, and what a real run comes to.

mod scrape;

use std::{fs, path::Path};

use probe_user::sink::metrics::{agent_stats::AgentStats, label::PodLabel, page};
use tests::golden;

/// Where the page's own words end.
const REFERENCE: &str = "## Reference\n\n";

fn tests() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_reference_is_made_from_the_registry() {
    let path = tests().join("../docs/metrics.md");
    let page = fs::read_to_string(&path).expect("the page");
    let (words, _) = page.split_once(REFERENCE).expect("the heading of the reference");
    golden::expect(&path, &format!("{words}{REFERENCE}{}", page::reference().trim_end().to_owned() + "\n"));
}

#[test]
fn a_recording_comes_to_what_it_is_known_to_come_to() {
    let recording = tests().join("data/recordings/demo.jsonl");
    let told = scrape::of(&recording, &[], &AgentStats::default()).expect("a recording");
    golden::expect(&recording.with_extension("metrics"), &told);
}

#[test]
fn labels_of_pods_are_there_where_they_were_asked_for() {
    let recording = tests().join("data/recordings/demo.jsonl");
    let told = scrape::of(&recording, &PodLabel::ALL, &AgentStats::default()).expect("a recording");
    let leak = "sandprobe_ip_leaks_total{namespace=\"default\",pod=\"report\",reason=\"del_blind\",workload=\"report\"} 1";
    assert!(told.lines().any(|line| line == leak), "{told}");
    assert!(
        told.contains("sandprobe_pod_start_duration_seconds_count{containers_known=\"false\",namespace=\"default\",workload="),
        "{told}"
    );
    assert!(!told.contains("sandprobe_events_total{namespace"), "{told}");
}
