//! Compares the documentation pages of findings with the code's constants: all durations and counts of a
//! page, in the order in which they stand there.
//!
//! The test fails if a page has a new number or one that differs from the constant, and if a page is not
//! compared. It ignores numbers within code, links and comments, and numbers that are no limits of the agent
//! (exit codes, examples in thousands).

use std::time::Duration;

use super::{
    FRESH, Limits, abandoned_sandbox, blind_spot, cni_failing, cni_queue, cni_wrong_del, daemon_failing,
    duplicate_address, duplicate_container,
    duplicate_sandbox::{self, burst},
    leaked_address::many,
    lost_network, missed_runtime_event, node_network_unready, orphan_netns, ownerless_reservation,
    pool_exhaustion, restarted_in_bulk, runtime_unresponsive, sandboxes_replaced, stuck_start,
    teardown_out_of_order, words,
};
use crate::{
    engine::world::{
        lookup::{abandoned, phase, rebuild},
        react::{log_search, reap},
        table::{
            self,
            attachment::{LATELY, tries},
            balance, belief, failing, record, release, sandbox,
        },
    },
    model::fact::StoreKind,
};

/// A finding opens after a quarter of the time after which it is confirmed.
const EARLY: u32 = 4;
/// The constant of `source::files`. Its own test compares it with the page.
const HUNG: Duration = Duration::from_secs(10);

/// The constant of `source::cri`: how often a runtime's list is read.
const POLLED: Duration = Duration::from_secs(60);

/// How often `source::files` reads the records without a question.
const REREAD: Duration = Duration::from_secs(60);

/// How long the kubelet waits for a pod's volumes before it says so (`podAttachAndMountTimeout`).
const VOLUMES: Duration = Duration::from_secs(2 * 60);

/// How long Cilium's agent keeps an endpoint without an interface: two times its `endpoint-gc-interval`.
const CILIUM: Duration = Duration::from_secs(2 * 5 * 60);

/// How long calico-kube-controllers leaves an address that no pod has: up to half of its `leakGracePeriod` of
/// 15 minutes until it sees that, this period, and up to half of it until its next scan.
const CALICO: Duration = Duration::from_secs(30 * 60);

struct Page {
    name: &'static str,
    text: &'static str,
    times: Vec<Duration>,
    counts: Vec<usize>,
}

macro_rules! page {
    ($name:literal, [$($time:expr),*], [$($count:expr),*]) => {
        Page {
            name: $name,
            text: include_str!(concat!("../../../../docs/findings/", $name, ".md")),
            times: vec![$($time),*],
            counts: vec![$(usize::try_from($count).expect("a number of few digits")),*],
        }
    };
}

