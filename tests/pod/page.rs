//! The agent's own page in a real browser while real pods come and go. The page must update without a reload.

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

/// Waits until an element of this selector contains all these words.
fn until_shown(browser: &Browser, what: &str, words: &[&str]) -> Result<()> {
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
fn the_page_follows_the_node() -> Result<()> {
    let mut node = Node::start_keyed(Faults::default())?;
    // Picks a free port.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let first = agent(&node, &address)?;
    let browser = Browser::start()?;
    browser.prefer(Scheme::Light)?;
    browser.resize(1280, 900)?;
    browser.open(&format!("http://{address}/#/pods"))?;
    until_shown(&browser, "#link", &["live"])?;

    // A pod that starts now is shown, with its phases and its address.
    let mut kubelet = node.kubelet()?;
    let pod = service("seen-0");
    kubelet.prepare(&pod)?;
    let sandbox = kubelet.run_sandbox(&pod, 0)?;
    kubelet.run_container(&pod, &sandbox, &pod.containers[0], 0)?;
    until_shown(&browser, POD, &["seen-0"])?;
    let open =
        "[...document.querySelectorAll(arguments[0])].find((it) => it.textContent.includes(arguments[1]))
        .querySelector('summary').click()";
    browser.run(open, &[json!(POD), json!("seen-0")])?;
    let ip = sandbox.addresses.first().context("an address")?;
    until_shown(&browser, &format!("{POD}[open]"), &["seen-0", "cni keyed", "running", ip])?;
    browser.screenshot("node-pods")?;

    // A pod's redundant second sandbox and its leaked address are shown.
    browser.run("location.hash = '#/findings'", &[])?;
    let mut stage = Stage::new(&mut node)?;
    let truth = stage.redundant_sandbox(&job("redundant"))?;
    let lost = truth.held.keys().next().context("no address was lost")?.to_string();
    until_shown(&browser, FINDING, &["leaked_address", "redundant", &lost])?;
    until_shown(&browser, FINDING, &["duplicate_sandbox", "redundant"])?;
    browser.screenshot("node-findings")?;
    stage.clean()?;
    ensure!(browser.complaints()?.is_empty(), "{:?}", browser.complaints()?);
    let own = format!("http://{address}/");
    let elsewhere: Vec<String> =
        browser.requests()?.into_iter().filter(|url| !url.starts_with(&own)).collect();
    ensure!(elsewhere.is_empty(), "the page sends requests to {elsewhere:?}");

    // A restarted agent finds again what is still wrong.
    first.end()?;
    until_shown(&browser, "#link", &["disconnected since"])?;
    let second = agent(&node, &address)?;
    until_shown(&browser, "#link", &["live"])?;
    until_shown(&browser, FINDING, &["leaked_address", &lost])?;
    browser.run("location.hash = '#/pods'", &[])?;
    until_shown(&browser, POD, &["seen-0"])?;
    second.end()?;

    drop(browser);
    kubelet.stop_sandbox(&sandbox.id)?;
    kubelet.remove_cgroup(&pod)?;
    kubelet.remove_sandbox(&sandbox.id)?;
    kubelet.remove_logs(&pod)?;
    node.stop()
}
