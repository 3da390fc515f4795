//! The cost of the syscall tracepoints. If any `syscalls:*` tracepoint is in use, the kernel takes the slow
//! path into and out of every system call of every task.

use std::{
    hint,
    time::{Duration, Instant},
};

use nix::unistd;

use crate::{model::fact::Mechanism, sink::render::doctor::Check, source::live::attach::HookReport};

const CALLS: u32 = 20_000;
const ROUNDS: u32 = 5;

/// Measures the time of the cheapest system call: the best of a few rounds, because other programs run too.
pub(super) fn of_a_system_call() -> Duration {
    let rounds = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        for _ in 0..CALLS {
            hint::black_box(unistd::getppid());
        }
        start.elapsed() / CALLS
    });
    rounds.min().unwrap_or_default()
}

/// Returns the check, if such a tracepoint is in use. Must be called while it is.
pub(super) fn check(reports: &[HookReport], before: Duration) -> Option<Check> {
    let syscalls = reports.iter().any(|report| report.mechanism == Some(Mechanism::Tracepoint));
    syscalls.then(|| of(before, of_a_system_call()))
}

fn of(before: Duration, after: Duration) -> Check {
    const NAME: &str = "system calls";
    let measured = format!("measured: {} ns, {} ns without", after.as_nanos(), before.as_nanos());
    let Some(longer) = after.checked_sub(before).filter(|longer| !longer.is_zero()) else {
        return Check::full(NAME, format!("none takes longer while sandprobe runs ({measured})"));
    };
    Check::degraded(
        NAME,
        format!(
            "each system call of every process takes {} ns longer while sandprobe runs ({measured})",
            longer.as_nanos()
        ),
        "run a kernel with CONFIG_KPROBES or with fentry (CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS)",
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::of;
    use crate::sink::render::doctor::Grade;

    #[test]
    fn a_cost_that_cannot_be_measured_is_none() {
        let ns = Duration::from_nanos;
        let slower = of(ns(125), ns(258));
        assert_eq!(slower.grade, Grade::Degraded);
        assert!(slower.found.contains("takes 133 ns longer"), "{}", slower.found);
        for before in [258, 300] {
            let same = of(ns(before), ns(258));
            assert_eq!(same.grade, Grade::Full);
            assert!(same.found.starts_with("none takes longer"), "{}", same.found);
        }
    }
}