fn pages() -> Vec<Page> {
    let Limits { leak_grace: grace, stuck_after, cni_slow, cni_queue: queue } = Limits::default();
    let overlap = duplicate_sandbox::OVERLAP;
    vec![
        page!(
            "abandoned_sandbox",
            [abandoned_sandbox::BACK_OFF, abandoned_sandbox::PULL, log_search::MAX_WAIT],
            []
        ),
        page!("abandoned_store", [grace], []),
        page!("ownerless_reservation", [grace], [ownerless_reservation::FIRST]),
        page!(
            "blind_spot",
            [
                LATELY,
                LATELY,
                LATELY,
                blind_spot::READ,
                blind_spot::KUBELET,
                LATELY,
                blind_spot::READ,
                HUNG,
                blind_spot::READ
            ],
            []
        ),
        page!(
            "cni_failing",
            [
                cni_failing::TOGETHER,
                cni_failing::LONG,
                LATELY,
                tries::ASK_EVERY,
                reap::STOPPING,
                cni_failing::ABSENT
            ],
            [cni_failing::MANY, cni_failing::MESSAGES, tries::TRIES]
        ),
        page!("cni_queue", [cni_queue::OLD], [queue]),
        page!(
            "cni_wrong_del",
            [cni_wrong_del::SETTLE, cni_wrong_del::AFTERWARDS, cni_wrong_del::AFTERWARDS],
            []
        ),
        page!("cni_slow", [cni_slow, LATELY], []),
        page!(
            "duplicate_address",
            [duplicate_address::SETTLE / EARLY, duplicate_address::SETTLE, duplicate_address::REMOVED],
            []
        ),
        page!(
            "duplicate_container",
            [duplicate_container::OVERLAP / EARLY, duplicate_container::OVERLAP],
            []
        ),
        page!(
            "duplicate_sandbox",
            [
                overlap / EARLY,
                duplicate_sandbox::IDLE,
                overlap,
                duplicate_sandbox::AFTERWARDS,
                rebuild::WINDOW,
                rebuild::WINDOW,
                burst::TOGETHER
            ],
            [duplicate_sandbox::REBUILDS, burst::BURST]
        ),
        page!(
            "leaked_address",
            [
                grace,
                abandoned::ANSWERS,
                CALICO,
                StoreKind::Calico.own_cleanup(),
                CILIUM,
                StoreKind::Cilium.own_cleanup()
            ],
            [many::MANY, many::FIRST, many::MANY]
        ),
        page!("lost_network", [lost_network::SETTLE, lost_network::SETTLE], []),
        page!("orphan_netns", [grace, orphan_netns::HELD, FRESH, record::MAKING], []),
        page!("orphan_sandbox", [grace], []),
        page!("phantom_sandbox", [grace, belief::GRACE], []),
        page!(
            "stale_runtime_status",
            [belief::GRACE, POLLED, belief::SOON, belief::GRACE, belief::GRACE],
            []
        ),
        page!("missed_runtime_event", [belief::GRACE, missed_runtime_event::AFTERWARDS, belief::OPENED], []),
        page!(
            "daemon_failing",
            [
                failing::UP,
                daemon_failing::DOWN,
                failing::UP,
                daemon_failing::AFTERWARDS,
                words::LEAD,
                words::AGAIN,
                failing::UP,
                failing::APART,
                failing::UP,
                failing::UP,
                failing::UP
            ],
            [failing::FAILED]
        ),
        page!(
            "node_network_unready",
            [node_network_unready::UNREADY, REREAD, runtime_unresponsive::WAITING],
            [runtime_unresponsive::FIRST]
        ),
        page!(
            "runtime_unresponsive",
            [
                runtime_unresponsive::SILENT,
                POLLED,
                runtime_unresponsive::STARTING,
                runtime_unresponsive::WAITING
            ],
            [runtime_unresponsive::FIRST]
        ),
        page!(
            "pool_exhaustion",
            [pool_exhaustion::MOMENT, pool_exhaustion::DAY, pool_exhaustion::HOUR, pool_exhaustion::MOMENT],
            [pool_exhaustion::LEAKS]
        ),
        page!(
            "sandboxes_replaced",
            [sandboxes_replaced::SETTLE, sandboxes_replaced::AFTERWARDS, sandbox::MOMENTS],
            []
        ),
        page!(
            "restarted_in_bulk",
            [
                restarted_in_bulk::SETTLE,
                restarted_in_bulk::AFTERWARDS,
                sandbox::MOMENTS,
                restarted_in_bulk::SETTLE
            ],
            [restarted_in_bulk::PODS]
        ),
        page!("stuck_cgroup", [grace], []),
        page!("stuck_netns_teardown", [stuck_after], []),
        page!(
            "stuck_start",
            [
                stuck_start::SANDBOX,
                stuck_start::SANDBOX,
                stuck_start::CONTAINER,
                stuck_start::CAUSE,
                words::AGAIN,
                VOLUMES,
                record::MAKING,
                phase::WAIT,
                log_search::MAX_WAIT,
                stuck_start::NEXT,
                LATELY
            ],
            []
        ),
        page!("stuck_stop", [grace, blind_spot::READ], []),
        page!(
            "teardown_out_of_order",
            [
                teardown_out_of_order::SETTLE / EARLY,
                teardown_out_of_order::SETTLE,
                table::MEMORY,
                reap::UNUSED
            ],
            []
        ),
        page!(
            "unverified_release",
            [table::GRACE, table::MEMORY, release::MEMORY, release::MEMORY, table::MEMORY],
            [balance::ACCOUNTS]
        ),
    ]
}

