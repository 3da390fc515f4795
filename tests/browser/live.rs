//! The page of the agent itself, served what an agent would serve it.

mod fixture;
mod given;

use serde_json::{Value, json};
use tests::browser::{Browser, Scheme, key};

use crate::look;
use fixture::Fixture;

fn start() -> Browser {
    let browser = Browser::start().expect("a browser");
    browser.prefer(Scheme::Light).expect("a scheme");
    browser.resize(1280, 900).expect("a size");
    browser
}

/// Opens a view and waits until it shows so many of what it shows.
#[track_caller]
fn open(browser: &Browser, fixture: &Fixture, view: &str, what: &str, count: usize) {
    browser.open(&format!("{}#/{view}", fixture.url())).expect("the page");
    wait(browser, what, count);
}

#[track_caller]
fn wait(browser: &Browser, what: &str, count: usize) {
    let script = "return document.querySelectorAll(arguments[0]).length === arguments[1]";
    browser.until(&format!("{count} of {what}"), script, &[json!(what), json!(count)]).expect("it is shown");
}

#[track_caller]
fn wait_for_text(browser: &Browser, what: &str, text: &str) {
    let script = "return document.querySelector(arguments[0])?.textContent.includes(arguments[1])";
    browser.until(text, script, &[json!(what), json!(text)]).expect("it is said");
}

fn text(browser: &Browser, what: &str) -> String {
    let told = browser.run("return document.querySelector(arguments[0])?.textContent ?? ''", &[json!(what)]);
    told.expect("text").as_str().expect("text").to_owned()
}

const FINDING: &str = "#view-findings .findings:not(details .findings) > details";
const POD: &str = "#view-pods .pods > details";
const EVENT: &str = "#view-events .events > li";

#[test]
fn each_view_is_seen_by_day_by_night_and_on_little_room() {
    let fixture = Fixture::start(given::node(9, 6));
    let browser = start();
    let views = [
        ("findings", FINDING, 6),
        ("pods", POD, 9),
        ("pools", "#view-pools .pool", 2),
        ("boots", "#view-boots details", 3),
        ("agent", "#view-agent table", 2),
    ];
    for (form, scheme, width) in
        [("light", Scheme::Light, 1280), ("dark", Scheme::Dark, 1280), ("narrow", Scheme::Light, 380)]
    {
        browser.prefer(scheme).expect("a scheme");
        browser.resize(width, 900).expect("a size");
        for (view, what, count) in views {
            // Another place in the same page would not load it anew.
            browser.open("about:blank").expect("a page");
            open(&browser, &fixture, view, what, count);
            wait_for_text(&browser, "#link", "live");
            // With what the first row has in it.
            browser.run("document.querySelector('main > section:not([hidden]) details:not(.past) > summary')?.click()", &[]).expect("a row");
            if matches!(view, "findings" | "pods" | "boots") {
                browser
                    .until("its contents", "return document.querySelector('details[open] .body table')", &[])
                    .expect("contents");
            }
            browser.screenshot(&format!("page-{view}-{form}")).expect("a picture");
            look::is_legible(&browser);
            look::fits(&browser);
        }
        browser.run("location.hash = '#/events'", &[]).expect("a view");
        for event in given::events().into_iter().take(40) {
            fixture.tell(event);
        }
        wait(&browser, EVENT, 40);
        browser.screenshot(&format!("page-events-{form}")).expect("a picture");
        look::is_legible(&browser);
        look::fits(&browser);
        look::is_quiet(&browser, &fixture.url());
    }
}

#[test]
fn where_nothing_is_wrong_it_is_said_what_that_is_based_on() {
    let fixture = Fixture::start(given::node(3, 0));
    let browser = start();
    browser.open(&fixture.url()).expect("the page");
    wait_for_text(&browser, "#verdict", "Nothing is wrong.");
    let said = text(&browser, "#verdict");
    for words in [
        "11 of 11 signals are seen",
        "what was there before was read",
        "Nothing was lost",
        "3 pods and 2 ranges",
    ] {
        assert!(said.contains(words), "no {words:?} in {said:?}");
    }
    browser.screenshot("page-well").expect("a picture");
    look::is_legible(&browser);

    fixture.change(|node| {
        node.doctor["agent"]["ready"] = json!(false);
        node.doctor["agent"]["reasons"] = json!(["records were lost in the last minute"]);
        node.doctor["agent"]["losses"] = json!({ "lifecycle_ring": "17" });
    });
    fixture.tell(json!({ "event": "gap", "gap": { "what": "lifecycle_ring", "count": "17" } }));
    wait_for_text(&browser, "#verdict", "Nothing was found, but not all can be seen.");
    assert!(text(&browser, "#health").contains("Not ready: records were lost in the last minute."));
    browser.screenshot("page-unsure").expect("a picture");
    look::is_legible(&browser);
    look::is_quiet(&browser, &fixture.url());
}

