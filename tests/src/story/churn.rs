//! A healthy node's day: pods come and go, crash, restart and are deleted, several at a time.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, anyhow, ensure};

use super::{Stage, Truth, job, runner::ActionRunner, service, unique_uid};
use crate::kubelet::{Container, Pod};

/// How a pod of the day lives.
#[derive(Clone, Copy)]
enum Life {
    Completes,
    CrashLoops,
    IsRebuilt,
    IsDeleted,
}

impl Life {
    const ALL: [Self; 4] = [Self::Completes, Self::CrashLoops, Self::IsRebuilt, Self::IsDeleted];

    fn pod(self, name: &str) -> Pod {
        match self {
            Self::Completes | Self::IsRebuilt => job(name),
            Self::CrashLoops => Pod::new(name, &unique_uid()).with(Container::shell("main", "exit 1")),
            Self::IsDeleted => service(name),
        }
    }
}

impl Stage<'_> {
    /// Runs `count` healthy pods, `concurrency` at a time. None of them leaves anything behind.
    pub fn churn(&mut self, count: usize, concurrency: usize) -> Result<Truth> {
        let names = (0..count).map(|index| format!("churn-{index}"));
        let pods: Vec<_> =
            names.zip(Life::ALL.iter().cycle()).map(|(name, life)| (life.pod(&name), *life)).collect();
        self.pods.extend(pods.iter().map(|(pod, _)| pod.clone()));
        let next = AtomicUsize::new(0);
        let work = |mut runner: ActionRunner<'static>| -> Result<ActionRunner<'static>> {
            while let Some((pod, life)) = pods.get(next.fetch_add(1, Ordering::Relaxed)) {
                live(&mut runner, pod, *life).with_context(|| format!("pod {}", pod.name))?;
            }
            Ok(runner)
        };
        let kubelet = &self.runner.kubelet;
        let finished = std::thread::scope(|scope| -> Result<Vec<ActionRunner<'static>>> {
            let workers: Vec<_> = (0..concurrency)
                .map(|_| kubelet.another().map(|kubelet| scope.spawn(|| work(ActionRunner::new(kubelet)))))
                .collect::<Result<_>>()?;
            // Waits for all workers and returns the first error.
            let outcomes: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            outcomes
                .into_iter()
                .map(|outcome| outcome.map_err(|_panic| anyhow!("a worker panicked"))?)
                .collect()
        })?;
        for runner in finished {
            self.runner.actions.extend(runner.actions);
            self.runner.pods.extend(runner.pods);
        }
        self.runner.actions.sort_by_key(|done| done.step.asked);
        self.truth()
    }
}

fn live(runner: &mut ActionRunner<'_>, pod: &Pod, life: Life) -> Result<()> {
    const CRASHES: u32 = 3;
    runner.prepare(pod)?;
    let mut sandbox = runner.run_sandbox(pod, 0)?;
    let container = pod.containers.first().context("a pod of the day has a container")?;
    match life {
        Life::Completes => runner.complete_all(pod, &sandbox)?,
        Life::CrashLoops => {
            for attempt in 0..CRASHES {
                let exit = runner.complete(pod, &sandbox, container, attempt)?;
                ensure!(exit.code == 1, "the container ended with {exit:?}");
            }
        }
        Life::IsRebuilt => {
            // As after a change of the pod's network: the containers start again in the new sandbox.
            runner.run_container(pod, &sandbox, container, 0)?;
            runner.stop(pod, &sandbox)?;
            runner.remove(pod, &sandbox)?;
            sandbox = runner.run_sandbox(pod, 1)?;
            runner.complete(pod, &sandbox, container, 1)?;
        }
        Life::IsDeleted => drop(runner.run_container(pod, &sandbox, container, 0)?),
    }
    runner.stop(pod, &sandbox)?;
    runner.leave(pod)?;
    runner.remove(pod, &sandbox)
}
