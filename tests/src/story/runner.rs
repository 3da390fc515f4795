//! Runs the actions of a story: the kubelet's, and those behind the runtime's back. Records each with its
//! times.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use super::{Action, Done, PodTruth, namespace_file, remove_namespace};
use crate::{
    clock,
    cri::message::sandbox::SandboxState,
    kubelet::{Container, Exit, Kubelet, Pod, Sandbox, Step, timed},
    machine,
};

pub(super) struct ActionRunner<'n> {
    pub(super) kubelet: Kubelet,
    pub(super) actions: Vec<Done>,
    pub(super) pods: Vec<PodTruth>,
    pub(super) callback: Option<Box<dyn FnMut(Action) -> Result<()> + Send + 'n>>,
}

impl ActionRunner<'_> {
    pub(super) fn new(kubelet: Kubelet) -> Self {
        Self { kubelet, actions: Vec::new(), pods: Vec::new(), callback: None }
    }

    /// Runs an action and records its times.
    pub(super) fn run<T>(
        &mut self,
        action: Action,
        pod: Option<&str>,
        sandbox: Option<&str>,
        step: impl FnOnce(&mut Kubelet) -> Result<T>,
    ) -> Result<T> {
        if let Some(callback) = &mut self.callback {
            callback(action)?;
        }
        let kubelet = &mut self.kubelet;
        let (answer, step) = timed(|| step(kubelet)).with_context(|| format!("{action:?}"))?;
        self.record(action, pod, sandbox, step, None);
        Ok(answer)
    }

    /// Runs an action that must fail. Returns the error's text.
    fn fail<T>(
        &mut self,
        action: Action,
        pod: &str,
        sandbox: Option<&str>,
        step: impl FnOnce(&mut Kubelet) -> Result<T>,
    ) -> Result<String> {
        if let Some(callback) = &mut self.callback {
            callback(action)?;
        }
        let kubelet = &mut self.kubelet;
        let (answer, step) = timed(|| Ok(step(kubelet)))?;
        let Err(error) = answer else { anyhow::bail!("{action:?} did not fail") };
        let message = format!("{error:#}");
        self.record(action, Some(pod), sandbox, step, Some(message.clone()));
        Ok(message)
    }

    fn record(
        &mut self,
        action: Action,
        pod: Option<&str>,
        sandbox: Option<&str>,
        step: Step,
        failure: Option<String>,
    ) {
        let (pod, sandbox) = (pod.map(str::to_owned), sandbox.map(str::to_owned));
        self.actions.push(Done { action, pod, sandbox, step, failure });
    }

    pub(super) fn prepare(&mut self, pod: &Pod) -> Result<()> {
        let cgroups = self.run(Action::MakeCgroup, Some(&pod.uid), None, |kubelet| kubelet.prepare(pod))?;
        self.pods.push(PodTruth {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            cgroups,
            sandboxes: Vec::new(),
            failed_sandboxes: Vec::new(),
        });
        Ok(())
    }

    pub(super) fn run_sandbox(&mut self, pod: &Pod, attempt: u32) -> Result<Sandbox> {
        let sandbox =
            self.run(Action::RunSandbox, Some(&pod.uid), None, |kubelet| kubelet.run_sandbox(pod, attempt))?;
        if let Some(done) = self.actions.last_mut() {
            done.sandbox = Some(sandbox.id.clone());
        }
        self.truth_of(pod)?.sandboxes.push(sandbox.clone());
        Ok(sandbox)
    }

    /// Runs a sandbox that must fail. The runtime's error contains the sandbox's id.
    pub(super) fn fail_sandbox(&mut self, pod: &Pod, attempt: u32) -> Result<()> {
        let message =
            self.fail(Action::RunSandbox, &pod.uid, None, |kubelet| kubelet.run_sandbox(pod, attempt))?;
        let is_id = |word: &&str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = message.split(|character: char| !character.is_ascii_alphanumeric()).find(is_id);
        let id = id.with_context(|| format!("no sandbox id in: {message}"))?.to_owned();
        if let Some(done) = self.actions.last_mut() {
            done.sandbox = Some(id.clone());
        }
        self.truth_of(pod)?.failed_sandboxes.push(id);
        Ok(())
    }

    pub(super) fn run_container(
        &mut self,
        pod: &Pod,
        sandbox: &Sandbox,
        container: &Container,
        attempt: u32,
    ) -> Result<String> {
        let started = self.run(Action::RunContainer, Some(&pod.uid), Some(&sandbox.id), |kubelet| {
            kubelet.run_container(pod, sandbox, container, attempt)
        })?;
        Ok(started.id)
    }

    /// Runs a container to its end.
    pub(super) fn complete(
        &mut self,
        pod: &Pod,
        sandbox: &Sandbox,
        container: &Container,
        attempt: u32,
    ) -> Result<Exit> {
        let id = self.run_container(pod, sandbox, container, attempt)?;
        self.run(Action::WaitForExit, Some(&pod.uid), Some(&sandbox.id), |kubelet| {
            kubelet.wait_exit(&id, machine::patience())
        })
    }

    /// Runs the pod's containers, each to its successful end.
    pub(super) fn complete_all(&mut self, pod: &Pod, sandbox: &Sandbox) -> Result<()> {
        for container in &pod.containers {
            let exit = self.complete(pod, sandbox, container, sandbox.attempt)?;
            ensure!(exit.code == 0, "{} ended with {exit:?}", container.name);
        }
        Ok(())
    }

    pub(super) fn stop(&mut self, pod: &Pod, sandbox: &Sandbox) -> Result<()> {
        self.run(Action::StopSandbox, Some(&pod.uid), Some(&sandbox.id), |kubelet| {
            kubelet.stop_sandbox(&sandbox.id)
        })
    }

    pub(super) fn fail_to_stop(&mut self, pod: &Pod, sandbox: &Sandbox) -> Result<()> {
        let stop = |kubelet: &mut Kubelet| kubelet.try_stop_sandbox(&sandbox.id);
        self.fail(Action::StopSandbox, &pod.uid, Some(&sandbox.id), stop).map(drop)
    }

    pub(super) fn remove(&mut self, pod: &Pod, sandbox: &Sandbox) -> Result<()> {
        self.run(Action::RemoveSandbox, Some(&pod.uid), Some(&sandbox.id), |kubelet| {
            kubelet.remove_sandbox(&sandbox.id)
        })
    }

    /// Makes the kubelet's last steps for a pod.
    pub(super) fn leave(&mut self, pod: &Pod) -> Result<()> {
        self.run(Action::RemoveCgroup, Some(&pod.uid), None, |kubelet| kubelet.remove_cgroup(pod))?;
        self.kubelet.remove_logs(pod)
    }

    /// Like `leave`, with a process in the cgroup that the kubelet does not know. The cgroup of one hierarchy
    /// cannot be removed.
    pub(super) fn fail_to_leave(&mut self, pod: &Pod, cgroups: &[PathBuf]) -> Result<()> {
        let remove = |_: &mut Kubelet| -> Result<()> {
            let outcomes = cgroups
                .iter()
                .map(|cgroup| fs::remove_dir(cgroup).with_context(|| format!("remove {}", cgroup.display())));
            // Tries each and returns the first error.
            outcomes.collect::<Vec<_>>().into_iter().collect()
        };
        self.fail(Action::RemoveCgroup, &pod.uid, None, remove)?;
        self.kubelet.remove_logs(pod)
    }

    /// Removes the file of the sandbox's namespace.
    pub(super) fn lose_netns(&mut self, pod: &Pod, sandbox: &Sandbox) -> Result<()> {
        let file = namespace_file(sandbox)?
            .with_context(|| format!("the namespace of sandbox {} is bound to no file", sandbox.id))?;
        self.run(Action::LoseNetns, Some(&pod.uid), Some(&sandbox.id), |_| remove_namespace(&file))
    }

    /// Waits until pause has ended and the runtime knows that.
    pub(super) fn wait_dead(&mut self, sandbox: &Sandbox) -> Result<()> {
        let process = format!("/proc/{}", sandbox.pid);
        clock::poll(&format!("end of sandbox {}", sandbox.id), machine::patience(), || {
            let status = self.kubelet.cri().pod_sandbox_status(&sandbox.id)?.status.unwrap_or_default();
            let is_known = SandboxState::try_from(status.state) == Ok(SandboxState::NotReady);
            Ok((is_known && !Path::new(&process).exists()).then_some(()))
        })
    }

    pub(super) fn is_ready(&mut self, sandbox: &Sandbox) -> Result<bool> {
        let status = self.kubelet.cri().pod_sandbox_status(&sandbox.id)?.status.unwrap_or_default();
        Ok(SandboxState::try_from(status.state) == Ok(SandboxState::Ready))
    }

    pub(super) fn last_sandbox(&mut self, pod: &Pod) -> Result<Sandbox> {
        self.truth_of(pod)?
            .sandboxes
            .last()
            .cloned()
            .with_context(|| format!("pod {} has no sandbox", pod.name))
    }

    fn truth_of(&mut self, pod: &Pod) -> Result<&mut PodTruth> {
        let ours = self.pods.iter_mut().find(|ours| ours.uid == pod.uid);
        ours.with_context(|| format!("pod {} was not prepared", pod.name))
    }
}
