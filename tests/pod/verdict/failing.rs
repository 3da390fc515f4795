//! A runtime, and a container of a CNI plugin's pod, that do not come up until their cause is repaired.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use tests::{
    kubelet::{Container, Kubelet, Pod, Sandbox},
    stream::Stream,
};

use super::{findings, minutes, stuck::until_closed_after, watch_store};
use crate::LIMIT;

/// Where containerd's output is on a node without a journal.
const LOG: &str = "/var/log/containerd.log";
/// The UID of the plugin's pod, the key of its finding, and what its container says.
const PLUGINS_UID: &str = "5d1cb95b-0000-4000-8000-00000000fa11";
const PLUGINS_KEY: &str = "daemon_failing/5d1cb95b-0000-4000-8000-00000000fa11/main";
const WORDS: &str = "cannot write /etc/cni/net.d/10-flannel.conflist";
/// How long a daemon runs until it has come up, and how long it fails until that is confirmed.
const UP: Duration = Duration::from_secs(60);

/// The log. When this is dropped, it is as it was before.
struct Log {
    file: File,
    length: Option<u64>,
}

impl Log {
    fn open() -> Result<Self> {
        let length = fs::metadata(LOG).ok().map(|before| before.len());
        let file = File::options().create(true).append(true).open(LOG).context(LOG)?;
        Ok(Self { file, length })
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Nothing depends on it.
        let _ = match self.length {
            Some(length) => self.file.set_len(length),
            None => fs::remove_file(LOG),
        };
    }
}

/// A containerd that is asked to end when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(pid) = i32::try_from(self.0.id()) {
            kill(Pid::from_raw(pid), Signal::SIGTERM).ok();
        }
        let _ = self.0.wait();
    }
}

fn start(program: &Path, configuration: &Path, log: &Log) -> Result<Child> {
    let mut command = Command::new(program);
    command.arg("--config").arg(configuration).stdout(log.file.try_clone()?).stderr(log.file.try_clone()?);
    command.spawn().with_context(|| format!("start {command:?}"))
}

/// Whether this machine has a containerd of its own. Beside it none counts as one that does not come up, nor
/// as the one that serves pods.
pub(super) fn has_own_containerd() -> Result<bool> {
    for entry in fs::read_dir("/proc")? {
        // A process may have ended since.
        if fs::read(entry?.path().join("comm")).is_ok_and(|comm| comm == b"containerd\n") {
            return Ok(true);
        }
    }
    Ok(false)
}

#[test]
fn a_runtime_that_does_not_come_up_is_told_until_it_does() -> Result<()> {
    let folder = tempfile::tempdir()?;
    // Beside another containerd it needs another name, and then its last words are not known to be its own.
    let is_only = !has_own_containerd()?;
    let name = if is_only { "containerd" } else { "crio" };
    let program = if is_only { PathBuf::from(name) } else { folder.path().join(name) };
    if !is_only {
        fs::copy("/usr/bin/containerd", &program).context("copy containerd")?;
    }
    let key = format!("daemon_failing/{name}");
    let configuration = folder.path().join("config.toml");
    let log = Log::open()?;
    let mut stream = watch_store(None)?;
    fs::write(&configuration, "version = 2\n[plugins\n")?;
    for _ in 0..3 {
        let status = start(&program, &configuration, &log)?.wait()?;
        ensure!(status.code() == Some(1), "containerd ended with {status}");
    }
    stream.until_after(UP, "daemon_failing confirmed", |event| {
        event["event"] == "finding.confirmed" && event["finding"]["kind"] == "daemon_failing"
    })?;
    let at = |name: &str| folder.path().join(name).display().to_string();
    let repaired = format!(
        "version = 2\nroot = \"{}\"\nstate = \"{}\"\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n\
         [grpc]\naddress = \"{}\"\n",
        at("root"),
        at("state"),
        at("sock")
    );
    fs::write(&configuration, repaired)?;
    let running = Running(start(&program, &configuration, &log)?);
    until_closed_after(UP, &mut stream, &key)?;
    drop(running);
    let (received, _) = stream.end()?;
    let found = findings(&received);
    // The agent cannot read the configuration either, and says so.
    let keys: Vec<&str> =
        found.keys().map(String::as_str).filter(|key| !key.starts_with("blind_spot/")).collect();
    ensure!(keys == [&*key], "{found:#?}");
    let it = &found[&key];
    let detail = &it["detail"];
    ensure!(detail["count"] == 3 && detail["exit_code"] == 1, "{it:#}");
    if !is_only {
        ensure!(detail["said"].is_null() && detail["unsaid"].is_string(), "{it:#}");
        return Ok(());
    }
    let said = &detail["said"][0];
    ensure!(said["by"] == "runtime" && said["source"] == LOG, "{it:#}");
    let text = said["text"].as_str().context("nothing is quoted")?;
    ensure!(text.contains("toml"), "{text}");
    let summary = it["summary"].as_str().context("no summary")?;
    ensure!(summary.contains(text), "{summary}");
    Ok(())
}

