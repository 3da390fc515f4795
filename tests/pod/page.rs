//! The agent's own page in a real browser, while real pods come and go: what it shows without being loaded again.

use std::net::TcpListener;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tests::{
    browser::{Browser, Scheme},
    keyed::Faults,
    node::Node,
    story::{Stage, job, service},
    stream::Stream,
};

use crate::verdict::declared_store;

const FINDING: &str = "#view-findings .findings:not(details .findings) > details";
const POD: &str = "#view-pods .pods > details";

/// Waits until something of this kind says all of these words.
fn until_said(browser: &Browser, what: &str, words: &[&str]) -> Result<()> {
    let script = "return [...document.querySelectorAll(arguments[0])]
        .some((it) => arguments[1].every((word) => it.textContent.includes(word)))";
    browser.until(&format!("{words:?} in {what}"), script, &[json!(what), json!(words)]).map(drop)
}

fn agent(node: &Node, address: &str) -> Result<Stream> {
    let store = declared_store(node).context("a store")?;
    Stream::start(&[
        "run",
        "--listen",
        address,
        "--socket",
        "none",
        "--state-dir",
        "none",
        "--leak-grace",
        "5s",
        "--ipam-store",
        &store,
    ])
}

#[test]
fn it_shows_what_happens_on_the_node() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    // One that is free now.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let first = agent(&node, &address)?;
    let browser = Browser::start()?;
    browser.prefer(Scheme::Light)?;
    browser.resize(1280, 900)?;
    browser.open(&format!("http://{address}/#/pods"))?;
    until_said(&browser, "#link", &["live"])?;

    // A pod that starts now, with how it did and its address.
    let mut kubelet = node.kubelet()?;
    let pod = service("seen-0");
    kubelet.prepare(&pod)?;
    let sandbox = kubelet.run_sandbox(&pod, 0)?;
    kubelet.run_container(&pod, &sandbox, &pod.containers[0], 0)?;
    until_said(&browser, POD, &["seen-0"])?;
    let open =
        "[...document.querySelectorAll(arguments[0])].find((it) => it.textContent.includes(arguments[1]))
        .querySelector('summary').click()";
    browser.run(open, &[json!(POD), json!("seen-0")])?;
    let ip = sandbox.addresses.first().context("an address")?;
    until_said(&browser, &format!("{POD}[open]"), &["seen-0", "cni keyed", "running", ip])?;
    browser.screenshot("node-pods")?;

    // One whose second sandbox nobody needs, and the address that is lost with it.
    browser.run("location.hash = '#/findings'", &[])?;
    let mut stage = Stage::new(&mut node)?;
    let truth = stage.redundant_sandbox(&job("redundant"))?;
    let lost = truth.held.keys().next().context("no address was lost")?.to_string();
    until_said(&browser, FINDING, &["leaked_address", "redundant", &lost])?;
    until_said(&browser, FINDING, &["duplicate_sandbox", "redundant"])?;
    browser.screenshot("node-findings")?;
    stage.clean()?;
    ensure!(browser.complaints()?.is_empty(), "{:?}", browser.complaints()?);
    let own = format!("http://{address}/");
    let elsewhere: Vec<String> =
        browser.requests()?.into_iter().filter(|url| !url.starts_with(&own)).collect();
    ensure!(elsewhere.is_empty(), "it asks {elsewhere:?}");

    // The next agent finds anew what is still so.
    first.end()?;
    until_said(&browser, "#link", &["disconnected since"])?;
    let second = agent(&node, &address)?;
    until_said(&browser, "#link", &["live"])?;
    until_said(&browser, FINDING, &["leaked_address", &lost])?;
    browser.run("location.hash = '#/pods'", &[])?;
    until_said(&browser, POD, &["seen-0"])?;
    second.end()?;

    drop(browser);
    kubelet.stop_sandbox(&sandbox.id)?;
    kubelet.remove_cgroup(&pod)?;
    kubelet.remove_sandbox(&sandbox.id)?;
    kubelet.remove_logs(&pod)?;
    node.stop()
}