/// Each of these speaks against it alone, and is named.
#[test]
fn nothing_is_wrong_only_where_nothing_is_stuck_missing_or_unseen() {
    type Change = fn(&mut given::Node);
    let cases: [(&str, Change); 4] = [
        ("Not seen at all: address ipv4.", |node| {
            let row = &mut node.doctor["signals"][10];
            row["grade"] = json!("degraded");
            row.as_object_mut().expect("a row").remove("mechanism");
        }),
        ("What was on the node before the agent is not known yet.", |node| {
            node.doctor["agent"]["backfill_complete"] = json!(false);
        }),
        ("Not up yet: default/web-1.", |node| node.pods[1]["state"] = json!("created")),
        ("lockdown: kernel memory cannot be read", |node| {
            node.doctor["checks"][0] =
                json!({ "name": "lockdown", "grade": "cannot", "found": "kernel memory cannot be read" });
        }),
    ];
    let browser = start();
    for (said, change) in cases {
        let fixture = Fixture::start(given::node(3, 0));
        fixture.change(change);
        browser.open("about:blank").expect("a page");
        browser.open(&fixture.url()).expect("the page");
        wait_for_text(&browser, "#verdict", said);
        wait_for_text(&browser, "#verdict", "Nothing was found, but not all can be seen.");
        assert!(!text(&browser, "#verdict").contains("Nothing is wrong"), "{said}");
    }
    // What it said before is not what is.
    let fixture = Fixture::start(given::node(3, 0));
    browser.open("about:blank").expect("a page");
    browser.open(&fixture.url()).expect("the page");
    wait_for_text(&browser, "#verdict", "Nothing is wrong.");
    fixture.go_down();
    wait_for_text(&browser, "#verdict", "The agent does not answer");
}

#[test]
fn what_is_new_appears_by_itself_and_is_said() {
    let fixture = Fixture::start(given::node(3, 0));
    let browser = start();
    open(&browser, &fixture, "pods", POD, 3);
    wait_for_text(&browser, "#link", "live");
    fixture.change(|node| node.pods.push(given::pod(77, "default", "late")));
    fixture.tell(json!({ "event": "pod.started", "pod": { "namespace": "default", "name": "late" } }));
    wait(&browser, POD, 4);
    let finding = given::finding(0);
    fixture.change(|node| node.findings.push(finding.clone()));
    fixture.tell(json!({ "event": "finding.opened", "finding": finding }));
    wait_for_text(&browser, "#nav .badge", "1");
    wait_for_text(&browser, "#news", "New finding: warning, ");
    browser.run("location.hash = '#/findings'", &[]).expect("a view");
    wait(&browser, FINDING, 1);
    // By its address, as somebody else has sent it.
    let key = finding["key"].as_str().expect("a key");
    browser.open("about:blank").expect("a page");
    let escaped = browser.run("return encodeURIComponent(arguments[0])", &[json!(key)]).expect("text");
    browser
        .open(&format!("{}#/findings/{}", fixture.url(), escaped.as_str().expect("text")))
        .expect("the page");
    browser
        .until("its evidence", "return document.querySelector('details[open] .evidence tbody tr')", &[])
        .expect("evidence");
    look::is_quiet(&browser, &fixture.url());
}

/// However many events come, the agent is asked no more often than it was said.
#[test]
fn a_storm_of_events_is_no_storm_of_questions() {
    let fixture = Fixture::start(given::node(20, 3));
    let browser = start();
    open(&browser, &fixture, "pods", POD, 20);
    wait_for_text(&browser, "#link", "live");
    let before = fixture.asked("/v1/pods");
    for n in 0..2_000_u32 {
        fixture.tell(
            json!({ "event": "container.started", "n": n, "pod": { "namespace": "default", "name": "x" } }),
        );
    }
    fixture.change(|node| node.pods.push(given::pod(78, "default", "last")));
    fixture.tell(json!({ "event": "pod.started", "pod": { "namespace": "default", "name": "last" } }));
    wait(&browser, POD, 21);
    let asked = fixture.asked("/v1/pods") - before;
    assert!((1..=3).contains(&asked), "{asked} questions");
    browser.run("location.hash = '#/events'", &[]).expect("a view");
    wait(&browser, EVENT, 300);
}

