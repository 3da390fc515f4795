//! The cost of the syscall tracepoints. If any `syscalls:*` tracepoint is in use, the kernel takes the slow path into
//! and out of every system call of every task.

use std::{
    hint,
    time::{Duration, Instant},
};

use nix::unistd;

use crate::{model::fact::Mechanism, sink::doctor::Check, source::live::attach::HookReport};

const CALLS: u32 = 20_000;
const ROUNDS: u32 = 5;

/// The time of the cheapest system call: the best of a few rounds, because other programs run too.
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

/// The check, if such a tracepoint is in use. It must be called while it is.
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
