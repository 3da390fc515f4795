//! The HTML pages and traces of given starts and boots, also with hostile names.

mod fixture;

use std::{path::Path, time::Instant};

use probe_user::{
    engine::boot::report::NodeBoot,
    sink::render::{
        chart::{self, Chart},
        page, perfetto,
    },
};
use serde_json::Value;
use tests::golden;

fn pods() -> Chart {
    let starts = fixture::starts();
    chart::pod::chart(&fixture::label(), &starts, &fixture::shares(&starts), &fixture::pods())
}

fn boots() -> Chart {
    let rows = fixture::boots();
    let rows: Vec<_> =
        rows.iter().map(|(recovery, report)| NodeBoot { node: "edge-1", recovery, report }).collect();
    chart::boot::chart(&rows, None)
}

fn trace(chart: &Chart) -> Value {
    serde_json::from_slice(&perfetto::write(chart).expect("JSON")).expect("JSON")
}

#[track_caller]
fn expect(name: &str, actual: &str) {
    golden::expect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("data/pictures").join(name), actual);
}

#[test]
fn pages_and_traces_are_as_expected() {
    for (name, chart) in [("pods", pods()), ("boots", boots())] {
        expect(&format!("{name}.html"), &page::page(&chart));
        // The trace has one value on each line, so that a difference is readable.
        let trace = serde_json::to_string_pretty(&trace(&chart)).expect("JSON");
        expect(&format!("{name}.json"), &(trace + "\n"));
    }
}

/// Every tag is the program's own. Text in quotes does not count.
#[test]
fn no_name_becomes_a_tag() {
    for chart in [pods(), boots()] {
        let page = page::page(&chart);
        assert!(page.contains("&lt;script&gt;"), "the fixture has hostile names");
        let (_, body) = page.split_once("</style>").expect("a style");
        let mut rest = body;
        while let Some((_, tag)) = rest.split_once('<') {
            let (tag, after) = tag.split_once('>').expect("a tag ends");
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
            assert!(TAGS.contains(&name), "<{tag}>");
            let attributes = tag.split(' ').skip(1).filter_map(|it| it.split_once("=\""));
            for (attribute, _) in attributes {
                assert!(
                    !attribute.starts_with("on") && !matches!(attribute, "src" | "href" | "style"),
                    "<{tag}>"
                );
            }
            rest = after;
        }
        let acts = |c: char| c.is_control() && c != '\n';
        assert!(!page.contains(acts) && !page.contains('\u{202e}'));
        let policy =
            "content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\"";
        assert!(page.contains(policy), "no script and no request is allowed");
        assert!(!page.contains("://") && !page.contains("@import"), "the page loads nothing");
    }
}

const TAGS: [&str; 30] = [
    "head", "body", "html", "h1", "dl", "div", "dt", "dd", "p", "table", "caption", "thead", "tbody", "tr",
    "th", "td", "ul", "li", "svg", "defs", "pattern", "rect", "title", "section", "span", "details",
    "summary", "i", "style", "meta",
];

/// Everything that a color shows is in words too.
#[test]
fn marks_causes_and_units_are_in_words() {
    let page = page::page(&pods());
    for words in [
        ">not complete<",
        ">listed<",
        ">gapped<",
        ">inferred<",
        "2 of 3 ADDs failed, which took 200 ms",
        "throttled 1.20 s of 1.50 s (12 periods)",
        "No start was seen of 1: shop/early&lt;b&gt;",
    ] {
        assert!(page.contains(words), "no {words:?}");
    }
    let page = page::page(&boots());
    for words in
        [">order not known<", "ADD failed 2 times before the first success (flannel", "exact, from a hook"]
    {
        assert!(page.contains(words), "no {words:?}");
    }
}

/// The parts of each process follow each other without a gap, and together are as long as the start.
#[test]
fn a_trace_has_the_phases_and_nothing_between_them() {
    for chart in [pods(), boots()] {
        let trace = trace(&chart);
        let events = trace["traceEvents"].as_array().expect("events");
        let name = |pid: &Value| {
            let is_it = |it: &&Value| it["name"] == "process_name" && it["pid"] == *pid;
            events.iter().find(is_it).expect("a name")["args"]["name"].as_str().expect("text").to_owned()
        };
        let mut pids: Vec<&Value> = events.iter().map(|it| &it["pid"]).collect();
        pids.dedup();
        assert_eq!(pids.len(), chart.rows.len());
        for (pid, row) in pids.into_iter().zip(&chart.rows) {
            let micros = |value: &Value| value.as_f64().expect("a number");
            let is_part = |it: &&Value| it["pid"] == *pid && it["cat"] == chart.noun;
            let mut at = row.begin.as_secs_f64() * 1e6;
            let mut sum = 0.0;
            for part in events.iter().filter(is_part) {
                assert_eq!(part["ph"], "X");
                assert!((micros(&part["ts"]) - at).abs() < 0.001, "{part} does not begin at {at}");
                at = micros(&part["ts"]) + micros(&part["dur"]);
                sum += micros(&part["dur"]);
            }
            assert!((sum - row.took.as_secs_f64() * 1e6).abs() < 0.001, "{} is {sum} µs", name(pid));
        }
        for event in events {
            assert!(matches!(event["ph"].as_str(), Some("M" | "X" | "i")), "{event}");
            assert_eq!(event["ph"] == "X", event["dur"].is_number(), "{event}");
            assert!(event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
        }
    }
}

/// A trace viewer drops overlapping bars in one lane.
#[test]
fn no_two_bars_of_a_lane_are_at_the_same_time() {
    for row in pods().rows.iter().chain(&boots().rows) {
        let mut bars: Vec<_> = row.bars.iter().collect();
        bars.sort_by_key(|bar| (&bar.lane, bar.at));
        for two in bars.windows(2).filter(|two| two[0].lane == two[1].lane) {
            assert!(two[0].at + two[0].took.unwrap_or_default() <= two[1].at, "{two:?}");
        }
    }
}

#[test]
fn five_hundred_pods_are_a_small_page() {
    let one = fixture::starts();
    let starts: Vec<_> = (0..500_u64).map(|n| fixture::named(&one[0], &format!("web-{n}"))).collect();
    assert!(starts[0].phases.len() >= 12, "as many phases as a pod with an init container has");
    let begun = Instant::now();
    let chart = chart::pod::chart(&fixture::label(), &starts, &fixture::shares(&starts), &[]);
    let (page, trace) = (page::page(&chart), perfetto::write(&chart).expect("JSON"));
    let took = begun.elapsed();
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    assert!(trace.len() < 2_000_000, "{} bytes", trace.len());
    assert!(took.as_secs() < 1, "{took:?}");
}
