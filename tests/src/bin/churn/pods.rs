//! Pods that stay, and pods that come and go.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Result, anyhow};
use tests::{
    interrupt::Interrupt,
    kubelet::{Container, Kubelet, Pod},
};

/// The number of permanent pods that are started at a time.
const CONCURRENCY: u32 = 4;
/// The longest time that a container takes to end.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Pods {
    kubelet: Kubelet,
    standing: u32,
    lived: u32,
}

impl Pods {
    pub(crate) fn new(kubelet: Kubelet) -> Self {
        Self { kubelet, standing: 0, lived: 0 }
    }

    /// Starts permanent pods until there are `count`.
    pub(crate) fn start_until(&mut self, count: u32, interrupt: &Interrupt) -> Result<()> {
        let next = AtomicU32::new(self.standing);
        let work = |mut kubelet: Kubelet| -> Result<()> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                interrupt.check()?;
                kubelet.start(&pod("stays", 0, number, "exec sleep 1000000"), LIMIT)?;
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..CONCURRENCY)
                .map(|_| self.kubelet.another().map(|kubelet| scope.spawn(|| work(kubelet))))
                .collect::<Result<_>>()?;
            // Waits for all workers and returns the first error.
            let outcomes: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            outcomes
                .into_iter()
                .try_for_each(|outcome| outcome.map_err(|_panic| anyhow!("a worker panicked"))?)
        })?;
        self.standing = self.standing.max(count);
        Ok(())
    }

    /// Runs `count` pods one after the other, each from its cgroup to its removal, with one container that
    /// ends at once.
    pub(crate) fn live(&mut self, count: u32, interrupt: &Interrupt) -> Result<()> {
        for _ in 0..count {
            interrupt.check()?;
            self.kubelet.live(&pod("goes", 1, self.lived, "true"), LIMIT)?;
            self.lived += 1;
        }
        Ok(())
    }
}

/// Returns a pod of one container that runs a line of shell.
pub(crate) fn pod(name: &str, group: u32, number: u32, line: &str) -> Pod {
    let uid = format!("9a000000-{group:04}-4000-8000-{number:012}");
    Pod::new(&format!("{name}-{number}"), &uid).with(Container::shell("main", line))
}
