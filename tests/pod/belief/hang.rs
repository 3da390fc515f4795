//! The runtime hangs for a while, in the middle of pods that come and go.

use std::{
    collections::BTreeMap,
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::{
    sys::{
        signal::{Signal, kill},
        socket::{getsockopt, sockopt::PeerCredentials},
    },
    unistd::Pid,
};
use serde_json::Value;
use tests::{
    clock,
    kubelet::{Container, wait_runs},
    machine,
    node::Node,
    skipped,
    stream::Stream,
};

use super::{AFTERWARDS, CODE, KILLED, Subject, boot_ns, exited, observed, told};
use crate::{LIMIT, many::live_many};

const UID: &str = "00000000-0142-4000-8000-0000000be12e";
/// The minimum time for which the runtime is stopped.
const STOPPED: Duration = Duration::from_secs(20);
/// The finding is reported within this time. The runtime is asked every 15 s, has 10 s to answer, and is
/// asked again after half a minute.
const TOLD: Duration = Duration::from_secs(75);
const KIND: &str = "runtime_unresponsive";
/// The pods that come and go meanwhile: in all, and at a time.
const PODS: usize = 20;
const AT_ONCE: usize = 2;

/// A stopped runtime. It continues when this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn stop(socket: &Path) -> Result<Self> {
        let peer = getsockopt(&UnixStream::connect(socket)?, PeerCredentials)?;
        let pid = Pid::from_raw(peer.pid());
        kill(pid, Signal::SIGSTOP).context("stop the runtime")?;
        Ok(Self(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have ended with the test.
        kill(self.0, Signal::SIGCONT).ok();
    }
}

/// Returns for each container when the agent first learned of its end, by a list or an event, and the exit
/// code, which only lists have.
fn noticed(recording: &Path) -> Result<BTreeMap<String, (u64, Option<i64>)>> {
    let mut all: BTreeMap<String, (u64, Option<i64>)> = BTreeMap::new();
    let mut note = |at: u64, it: &Value| {
        let id = it["id"].as_str().context("no id")?.to_owned();
        let known = all.entry(id).or_insert((at, None));
        *known = (known.0.min(at), known.1.or(it["exit_code"].as_i64()));
        anyhow::Ok(())
    };
    for (at, status) in observed(recording, "runtime_status")? {
        let came = status["came"].as_array().into_iter().flatten();
        came.filter(|it| it["state"] == "exited").try_for_each(|it| note(at, it))?;
    }
    for (at, event) in observed(recording, "runtime_event")? {
        if event["what"] == "stopped" {
            note(at, &event)?;
        }
    }
    Ok(all)
}

/// Returns a path in the form that keys of findings have.
fn colons(path: &Path) -> String {
    path.display().to_string().replace('/', ":")
}

#[test]
#[expect(clippy::print_stderr, reason = "figures for whoever looks")]
fn a_runtime_that_hangs_is_told_with_what_its_process_does_and_nothing_else() -> Result<()> {
    skipped::retry(|_| {
        let node = Node::start()?;
        let folder = tempfile::tempdir()?;
        let recording = folder.path().join("recording");
        let mut stream = Stream::start(&["record", &recording.display().to_string()])?;
        let mut kubelet = node.kubelet()?;
        let mut subject = Subject::run(&mut kubelet, "hangs", UID)?;
        let killed = subject.start(&mut kubelet, &Container::shell("killed", "exec sleep 1000000"))?;
        // It ends while the runtime is stopped.
        let exits = Container::shell("exits", &format!("sleep {}; exit {CODE}", STOPPED.as_secs() / 2));

        // A runtime that has just started may be silent, unless it has given its list.
        clock::poll("the runtime's list", machine::patience(), || {
            // The last line may be cut.
            let lists = observed(&recording, "runtime_status").unwrap_or_default();
            Ok((!lists.is_empty()).then_some(()))
        })?;
        let (churned, told_after) = thread::scope(|scope| -> Result<_> {
            let other = kubelet.another()?;
            let churn = scope.spawn(move || live_many(&other, machine::share_of(PODS), AT_ONCE));
            subject.start(&mut kubelet, &exits)?;
            wait_runs(killed.pid)?;
            let stopped = Stopped::stop(node.socket())?;
            let begun = Instant::now();
            kill(Pid::from_raw(killed.pid), Signal::SIGKILL).context("kill a container")?;
            let is_told = |event: &Value| {
                let detail = &event["finding"]["detail"];
                let threads = detail["threads"].as_array();
                event["event"] == "finding.confirmed"
                    && event["finding"]["kind"] == KIND
                    && detail["state"] == "stopped"
                    && threads.is_some_and(|all| all.iter().all(|it| it["state"] == "stopped"))
            };
            stream.until_after(TOLD, "the finding, while the runtime is stopped", is_told)?;
            let told_after = begun.elapsed();
            thread::sleep(STOPPED.saturating_sub(told_after));
            drop(stopped);
            let lives = churn.join().map_err(|_panic| anyhow!("the churn panicked"))??;
            Ok((lives.len(), told_after))
        })?;
        let is_over = |event: &Value| event["event"] == "finding.closed" && event["finding"]["kind"] == KIND;
        stream.until("the end of the finding", is_over)?;
        for it in subject.containers.values() {
            kubelet.wait_exit(&it.id, LIMIT)?;
        }
        thread::sleep(AFTERWARDS);
        let (received, _) = stream.end()?;
        let (noticed, containers) = (noticed(&recording)?, subject.containers.clone());
        let socket = node.socket().to_owned();
        subject.stop(&mut kubelet)?;
        node.stop()?;

        // Its records are read through the same socket, perhaps before it is known to hang.
        let (key, spot) = (colons(&socket), format!("blind_spot/runtime/{}", colons(&socket)));
        let key = format!("{KIND}/{key}");
        let told = told(&received);
        ensure!(told.contains(&key) && told.iter().all(|it| [&key, &spot].contains(&it)), "{told:?}");
        for key in &told {
            let of_it = |event: &&Value| event["finding"]["key"] == *key;
            let last = received.events.iter().rfind(of_it).map(|event| &event["event"]);
            ensure!(last.is_some_and(|name| name == "finding.closed"), "{key} was not closed: {last:?}");
        }
        for (name, it) in &containers {
            let (at, code) = noticed.get(&it.id).with_context(|| format!("nothing has the end of {name}"))?;
            let expected = if name == "exits" { CODE } else { KILLED };
            ensure!(
                code.is_none_or(|code| code == i64::from(expected)),
                "{name} ended with {code:?}, as the runtime says"
            );
            let lag = Duration::from_nanos(at.saturating_sub(boot_ns(exited(&received, &it.id)?)?));
            ensure!(
                lag < told_after.max(STOPPED) + machine::patience(),
                "the end of {name} was known after {lag:?}"
            );
            eprintln!("the end of {name} was known after {lag:?}");
        }
        eprintln!("{churned} pods came and went; the finding was told after {told_after:?}");
        Ok(())
    })
}
