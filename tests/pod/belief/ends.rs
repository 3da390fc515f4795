//! Containers end in four ways. The agent reports each with its cause, has no finding about the runtime, and
//! knows of each end long before clients that ask the runtime.

use std::{collections::BTreeMap, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::{machine, node::Node, skipped, stream::Stream};

use super::{
    AFTERWARDS, End, Subject, boot_ns, exited, observed,
    observer::{Observer, head, row},
    wait_exit,
};
use crate::verdict::{self, findings};

const UID: &str = "00000000-0142-4000-8000-0000000be11e";

/// How many containers end in each way.
fn each() -> usize {
    if machine::is_soak() { 25 } else { 3 }
}

/// Returns when the agent learned of each end from the runtime, if the runtime sends it events.
fn heard(events: Vec<(u64, Value)>) -> BTreeMap<String, u64> {
    let ends = events.into_iter().filter(|(_, event)| event["what"] == "stopped");
    ends.filter_map(|(at, event)| Some((event["id"].as_str()?.to_owned(), at))).collect()
}

#[test]
#[expect(clippy::print_stderr, reason = "figures for whoever looks")]
fn ends_of_four_kinds_are_told_with_their_causes_and_the_runtime_is_not_accused() -> Result<()> {
    // Pods without a kubelet are a blind spot after ten minutes.
    let _kubelet = verdict::Kubelet::start()?;
    skipped::retry(|_| {
        let node = Node::start()?;
        let folder = tempfile::tempdir()?;
        let recording = folder.path().join("recording");
        let mut stream = Stream::start(&["record", &recording.display().to_string()])?;
        let mut kubelet = node.kubelet()?;
        let version = kubelet.cri().version()?.runtime_version;
        let lister = Observer::start("list", node.socket())?;
        // Where all clients share one stream of events, the agent leaves it to others. This is the only other
        // client.
        let listener = Observer::start("events", node.socket())?;

        let mut subject = Subject::run(&mut kubelet, "ends", UID)?;
        let mut ends = BTreeMap::new();
        for number in 0..each() {
            for end in End::ALL {
                let container = subject.start(&mut kubelet, &end.container(number))?;
                end.cause(&mut kubelet, &container)?;
                wait_exit(&mut kubelet, &container.id, end)?;
                ends.insert(container.id, end);
            }
        }
        thread::sleep(AFTERWARDS);
        for (id, end) in &ends {
            let is_of_it = |event: &Value| event["container"]["id"] == *id;
            let is_end = |event: &Value| event["event"] == "container.exited" && is_of_it(event);
            let told = stream.until("the end of a container", is_end);
            told.with_context(|| {
                let all = stream.received.events.iter().filter(|event| is_of_it(event));
                let all: Vec<_> = all.map(|event| format!("{} {}", event["event"], event["text"])).collect();
                format!("{end:?}, of which is told: {all:#?}")
            })?;
        }
        let (received, _) = stream.end()?;
        let (lists, events) = (lister.end()?.context("every runtime has lists")?, listener.end()?);
        subject.stop(&mut kubelet)?;
        node.stop()?;

        let mut ways = vec![("a list each second", lists)];
        ways.extend(events.map(|events| ("an event of the runtime", events)));
        let heard = heard(observed(&recording, "runtime_event")?);
        if !heard.is_empty() {
            ways.push(("an event, as the agent hears it", heard));
        }
        eprintln!("containerd {version}\n{}", head());
        for (way, known) in ways {
            let mut lags = Vec::new();
            for (id, end) in &ends {
                let died = boot_ns(exited(&received, id)?)?;
                let known =
                    known.get(id).with_context(|| format!("{way}: the end of {end:?} is not known"))?;
                let lag = known.checked_sub(died).with_context(|| format!("{way}: known before {end:?}"))?;
                lags.push(Duration::from_nanos(lag));
            }
            ensure!(lags.iter().all(|lag| *lag < machine::patience()), "{way}: {lags:?}");
            eprintln!("{}", row(way, lags));
        }
        for (id, end) in &ends {
            end.check(exited(&received, id)?)?;
        }
        let found = findings(&received);
        ensure!(found.is_empty(), "found in {} healthy ends: {found:#?}", ends.len());
        Ok(())
    })
}
