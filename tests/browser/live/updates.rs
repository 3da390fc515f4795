//! The page follows the event stream: updates, resuming after a break, and many events.

use serde_json::{Value, json};
use tests::browser::key;

use super::{EVENT, FINDING, POD, node, open, server::Server, start, text, wait, wait_for_text};
use crate::look;

#[test]
fn new_pods_and_findings_appear_and_are_announced() {
    let server = Server::start(node::node(3, 0));
    let browser = start();
    open(&browser, &server, "pods", POD, 3);
    wait_for_text(&browser, "#link", "live");
    server.change(|node| node.pods.push(node::pod(77, "default", "late")));
    server.send(json!({ "event": "pod.started", "pod": { "namespace": "default", "name": "late" } }));
    wait(&browser, POD, 4);
    let finding = node::finding(0);
    server.change(|node| node.findings.push(finding.clone()));
    server.send(json!({ "event": "finding.opened", "finding": finding }));
    wait_for_text(&browser, "#nav .badge", "1");
    wait_for_text(&browser, "#news", "New finding: warning, ");
    browser.run("location.hash = '#/findings'", &[]).expect("a view");
    wait(&browser, FINDING, 1);
    // A finding opens by its address, as in a link that somebody sends.
    let key = finding["key"].as_str().expect("a key");
    browser.open("about:blank").expect("a page");
    let escaped = browser.run("return encodeURIComponent(arguments[0])", &[json!(key)]).expect("text");
    browser
        .open(&format!("{}#/findings/{}", server.url(), escaped.as_str().expect("text")))
        .expect("the page");
    browser
        .until("its evidence", "return document.querySelector('details[open] .evidence tbody tr')", &[])
        .expect("evidence");
    look::check_no_other_requests(&browser, &server.url());
}

/// The page draws boots again while a user reads one of them, or a restart of a daemon.
#[test]
fn what_is_open_stays_open_when_boots_are_drawn_anew() {
    const BOOT: &str = "#view-boots details";
    let server = Server::start(node::node(1, 0));
    let browser = start();
    open(&browser, &server, "boots", BOOT, 5);
    let script = "for (const it of document.querySelectorAll('#view-boots details')) { it.open = true; it.classList.add('old'); }";
    browser.run(script, &[]).expect("the rows");
    browser.run("document.querySelector('#filter').focus()", &[]).expect("the filter");
    // All of them began in the years 20…
    browser.write("20").expect("keys");
    wait(&browser, &format!("{BOOT}.old"), 0);
    wait(&browser, BOOT, 5);
    wait(&browser, &format!("{BOOT}[open]"), 5);
}

/// However many events come, the page requests its documents no more often than it promises.
#[test]
fn a_storm_of_events_causes_few_requests() {
    let server = Server::start(node::node(20, 3));
    let browser = start();
    open(&browser, &server, "pods", POD, 20);
    wait_for_text(&browser, "#link", "live");
    let before = server.asked("/v1/pods");
    for n in 0..2_000_u32 {
        server.send(
            json!({ "event": "container.started", "n": n, "pod": { "namespace": "default", "name": "x" } }),
        );
    }
    server.change(|node| node.pods.push(node::pod(78, "default", "last")));
    server.send(json!({ "event": "pod.started", "pod": { "namespace": "default", "name": "last" } }));
    wait(&browser, POD, 21);
    let asked = server.asked("/v1/pods") - before;
    assert!((1..=3).contains(&asked), "{asked} requests");
    browser.run("location.hash = '#/events'", &[]).expect("a view");
    wait(&browser, EVENT, 300);
}