#[test]
fn it_goes_on_where_it_was_and_says_what_it_missed() {
    let fixture = Fixture::start(given::node(3, 1));
    let browser = start();
    open(&browser, &fixture, "events", "#view-events", 1);
    wait_for_text(&browser, "#link", "live");
    fixture.tell(json!({ "event": "pod.gone", "pod": { "name": "first" } }));
    wait(&browser, EVENT, 1);

    fixture.go_down();
    wait_for_text(&browser, "#link", "disconnected since ");
    browser.screenshot("page-lost").expect("a picture");
    look::is_legible(&browser);
    fixture.tell(json!({ "event": "pod.gone", "pod": { "name": "meanwhile" } }));
    fixture.come_back();
    wait_for_text(&browser, "#link", "live");
    wait(&browser, EVENT, 2);
    assert!(text(&browser, EVENT).contains("meanwhile"), "the newest is the first");
    assert_eq!(text(&browser, "#notices"), "");

    fixture.go_down();
    wait_for_text(&browser, "#link", "disconnected since ");
    fixture.tell(json!({ "event": "pod.gone", "pod": { "name": "forgotten" } }));
    fixture.forget();
    fixture.come_back();
    wait_for_text(&browser, "#notices", "1 event was missed");

    fixture.go_down();
    wait_for_text(&browser, "#link", "disconnected since ");
    fixture.restart();
    fixture.change(|node| node.pods.push(given::pod(79, "default", "anew")));
    fixture.come_back();
    wait_for_text(&browser, "#notices", "The agent has restarted");
    browser.screenshot("page-restarted").expect("a picture");
    look::is_legible(&browser);
    browser.run("location.hash = '#/pods'", &[]).expect("a view");
    wait(&browser, POD, 4);
}

#[test]
fn everything_is_reached_and_done_by_the_keyboard() {
    let fixture = Fixture::start(given::node(5, 3));
    let browser = start();
    open(&browser, &fixture, "findings", FINDING, 3);
    wait_for_text(&browser, "#link", "live");
    let tab = |expected: &str| {
        browser.press(&[], &[key::TAB]).expect("a key");
        let focus = look::focus(&browser);
        assert!(focus["text"].as_str().is_some_and(|it| it.starts_with(expected)), "{focus}, not {expected}");
        assert_eq!(focus["isSeen"], true, "{focus}");
    };
    browser.run("document.activeElement.blur()", &[]).expect("no focus");
    tab("Skip to what is shown");
    browser.press(&[], &[key::ENTER]).expect("a key");
    assert_eq!(look::focus(&browser)["id"], "main");
    // The first of what is shown.
    tab("critical");
    browser.press(&[], &[key::ENTER]).expect("a key");
    browser
        .until("its evidence", "return document.querySelector('details[open] .evidence tbody tr')", &[])
        .expect("evidence");
    browser.press(&[key::SHIFT], &[key::TAB]).expect("a key");
    assert_eq!(look::focus(&browser)["id"], "filter", "back over the view to the filter");
    browser.press(&[key::SHIFT], &[key::TAB]).expect("a key");
    assert!(look::focus(&browser)["text"].as_str().is_some_and(|it| it.starts_with("Agent")));
    for _ in 0..4 {
        browser.press(&[key::SHIFT], &[key::TAB]).expect("a key");
    }
    browser.press(&[], &[key::ENTER]).expect("a key");
    wait(&browser, POD, 5);
    assert_eq!(look::focus(&browser)["tag"], "h2", "the view that was chosen");
    browser.press(&[], &['/']).expect("a key");
    assert_eq!(look::focus(&browser)["id"], "filter");
    browser.write("web-3").expect("keys");
    wait(&browser, POD, 1);
    browser.press(&[], &[key::ESCAPE]).expect("a key");
    wait(&browser, POD, 5);
    look::is_quiet(&browser, &fixture.url());
}

