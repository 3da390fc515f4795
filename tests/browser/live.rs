//! The agent's own page, with documents and events as an agent would serve them.

mod health;
mod node;
mod server;
mod updates;

use serde_json::json;
use tests::browser::{Browser, Scheme, key};

use crate::look;
use server::Server;

fn start() -> Browser {
    let browser = Browser::start().expect("a browser");
    browser.prefer(Scheme::Light).expect("a scheme");
    browser.resize(1280, 900).expect("a size");
    browser
}

/// Opens a view and waits until it shows `count` elements of a selector.
#[track_caller]
fn open(browser: &Browser, server: &Server, view: &str, what: &str, count: usize) {
    browser.open(&format!("{}#/{view}", server.url())).expect("the page");
    wait(browser, what, count);
}

#[track_caller]
fn wait(browser: &Browser, what: &str, count: usize) {
    let script = "return document.querySelectorAll(arguments[0]).length === arguments[1]";
    browser
        .until(&format!("{count} of {what}"), script, &[json!(what), json!(count)])
        .expect("the elements are shown");
}

#[track_caller]
fn wait_for_text(browser: &Browser, what: &str, text: &str) {
    let script = "return document.querySelector(arguments[0])?.textContent.includes(arguments[1])";
    browser.until(text, script, &[json!(what), json!(text)]).expect("the text is shown");
}

fn text(browser: &Browser, what: &str) -> String {
    let content =
        browser.run("return document.querySelector(arguments[0])?.textContent ?? ''", &[json!(what)]);
    content.expect("text").as_str().expect("text").to_owned()
}

const FINDING: &str = "#view-findings .findings:not(details .findings) > details";
const POD: &str = "#view-pods .pods > details";
const EVENT: &str = "#view-events .events > li";

#[test]
fn each_view_is_legible_in_light_dark_and_narrow_form() {
    let server = Server::start(node::node(9, 6));
    let browser = start();
    let views = [
        ("findings", FINDING, 6),
        ("pods", POD, 9),
        ("pools", "#view-pools .pool", 2),
        ("boots", "#view-boots details", 5),
        ("agent", "#view-agent table", 2),
    ];
    for (form, scheme, width) in
        [("light", Scheme::Light, 1280), ("dark", Scheme::Dark, 1280), ("narrow", Scheme::Light, 380)]
    {
        browser.prefer(scheme).expect("a scheme");
        browser.resize(width, 900).expect("a size");
        for (view, what, count) in views {
            // Opening another view of the same page would not load the page again.
            browser.open("about:blank").expect("a page");
            open(&browser, &server, view, what, count);
            wait_for_text(&browser, "#link", "live");
            // Opens the first row, so that its contents are checked too.
            browser.run("document.querySelector('main > section:not([hidden]) details:not(.past) > summary')?.click()", &[]).expect("a row");
            if matches!(view, "findings" | "pods" | "boots") {
                browser
                    .until("its contents", "return document.querySelector('details[open] .body table')", &[])
                    .expect("contents");
            }
            browser.screenshot(&format!("page-{view}-{form}")).expect("a picture");
            look::check_legible(&browser);
            look::check_fits(&browser);
        }
        browser.run("location.hash = '#/events'", &[]).expect("a view");
        for event in node::events().into_iter().take(40) {
            server.send(event);
        }
        wait(&browser, EVENT, 40);
        browser.screenshot(&format!("page-events-{form}")).expect("a picture");
        look::check_legible(&browser);
        look::check_fits(&browser);
        look::check_no_other_requests(&browser, &server.url());
    }
}

#[test]
fn everything_works_with_the_keyboard() {
    let server = Server::start(node::node(5, 3));
    let browser = start();
    open(&browser, &server, "findings", FINDING, 3);
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
    // The first row of the view.
    tab("critical");
    browser.press(&[], &[key::ENTER]).expect("a key");
    browser
        .until("its evidence", "return document.querySelector('details[open] .evidence tbody tr')", &[])
        .expect("evidence");
    browser.press(&[key::SHIFT], &[key::TAB]).expect("a key");
    assert_eq!(look::focus(&browser)["id"], "filter", "from the view back to the filter");
    browser.press(&[key::SHIFT], &[key::TAB]).expect("a key");
    assert!(look::focus(&browser)["text"].as_str().is_some_and(|it| it.starts_with("Agent")));
    for _ in 0..4 {
        browser.press(&[key::SHIFT], &[key::TAB]).expect("a key");
    }
    browser.press(&[], &[key::ENTER]).expect("a key");
    // The view may have had its rows before it was selected, so they do not show that it is selected.
    browser
        .until(
            "the selected view has the focus",
            "return document.activeElement.matches('#view-pods h2')",
            &[],
        )
        .expect("the focus");
    wait(&browser, POD, 5);
    browser.press(&[], &['/']).expect("a key");
    assert_eq!(look::focus(&browser)["id"], "filter");
    browser.write("web-3").expect("keys");
    wait(&browser, POD, 1);
    browser.press(&[], &[key::ESCAPE]).expect("a key");
    wait(&browser, POD, 5);
    look::check_no_other_requests(&browser, &server.url());
}