/// Returns a pod on the host's network whose container says why it ends.
fn failing_pod(name: &str, uid: &str) -> Pod {
    let pod = Pod { host_network: true, namespace: "kube-system".to_owned(), ..Pod::new(name, uid) };
    pod.with(Container::shell("main", &format!("echo 'it begins'; echo '{WORDS}' >&2; exit 1")))
}

/// Starts the pod, and its container three times.
fn fail(kubelet: &mut Kubelet, pod: &Pod) -> Result<Sandbox> {
    kubelet.prepare(pod)?;
    let sandbox = kubelet.run_sandbox(pod, 0)?;
    for attempt in 0..3 {
        let started = kubelet.run_container(pod, &sandbox, &pod.containers[0], attempt)?;
        let exit = kubelet.wait_exit(&started.id, LIMIT)?;
        ensure!(exit.code == 1, "it ended with {exit:?}");
    }
    Ok(sandbox)
}

/// A pod of a CNI plugin, and one that fails in the same way and that no plugin needs.
pub(super) struct FailingPods([(Sandbox, Pod); 2]);

impl FailingPods {
    pub(super) fn start(kubelet: &mut Kubelet) -> Result<Self> {
        let plugins = failing_pod("kube-flannel-ds-x2x7q", PLUGINS_UID);
        let other = failing_pod("node-exporter-x2x7q", "5d1cb95b-0000-4000-8000-00000000fa12");
        Ok(Self([(fail(kubelet, &plugins)?, plugins), (fail(kubelet, &other)?, other)]))
    }

    pub(super) fn until_told(&self, stream: &mut Stream) -> Result<()> {
        stream.until_after(UP, "daemon_failing confirmed", |event| {
            event["event"] == "finding.confirmed" && event["finding"]["key"] == PLUGINS_KEY
        })
    }

    pub(super) fn end(&self, kubelet: &mut Kubelet) -> Result<()> {
        for (sandbox, pod) in &self.0 {
            kubelet.stop_sandbox(&sandbox.id)?;
            kubelet.remove_cgroup(pod)?;
            kubelet.remove_sandbox(&sandbox.id)?;
            kubelet.remove_logs(pod)?;
        }
        Ok(())
    }

    pub(super) fn until_over(stream: &mut Stream) -> Result<()> {
        until_closed_after(LIMIT, stream, PLUGINS_KEY)
    }
}

#[test]
fn a_container_of_a_plugins_pod_is_told_with_the_words_of_its_log() -> Result<()> {
    let it = minutes::seen()?.only("daemon_failing")?;
    ensure!(it["key"] == PLUGINS_KEY, "{it:#}");
    let detail = &it["detail"];
    ensure!(detail["count"] == 3 && detail["exit_code"] == 1, "{it:#}");
    ensure!(detail["plugins"] == json!(["flannel"]), "{it:#}");
    ensure!(detail["plugin_pod"] == "kube-system/kube-flannel-ds-x2x7q", "{it:#}");
    let said = &detail["said"][0];
    ensure!(said["by"] == "plugin" && said["text"] == WORDS, "{it:#}");
    let summary = it["summary"].as_str().context("no summary")?;
    ensure!(summary.contains(WORDS), "{summary}");
    Ok(())
}