#[test]
fn a_token_is_asked_for_and_kept_nowhere() {
    let fixture = Fixture::start(given::node(3, 1));
    fixture.ask_for("s3cret");
    let browser = start();
    browser.open(&fixture.url()).expect("the page");
    browser
        .until(
            "the question",
            "return !document.querySelector('#ask').hidden && document.activeElement.id === 'token'",
            &[],
        )
        .expect("a question");
    browser.screenshot("page-token").expect("a picture");
    look::is_legible(&browser);
    browser.write("wrong").expect("keys");
    browser.press(&[], &[key::ENTER]).expect("a key");
    wait_for_text(&browser, "#ask-why", "That is not the token.");
    browser.write("s3cret").expect("keys");
    browser.press(&[], &[key::ENTER]).expect("a key");
    wait(&browser, FINDING, 1);
    wait_for_text(&browser, "#link", "live");
    let kept = browser.run("return [localStorage.length, sessionStorage.length, document.cookie, location.href.includes('s3cret')]", &[]);
    assert_eq!(kept.expect("what is kept"), json!([0, 0, "", false]));
}

#[test]
fn text_of_the_node_is_never_markup() {
    let fixture = Fixture::start(given::hostile());
    let browser = start();
    for (view, what) in [
        ("findings", FINDING),
        ("pods", POD),
        ("pools", ".pool"),
        ("boots", "#view-boots details"),
        ("agent", "#view-agent table"),
    ] {
        browser.open("about:blank").expect("a page");
        browser.open(&format!("{}#/{view}", fixture.url())).expect("the page");
        browser.until(view, "return document.querySelector(arguments[0])", &[json!(what)]).expect("a row");
        browser.run("document.querySelector('main > section:not([hidden]) details:not(.past) > summary')?.click()", &[]).expect("a row");
        fixture.tell(
            json!({ "event": "pod.gone", "pod": { "name": given::HOSTILE, "namespace": given::HOSTILE }, "text": given::HOSTILE }),
        );
        wait_for_text(&browser, "#link", "live");
        if view == "findings" {
            browser
                .until("evidence", "return document.querySelector('details[open] .body')", &[])
                .expect("evidence");
            browser.screenshot("page-hostile").expect("a picture");
        }
        let told = browser.run(
            "return [document.querySelectorAll('script:not([src=\"app.js\"]), img, iframe, object, style, base, [onerror], [onload]').length,
               document.querySelector('main > section:not([hidden])').textContent.includes('<img src=x onerror=\"alert(2)\">'),
               /[\\u202a-\\u202e\\u2066-\\u2069\\u0000-\\u0009]/.test(document.documentElement.outerHTML)]",
            &[],
        );
        assert_eq!(told.expect("what is there"), json!([0, true, false]), "{view}");
        look::fits(&browser);
    }
    look::is_quiet(&browser, &fixture.url());
}

/// So long may one who types or scrolls wait.
const LONGEST: f64 = 100.0;
/// What else runs on the machine only makes it longer: one quiet round shows how long it takes.
const ROUNDS: u32 = 6;

#[test]
fn five_hundred_pods_and_two_hundred_findings_do_not_stutter() {
    let fixture = Fixture::start(given::node(500, 200));
    let browser = start();
    let mut longest = Vec::new();
    for round in 0..ROUNDS {
        browser.open("about:blank").expect("a page");
        open(&browser, &fixture, "findings", FINDING, 200);
        browser.screenshot("page-many-findings").expect("a picture");
        browser.run("window.tasks = []; new PerformanceObserver((list) => tasks.push(...list.getEntries().map((it) => it.duration))).observe({ type: 'longtask', buffered: true })", &[]).expect("an observer");
        for n in 0..20 {
            fixture.change(|node| {
                node.pods[n] = given::pod(n, "default", &format!("web-{}-{round}", 1_000 + n))
            });
            for _ in 0..20 {
                fixture
                    .tell(json!({ "event": "pod.started", "pod": { "namespace": "default", "name": "x" } }));
            }
        }
        browser.run("location.hash = '#/pods'", &[]).expect("a view");
        let last = format!("default/web-1019-{round}");
        browser.until("all pods", "return document.querySelectorAll(arguments[0]).length === 500 && document.querySelector('#view-pods').textContent.includes(arguments[1])", &[json!(POD), json!(last)]).expect("pods");
        let finding = given::finding(500 + usize::try_from(round).expect("small"));
        fixture.change(|node| node.findings.push(finding.clone()));
        fixture.tell(json!({ "event": "finding.opened", "finding": finding }));
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
        fixture.change(|node| node.findings.truncate(200));
    }
    panic!("the longest task took {longest:?} ms in each round");
}
