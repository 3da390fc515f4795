//! One event of the runtime is lost on its way to the agent.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use serde_json::Value;
use tests::{
    clock,
    cri::{message::event::ContainerEventType, proxy::Proxy},
    machine,
    node::Node,
    skipped,
    stream::Stream,
};

use super::{AFTERWARDS, End, Subject, told, wait_exit};
use crate::verdict::findings;

const UID: &str = "00000000-0142-4000-8000-0000000be13e";
/// The number of containers. The event of one of their ends is withheld.
const COUNT: usize = 5;
/// A runtime that notices an end later than this, as under emulation on a busy machine, gets a true finding.
const NOTICES: Duration = Duration::from_secs(8);
/// An agent's stream counts as opened after this time.
const OPENED: Duration = Duration::from_secs(2);

/// From this version on each client has its own events. With an earlier version the agent leaves the events
/// to the kubelet.
fn has_own_events(version: &str) -> bool {
    let major = version.trim_start_matches('v').split('.').next();
    major.and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 2)
}

#[test]
fn of_an_event_that_is_withheld_is_told_and_of_no_other() -> Result<()> {
    skipped::retry(|_| {
        let node = Node::start()?;
        let proxy = Proxy::start(node.socket())?;
        let mut kubelet = node.kubelet()?;
        let has_events = has_own_events(&kubelet.cri().version()?.runtime_version);
        let mut stream = Stream::start(&["watch"])?;
        let mut subject = Subject::run(&mut kubelet, "withheld", UID)?;
        let mut containers = Vec::new();
        for number in 0..COUNT {
            containers.push(subject.start(&mut kubelet, &End::Killed.container(number))?);
        }
        if has_events {
            clock::poll("a stream of events", machine::patience(), || {
                Ok((proxy.streams() > 0).then_some(()))
            })?;
            thread::sleep(OPENED);
        }
        let victim = &containers[COUNT / 2].id;
        proxy.withhold(victim, ContainerEventType::Stopped);
        for it in &containers {
            End::Killed.cause(&mut kubelet, it)?;
        }
        let begun = Instant::now();
        let mut late = BTreeSet::new();
        for it in &containers {
            wait_exit(&mut kubelet, &it.id, End::Killed)?;
            if begun.elapsed() > NOTICES {
                late.insert(format!("stale_runtime_status/{}", it.id));
            }
        }
        let key = format!("missed_runtime_event/{victim}/stopped");
        let is_missed =
            |event: &Value| event["event"] == "finding.confirmed" && event["finding"]["key"] == *key;
        if has_events {
            stream.until("the event that was withheld", is_missed)?;
        }
        thread::sleep(AFTERWARDS);
        let (received, _) = stream.end()?;
        let (withheld, streams) = (proxy.withheld(), proxy.streams());
        subject.stop(&mut kubelet)?;
        drop(kubelet);
        proxy.stop()?;
        node.stop()?;

        let expected: BTreeSet<_> = has_events.then_some(key).into_iter().collect();
        let told: BTreeSet<_> = told(&received).difference(&late).cloned().collect();
        ensure!(told == expected, "not {expected:?} is told: {:#?}", findings(&received));
        ensure!(withheld.len() == expected.len(), "{withheld:?} were withheld, not {expected:?}");
        ensure!(has_events == (streams > 0), "the events were asked for {streams} times");
        Ok(())
    })
}