/// Returns the words of a page outside of code, links and comments.
fn words(page: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut is_code = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        if is_code || line.starts_with("    ") || line.trim_start().starts_with("<!--") {
            continue;
        }
        // The number of a list item is not part of the text.
        let item = line.split_once(". ").filter(|(number, _)| number.bytes().all(|it| it.is_ascii_digit()));
        let text = item.map_or(line, |(_, text)| text);
        // Text between two backticks is code.
        let prose: Vec<&str> = text.split('`').step_by(2).collect();
        for word in prose.join(" code ").split_whitespace() {
            let text = word.split("](").next().unwrap_or(word);
            words.push(text.trim_matches(|c: char| "|()*,;:[]".contains(c)).to_owned());
        }
    }
    words
}

/// Parses a number in digits or as a word, in thousandths.
fn number(word: &str) -> Option<u64> {
    const WORDS: [(&str, u64); 10] = [
        ("three", 3),
        ("four", 4),
        ("five", 5),
        ("six", 6),
        ("eight", 8),
        ("ten", 10),
        ("fifteen", 15),
        ("twenty", 20),
        ("thirty", 30),
        ("sixty", 60),
    ];
    let named = WORDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
    if let Some((_, number)) = named {
        return Some(number * 1_000);
    }
    let word = word.trim_end_matches('.');
    let (whole, part) = word.split_once('.').unwrap_or((word, "0"));
    let whole = whole.replace(',', "").parse::<u64>().ok()?;
    if part.len() > 3 {
        return None;
    }
    let part = format!("{part:0<3}").parse::<u64>().ok()?;
    Some(whole * 1_000 + part)
}

/// Returns a unit of time in milliseconds.
fn unit(word: &str) -> Option<u64> {
    Some(match word.trim_end_matches('.') {
        "ms" => 1,
        "s" | "second" | "seconds" => 1_000,
        "min" | "minute" | "minutes" => 60_000,
        "h" | "hour" | "hours" => 3_600_000,
        "day" | "days" => 86_400_000,
        _ => return None,
    })
}

/// Returns the durations and the counts of a page, in their order.
fn said(page: &str) -> (Vec<Duration>, Vec<usize>) {
    /// The exit codes of processes and shells.
    const EXIT_CODES: [usize; 4] = [0, 128, 137, 143];
    let words = words(page);
    let mut times = Vec::new();
    let mut counts = Vec::new();
    let mut before = "";
    for (n, word) in words.iter().enumerate() {
        let next = words.get(n + 1).map_or("", String::as_str);
        let time = match (word.as_str(), unit(next), number(word)) {
            ("half", ..) if next == "a" => words.get(n + 2).and_then(|it| unit(it)).map(|unit| unit / 2),
            ("a" | "an", Some(unit), _) if before != "half" => Some(unit),
            (_, Some(unit), Some(number)) => Some(number * unit / 1_000),
            _ => None,
        };
        if let Some(millis) = time {
            times.push(Duration::from_millis(millis));
        } else if let Some(number) = number(word).filter(|it| it % 1_000 == 0) {
            let count = usize::try_from(number / 1_000).expect("a number of few digits");
            if !EXIT_CODES.contains(&count) && next != "thousands" {
                counts.push(count);
            }
        }
        before = word;
    }
    (times, counts)
}

#[test]
fn the_numbers_on_the_pages_are_those_of_the_code() {
    for page in pages() {
        assert_eq!(said(page.text), (page.times, page.counts), "docs/findings/{}.md", page.name);
    }
}

#[test]
fn every_page_is_held() {
    let index = include_str!("../../../../docs/findings.md");
    let named = index.split("(findings/").skip(1).filter_map(|rest| rest.split_once(".md"));
    let named: std::collections::BTreeSet<&str> = named.map(|(name, _)| name).collect();
    let held: std::collections::BTreeSet<&str> = pages().iter().map(|page| page.name).collect();
    assert!(!named.is_empty());
    let missing: Vec<_> = held.difference(&named).collect();
    let unknown: Vec<_> = named.difference(&held).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "not in docs/findings.md: {missing:?}, not in the code: {unknown:?}"
    );
}

#[test]
fn another_number_is_seen() {
    let (times, counts) = said(
        "1. | after 2.5 s, or half a minute; ten minutes `in 3 s` an hour, a day. More than 64 (20) 16. |",
    );
    assert_eq!(times, [2.5, 30.0, 600.0, 3_600.0, 86_400.0].map(Duration::from_secs_f64));
    assert_eq!(counts, [64, 20, 16]);
}