#[test]
fn the_stream_resumes_and_missed_events_are_announced() {
    let server = Server::start(node::node(3, 1));
    let browser = start();
    open(&browser, &server, "events", "#view-events", 1);
    wait_for_text(&browser, "#link", "live");
    server.send(json!({ "event": "pod.gone", "pod": { "name": "first" } }));
    wait(&browser, EVENT, 1);

    server.go_down();
    wait_for_text(&browser, "#link", "disconnected since ");
    browser.screenshot("page-lost").expect("a picture");
    look::check_legible(&browser);
    server.send(json!({ "event": "pod.gone", "pod": { "name": "meanwhile" } }));
    server.come_back();
    wait_for_text(&browser, "#link", "live");
    wait(&browser, EVENT, 2);
    assert!(text(&browser, EVENT).contains("meanwhile"), "the newest event is the first");
    assert_eq!(text(&browser, "#notices"), "");

    server.go_down();
    wait_for_text(&browser, "#link", "disconnected since ");
    server.send(json!({ "event": "pod.gone", "pod": { "name": "forgotten" } }));
    server.forget();
    server.come_back();
    wait_for_text(&browser, "#notices", "1 event was missed");

    server.go_down();
    wait_for_text(&browser, "#link", "disconnected since ");
    server.restart();
    server.change(|node| node.pods.push(node::pod(79, "default", "anew")));
    server.come_back();
    wait_for_text(&browser, "#notices", "The agent has restarted");
    browser.screenshot("page-restarted").expect("a picture");
    look::check_legible(&browser);
    browser.run("location.hash = '#/pods'", &[]).expect("a view");
    wait(&browser, POD, 4);
}

/// The longest time in ms that a task may block typing and scrolling.
const LONGEST: f64 = 100.0;
/// Other work on the machine only makes a task longer, so one quick round is enough.
const ROUNDS: u32 = 6;

#[test]
fn the_page_stays_responsive_with_500_pods_and_200_findings() {
    let server = Server::start(node::node(500, 200));
    let browser = start();
    let mut longest = Vec::new();
    for round in 0..ROUNDS {
        browser.open("about:blank").expect("a page");
        open(&browser, &server, "findings", FINDING, 200);
        browser.screenshot("page-many-findings").expect("a picture");
        browser.run("window.tasks = []; new PerformanceObserver((list) => tasks.push(...list.getEntries().map((it) => it.duration))).observe({ type: 'longtask', buffered: true })", &[]).expect("an observer");
        for n in 0..20 {
            server
                .change(|node| node.pods[n] = node::pod(n, "default", &format!("web-{}-{round}", 1_000 + n)));
            for _ in 0..20 {
                server
                    .send(json!({ "event": "pod.started", "pod": { "namespace": "default", "name": "x" } }));
            }
        }
        browser.run("location.hash = '#/pods'", &[]).expect("a view");
        let last = format!("default/web-1019-{round}");
        browser.until("all pods", "return document.querySelectorAll(arguments[0]).length === 500 && document.querySelector('#view-pods').textContent.includes(arguments[1])", &[json!(POD), json!(last)]).expect("pods");
        let finding = node::finding(500 + usize::try_from(round).expect("small"));
        server.change(|node| node.findings.push(finding.clone()));
        server.send(json!({ "event": "finding.opened", "finding": finding }));
        browser.run("location.hash = '#/findings'", &[]).expect("a view");
        wait(&browser, FINDING, 201);
        browser.run("document.querySelector('#filter').focus()", &[]).expect("the filter");
        browser.write("web-1").expect("keys");
        browser
            .until(
                "fewer",
                "return document.querySelectorAll(arguments[0]).length < arguments[1]",
                &[json!(FINDING), json!(201)],
            )
            .expect("a filter");
        browser.press(&[], &[key::ESCAPE]).expect("a key");
        wait(&browser, FINDING, 201);
        let tasks = browser.run("return tasks", &[]).expect("tasks");
        let most = tasks.as_array().expect("tasks").iter().filter_map(Value::as_f64).fold(0.0, f64::max);
        longest.push(most);
        if most < LONGEST {
            return;
        }
        server.change(|node| node.findings.truncate(200));
    }
    panic!("the longest task took {longest:?} ms in each round");
}
