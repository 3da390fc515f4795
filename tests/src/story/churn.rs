//! A healthy node's day: pods that come and go, crash, restart and are deleted, several at a time.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, anyhow, ensure};

use super::{Stage, Truth, job, player::Player, service, unique_uid};
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
    /// So many healthy pods, so many at a time. None of them leaves anything.
    pub fn churn(&mut self, count: usize, concurrency: usize) -> Result<Truth> {
        let names = (0..count).map(|index| format!("churn-{index}"));
        let pods: Vec<_> =
            names.zip(Life::ALL.iter().cycle()).map(|(name, life)| (life.pod(&name), *life)).collect();
        self.pods.extend(pods.iter().map(|(pod, _)| pod.clone()));
        let next = AtomicUsize::new(0);
        let work = |mut player: Player<'static>| -> Result<Player<'static>> {
            while let Some((pod, life)) = pods.get(next.fetch_add(1, Ordering::Relaxed)) {
                live(&mut player, pod, *life).with_context(|| format!("pod {}", pod.name))?;
            }
            Ok(player)
        };
        let kubelet = &self.player.kubelet;
        let played = std::thread::scope(|scope| -> Result<Vec<Player<'static>>> {
            let workers: Vec<_> = (0..concurrency)
                .map(|_| kubelet.another().map(|kubelet| scope.spawn(|| work(Player::new(kubelet)))))
                .collect::<Result<_>>()?;
            // All are waited for, and the first failure is the answer.
            let outcomes: Vec<_> = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            outcomes
                .into_iter()
                .map(|outcome| outcome.map_err(|_panic| anyhow!("a worker panicked"))?)
                .collect()
        })?;
        for player in played {
            self.player.acts.extend(player.acts);
            self.player.pods.extend(player.pods);
        }
        self.player.acts.sort_by_key(|done| done.step.asked);
        self.truth()
    }
}

fn live(player: &mut Player<'_>, pod: &Pod, life: Life) -> Result<()> {
    const CRASHES: u32 = 3;
    player.prepare(pod)?;
    let mut sandbox = player.run_sandbox(pod, 0)?;
    let container = pod.containers.first().context("a pod of the day has a container")?;
    match life {
        Life::Completes => player.complete_all(pod, &sandbox)?,
        Life::CrashLoops => {
            for attempt in 0..CRASHES {
                let exit = player.complete(pod, &sandbox, container, attempt)?;
                ensure!(exit.code == 1, "the container ended with {exit:?}");
            }
        }
        Life::IsRebuilt => {
            // As after a change of the pod's network: the containers start anew in the new one.
            player.run_container(pod, &sandbox, container, 0)?;
            player.stop(pod, &sandbox)?;
            player.remove(pod, &sandbox)?;
            sandbox = player.run_sandbox(pod, 1)?;
            player.complete(pod, &sandbox, container, 1)?;
        }
        Life::IsDeleted => drop(player.run_container(pod, &sandbox, container, 0)?),
    }
    player.stop(pod, &sandbox)?;
    player.leave(pod)?;
    player.remove(pod, &sandbox)
}
