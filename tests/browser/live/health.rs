//! The page's statement about the node's health: healthy only without a reason for doubt.

use serde_json::json;

use super::{node, server::Server, start, text, wait_for_text};
use crate::look;

#[test]
fn a_healthy_node_is_shown_with_the_reasons() {
    let server = Server::start(node::node(3, 0));
    let browser = start();
    browser.open(&server.url()).expect("the page");
    wait_for_text(&browser, "#verdict", "Nothing is wrong.");
    let content = text(&browser, "#verdict");
    for words in [
        "11 of 11 signals are seen",
        "what was there before was read",
        "Nothing was lost",
        "3 pods and 2 ranges",
    ] {
        assert!(content.contains(words), "no {words:?} in {content:?}");
    }
    browser.screenshot("page-well").expect("a picture");
    look::check_legible(&browser);

    server.change(|node| {
        node.doctor["agent"]["ready"] = json!(false);
        node.doctor["agent"]["reasons"] = json!(["records were lost in the last minute"]);
        node.doctor["agent"]["losses"] = json!({ "lifecycle_ring": "17" });
    });
    server.send(json!({ "event": "gap", "gap": { "what": "lifecycle_ring", "count": "17" } }));
    wait_for_text(&browser, "#verdict", "Nothing was found, but not all can be seen.");
    assert!(text(&browser, "#health").contains("Not ready: records were lost in the last minute."));
    browser.screenshot("page-unsure").expect("a picture");
    look::check_legible(&browser);
    look::check_no_other_requests(&browser, &server.url());
}

/// Each of these cases alone is a reason for doubt, and the page names it.
#[test]
fn each_reason_for_doubt_is_named() {
    type Change = fn(&mut node::Node);
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
    for (reason, change) in cases {
        let server = Server::start(node::node(3, 0));
        server.change(change);
        browser.open("about:blank").expect("a page");
        browser.open(&server.url()).expect("the page");
        wait_for_text(&browser, "#verdict", reason);
        wait_for_text(&browser, "#verdict", "Nothing was found, but not all can be seen.");
        assert!(!text(&browser, "#verdict").contains("Nothing is wrong"), "{reason}");
    }
    // The page must not keep an earlier healthy answer.
    let server = Server::start(node::node(3, 0));
    browser.open("about:blank").expect("a page");
    browser.open(&server.url()).expect("the page");
    wait_for_text(&browser, "#verdict", "Nothing is wrong.");
    server.go_down();
    wait_for_text(&browser, "#verdict", "The agent does not answer");
}