/// The worst finding is the last effect, and the cause is still listed first.
#[test]
fn an_incident_is_shown_from_its_cause_to_its_last_effect() {
    let server = Server::start(node::node(1, 0));
    server.change(|node| node.findings = node::incident());
    let browser = start();
    open(&browser, &server, "findings", FINDING, 3);
    let rows = browser
        .run(
            "return [...document.querySelectorAll('#view-findings .findings > details')].map((it) =>
                [it.dataset.depth, it.querySelector('b').textContent, it.querySelector('.because')?.textContent ?? ''].join(' '))",
            &[],
        )
        .expect("the rows");
    let expected = [
        "0 duplicate_sandbox ",
        "1 teardown_out_of_order caused by duplicate_sandbox",
        "2 leaked_address caused by teardown_out_of_order",
    ];
    assert_eq!(rows, serde_json::json!(expected));
    browser.screenshot("page-incident").expect("a picture");
}

#[test]
fn the_token_is_requested_and_not_stored() {
    let server = Server::start(node::node(3, 1));
    server.ask_for("s3cret");
    let browser = start();
    browser.open(&server.url()).expect("the page");
    browser
        .until(
            "the token form",
            "return !document.querySelector('#ask').hidden && document.activeElement.id === 'token'",
            &[],
        )
        .expect("the token form");
    browser.screenshot("page-token").expect("a picture");
    look::check_legible(&browser);
    browser.write("wrong").expect("keys");
    browser.press(&[], &[key::ENTER]).expect("a key");
    wait_for_text(&browser, "#ask-why", "That is not the token.");
    browser.write("s3cret").expect("keys");
    browser.press(&[], &[key::ENTER]).expect("a key");
    wait(&browser, FINDING, 1);
    wait_for_text(&browser, "#link", "live");
    let stored = browser.run("return [localStorage.length, sessionStorage.length, document.cookie, location.href.includes('s3cret')]", &[]);
    assert_eq!(stored.expect("the browser's storage"), json!([0, 0, "", false]));
}

#[test]
fn text_of_the_node_never_becomes_a_tag() {
    let server = Server::start(node::hostile());
    let browser = start();
    for (view, what) in [
        ("findings", FINDING),
        ("pods", POD),
        ("pools", ".pool"),
        ("boots", "#view-boots details"),
        ("agent", "#view-agent table"),
    ] {
        browser.open("about:blank").expect("a page");
        browser.open(&format!("{}#/{view}", server.url())).expect("the page");
        browser.until(view, "return document.querySelector(arguments[0])", &[json!(what)]).expect("a row");
        browser.run("document.querySelector('main > section:not([hidden]) details:not(.past) > summary')?.click()", &[]).expect("a row");
        server.send(
            json!({ "event": "pod.gone", "pod": { "name": node::HOSTILE, "namespace": node::HOSTILE }, "text": node::HOSTILE }),
        );
        wait_for_text(&browser, "#link", "live");
        if view == "findings" {
            browser
                .until("evidence", "return document.querySelector('details[open] .body')", &[])
                .expect("evidence");
            browser.screenshot("page-hostile").expect("a picture");
        }
        let counts = browser.run(
            "return [document.querySelectorAll('script:not([src=\"app.js\"]), img, iframe, object, style, base, [onerror], [onload]').length,
               document.querySelector('main > section:not([hidden])').textContent.includes('<img src=x onerror=\"alert(2)\">'),
               /[\\u202a-\\u202e\\u2066-\\u2069\\u0000-\\u0009]/.test(document.documentElement.outerHTML)]",
            &[],
        );
        assert_eq!(counts.expect("counts"), json!([0, true, false]), "{view}");
        look::check_fits(&browser);
    }
    look::check_no_other_requests(&browser, &server.url());
}
