//! What the lowest tier costs. Once any `syscalls:*` tracepoint is in use, the kernel takes the slow way into and out
//! of every system call of every task.

use std::{
    hint,
    time::{Duration, Instant},
};

use nix::unistd;

use crate::{model::fact::Mechanism, sink::doctor::Check, source::live::attach::HookReport};

const CALLS: u32 = 20_000;
const ROUNDS: u32 = 5;

/// The cheapest system call there is; the best of a few rounds, since others run on this machine too.
pub(super) fn of_a_system_call() -> Duration {
    let round = || {
        let start = Instant::now();
        for _ in 0..CALLS {
            hint::black_box(unistd::getppid());
        }
        start.elapsed() / CALLS
    };
    (0..ROUNDS).map(|_| round()).min().unwrap_or_default()
}

/// Only where such a tracepoint is in use; to be called while it is.
pub(super) fn check(reports: &[HookReport], before: Duration) -> Option<Check> {
    let syscalls = reports.iter().any(|report| report.mechanism == Some(Mechanism::Tracepoint));
    syscalls.then(|| {
        let after = of_a_system_call();
        Check::degraded(
            "system calls",
            format!(
                "each system call of every process takes {} ns longer while sandprobe runs (measured: {} ns, {} ns \
                 without)",
                after.saturating_sub(before).as_nanos(),
                after.as_nanos(),
                before.as_nanos()
            ),
            "run a kernel with CONFIG_KPROBES or with fentry (CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS)",
        )
    })
}
