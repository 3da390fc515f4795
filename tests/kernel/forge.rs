//! A local user who is not root cannot make the agent report anything about the node's pods.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use serde_json::Value;
use tests::program;

use crate::{
    cni::call::{Environment, Rights, Runtime},
    container::{actor, new_id},
};

/// The number of failed ADDs for one pod. From the node's own runtime that many would be a finding.
const TRIES: usize = 3;

#[test]
fn a_user_who_is_not_root_forges_neither_pods_nor_daemons_nor_boots() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let stream = folder.path().join("stream");
    let mut child = Command::new(program::agent()?)
        .args(["run", "--no-pin", "--output", "json", "--state-dir", "none"])
        .stdout(File::create(&stream)?)
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let mut stderr = BufReader::new(child.stderr.take().context("no output")?).lines();
    let first = stderr.next().context("the agent prints nothing")??;
    ensure!(first.contains("hooks attached"), "the agent printed: {first}");
    let done = forge_and_call();
    signal::kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGINT)?;
    for line in stderr {
        line?;
    }
    let status = child.wait()?;
    ensure!(status.success(), "the agent ended with {status}");
    done?;

    let mut events = Vec::new();
    for line in BufReader::new(File::open(&stream)?).lines() {
        events.push(serde_json::from_str::<Value>(&line?)?);
    }
    let of =
        |word: &str| -> Vec<&Value> { events.iter().filter(|one| one.to_string().contains(word)).collect() };
    let real = of("pod-of-root");
    ensure!(
        real.iter().any(|one| one.to_string().contains("cni.finished")),
        "root's own call is not reported: {real:#?}"
    );
    for forged in ["pod-of-nobody", "as-nobody", "cni_failing"] {
        let reported = of(forged);
        ensure!(reported.is_empty(), "{forged}: {reported:#?}");
    }
    Ok(())
}

/// Runs as user nobody a runtime whose plugins fail, daemons that start, and a restart of the node. Then
/// makes one call as root.
fn forge_and_call() -> Result<()> {
    let call = |pod: &str| -> Result<Environment> {
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}");
        Ok(Environment::of_add(&new_id()?).with("CNI_ARGS", &args))
    };
    let mut user = Runtime::start_by_user(Rights::Own)?;
    for _ in 0..TRIES {
        user.call(&call("pod-of-nobody")?, &[])?;
    }
    let folder = tempfile::Builder::new().prefix("as-nobody").tempdir()?;
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    for name in ["containerd", "kubelet", "reboot"] {
        let path = program::alias("actor", folder.path(), name)?;
        let status = Command::new(actor()?).args(["as", "65534"]).arg(path).args(["exit", "0"]).status()?;
        ensure!(status.success(), "{name} ended with {status}");
    }
    Runtime::start()?.call(&call("pod-of-root")?, &[])?;
    Ok(())
}
