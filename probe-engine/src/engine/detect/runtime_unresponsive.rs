//! **Rule:** a runtime accepts connections at its socket and has answered no request over CRI, not even for
//! its version, for longer than the limit; and it was asked again after that.
//!
//! Not flagged: a runtime that answers slowly, or whose list alone cannot be read in time; one at whose
//! socket nobody listens, and one that this agent may not connect to (`blind_spot`); a runtime that has just
//! started and whose list was not read since: it reads what it had before. After a suspend of the node the
//! limit begins again.
//!
//! It is critical while pods wait for it: young pods whose cgroup was made and none of whose containers has
//! run.

use std::{fmt::Write as _, time::Duration};

use super::{DetectContext, Detection, HasRun, Verdict, stuck_start::has_run};
use crate::{
    engine::world::{
        lookup::{self, restart::YOUNG},
        table::{
            belief::{Hang, Runtime},
            pod::Pod,
            sandbox::Sandbox,
        },
    },
    model::{
        change::Process,
        fact::{PodName, RunState, ThreadState},
        finding::{Explain, RuntimeUnresponsive, Severity},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        count::counted,
        escape::escaped,
        shell::{crictl, lines},
    },
};

/// How long a runtime may answer nothing.
pub(super) const SILENT: Duration = Duration::from_secs(30);

/// How long a runtime may take after its start until its list can be read.
pub(super) const STARTING: Duration = Duration::from_secs(2 * 60);
/// A start that is younger than this is an ordinary one.
pub(super) const WAITING: Duration = Duration::from_secs(10);

/// How many pods are named.
pub(super) const FIRST: usize = 16;

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    for row in ctx.world.beliefs.runtimes() {
        if let Some(hang) = &row.hang {
            found.push(unresponsive(ctx, row, hang));
        }
    }
}

fn unresponsive(ctx: &DetectContext<'_>, row: &Runtime, hang: &Hang) -> Detection {
    let since = row.answer_since;
    let mut ready = ctx.awake(since) + SILENT;
    if let Some(started_at) = started_at(ctx, row, hang) {
        ready = ready.max(started_at + STARTING);
    }
    let verdict = if ctx.now < ready {
        Verdict::Watched { until: Some(ready) }
    } else if hang.told_at < ready {
        // It is asked repeatedly. The agent may not have run in between.
        Verdict::Watched { until: None }
    } else {
        Verdict::Confirmed
    };
    let waiting = waiting(ctx, since);
    let kind = RuntimeUnresponsive {
        runtime: row.socket.clone(),
        pods: u32::try_from(waiting.len()).unwrap_or(u32::MAX),
        first: waiting.iter().filter_map(|pod| name(pod)).take(FIRST).collect(),
        process: hang.process.clone(),
        state: hang.state.as_ref().map(|it| it.state),
        threads: hang.state.as_ref().map(|it| it.threads.clone()).unwrap_or_default(),
    };
    let severity = if waiting.is_empty() { Severity::Warning } else { Severity::Critical };
    Detection::new(kind, &[&row.socket], severity, since, verdict)
}

/// Returns when the runtime started, if its list was not read since.
fn started_at(ctx: &DetectContext<'_>, row: &Runtime, hang: &Hang) -> Option<Timestamp> {
    let at = if let Some(process) = &hang.process {
        Timestamp(process.key.start)
    } else {
        // Several runtimes run. A start after this one's last answer is that of another one.
        lookup::daemons::runtimes_turned_at(ctx.world).filter(|at| *at <= row.answer_since)?
    };
    if row.read_at <= at { Some(at) } else { None }
}

/// Returns the pods that wait for the runtime, the earliest first. If several runtimes are followed, it is
/// not known to which one a pod will belong.
fn waiting<'a>(ctx: &DetectContext<'a>, since: Timestamp) -> Vec<&'a PodName> {
    if ctx.world.beliefs.runtimes().nth(1).is_some() {
        return Vec::new();
    }
    let mut pods: Vec<(Timestamp, &Pod)> = Vec::new();
    for pod in ctx.world.pods.values() {
        let Some(made_at) = pod.start.made_at else { continue };
        let is_young = since.saturating_sub(YOUNG) <= made_at;
        let waits = ctx.now >= ctx.awake(made_at.max(since)) + WAITING;
        let is_first = pod.is_present() && !pod.start.is_complete && pod.left_at.is_none();
        if is_young && waits && is_first && has_run(ctx, pod, &sandboxes(ctx, pod)) == HasRun::No {
            pods.push((made_at, pod));
        }
    }
    pods.sort_by_key(|(made_at, pod)| (*made_at, &pod.named));
    pods.into_iter().map(|(_, pod)| &pod.named).collect()
}

pub(super) fn sandboxes<'a>(ctx: &DetectContext<'a>, pod: &Pod) -> Vec<&'a Sandbox> {
    let Some(uid) = &pod.named.uid else { return Vec::new() };
    ctx.index.uids.by(uid).filter_map(|id| ctx.world.sandboxes.recall(id)).collect()
}

pub(super) fn name(pod: &PodName) -> Option<String> {
    pod.full().or_else(|| Some(pod.uid.as_ref()?.as_str().to_owned()))
}

/// What holds the runtime's process, as far as that is known.
enum Held {
    Stopped,
    Traced,
    Frozen,
    InKernel,
    Otherwise,
}

impl RuntimeUnresponsive {
    fn held(&self) -> Held {
        if self.state == Some(RunState::Stopped) {
            Held::Stopped
        } else if self.state == Some(RunState::Traced) {
            Held::Traced
        } else if self.threads.iter().any(ThreadState::is_frozen) {
            Held::Frozen
        } else if self.threads.iter().any(|it| it.state == RunState::Uninterruptible) {
            Held::InKernel
        } else {
            Held::Otherwise
        }
    }

    /// Returns its process and what it does.
    fn process_does(&self) -> Option<String> {
        let Process { key, comm, .. } = self.process.as_ref()?;
        let mut text = format!("its process {}[{}]", escaped(comm), key.pid);
        let does = match (self.held(), self.state) {
            (Held::Stopped, _) => "is stopped by a signal",
            (Held::Traced, _) => "is stopped by a debugger",
            (Held::Frozen, _) => "is frozen",
            (Held::InKernel, _) => "waits in the kernel",
            (Held::Otherwise, Some(RunState::Ended)) => "has ended",
            (Held::Otherwise, Some(_)) => "runs",
            (Held::Otherwise, None) => return Some(text + " was not looked at yet"),
        };
        _ = write!(text, " {does}");
        // The other threads wait for the one that waits in the kernel.
        let held = self.threads.iter().find(|it| it.state == RunState::Uninterruptible);
        if let Some(threads) = held.or(self.threads.first()) {
            let place = threads.function.as_deref().map(|function| format!(" in {}", escaped(function)));
            let count = counted(threads.count.into(), "thread");
            match place {
                Some(place) => _ = write!(text, ", {count} {}{place}", threads.state.into_str()),
                None => _ = write!(text, ", {count} {}", threads.state.into_str()),
            }
        }
        Some(text)
    }
}

impl Explain for RuntimeUnresponsive {
    fn summary(&self) -> String {
        let mut text = format!("the runtime at {} answers nothing", escaped(&self.runtime));
        if let Some(process) = self.process_does() {
            _ = write!(text, ": {process}");
        }
        if self.pods > 0 {
            let verb = if self.pods == 1 { "waits" } else { "wait" };
            let first: Vec<_> = self.first.iter().map(|pod| escaped(pod)).collect();
            _ = write!(text, "; {} {verb} for it", counted(self.pods.into(), "pod"));
            if !first.is_empty() {
                _ = write!(text, ": {}", first.join(", "));
            }
        }
        text
    }

    fn cause(&self) -> &'static str {
        match self.held() {
            Held::Stopped => {
                "A signal (SIGSTOP) has stopped the runtime's process, and nobody has continued it. Pods that run go on; none \
                 can start or stop."
            }
            Held::Traced => {
                "A debugger has stopped the runtime's process. Pods that run go on; none can start or stop."
            }
            Held::Frozen => {
                "The cgroup of the runtime's process is frozen. Pods that run go on; none can start or stop."
            }
            Held::InKernel => {
                "A thread of the runtime waits in the kernel for something that does not come, mostly a disk or a file server, \
                 and the others wait for it. Pods that run go on; none can start or stop."
            }
            Held::Otherwise => {
                "The runtime's process is there and answers nothing: its threads wait for each other, or for a program or a \
                 file that does not answer. Pods that run go on; none can start or stop."
            }
        }
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        let mut all = lines(&["# Does it still not answer?"]);
        all.extend(crictl(std::slice::from_ref(&self.runtime)).map(|crictl| format!("{crictl} version")));
        let Some(pid) = self.process.as_ref().map(|process| process.key.pid) else {
            all.extend(lines(&[
                "# What do the runtime's threads wait for?",
                "systemctl status containerd crio",
            ]));
            return all;
        };
        let threads = format!("ps -L -o lwp,stat,wchan:32,comm -p {pid}");
        match self.held() {
            Held::Stopped => {
                all.push("# Somebody stopped it, perhaps for a reason. This lets it go on:".to_owned());
                all.push(format!("kill -CONT {pid}"));
            }
            Held::Traced => {
                all.push("# The process that traces it:".to_owned());
                all.push(format!("grep TracerPid /proc/{pid}/status"));
            }
            Held::Frozen => {
                all.push("# Thaw the unit that it runs in:".to_owned());
                all.push(format!("systemctl thaw \"$(ps -o unit= -p {pid})\""));
            }
            Held::InKernel => {
                all.push(
                    "# Where the kernel holds its threads (state D), and what the kernel says of disks:"
                        .to_owned(),
                );
                all.push(threads);
                all.push("dmesg --ctime | tail -50".to_owned());
            }
            Held::Otherwise => {
                all.push("# Where its threads wait, and what it said last:".to_owned());
                all.push(threads);
                all.push(format!("journalctl -n 50 -u \"$(ps -o unit= -p {pid})\""));
                all.push("# A restart of the runtime lets the containers run on:".to_owned());
                all.push(format!("systemctl restart \"$(ps -o unit= -p {pid})\""));
            }
        }
        all
    }

    fn forget_numbers(&mut self) {
        self.pods = 0;
        self.first.clear();
        self.threads.clear();
    }

    fn rests_on(&self, _lasted: Duration) -> Option<String> {
        Some("requests over CRI that got no answer".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{Explain, Process, RunState, RuntimeUnresponsive, ThreadState};
    use crate::model::id::TaskKey;

    fn unresponsive(state: RunState, threads: &[(RunState, Option<&str>)]) -> RuntimeUnresponsive {
        let threads = threads.iter().map(|(state, function)| ThreadState {
            state: *state,
            function: function.map(str::to_owned),
            count: 2,
        });
        RuntimeUnresponsive {
            runtime: "/run/containerd/containerd.sock".to_owned(),
            pods: 0,
            first: Vec::new(),
            process: Some(Process {
                key: TaskKey::new(7, 9),
                comm: "containerd".to_owned(),
                ..Process::default()
            }),
            state: Some(state),
            threads: threads.collect(),
        }
    }

    /// What the summary says about the process, and the command that repairs what holds it.
    #[test]
    fn what_holds_the_process_of_a_runtime_is_reported_with_its_repair() {
        const THREADS: &str = "ps -L -o lwp,stat,wchan:32,comm -p 7";
        let waits = (RunState::Sleeping, Some("futex_wait_queue"));
        for (state, threads, said, command) in [
            (
                RunState::Stopped,
                &[(RunState::Stopped, Some("do_signal_stop"))][..],
                "is stopped by a signal, 2 threads stopped in do_signal_stop",
                "kill -CONT 7",
            ),
            (
                RunState::Traced,
                &[(RunState::Traced, Some("ptrace_stop"))],
                "is stopped by a debugger, 2 threads traced in ptrace_stop",
                "grep TracerPid /proc/7/status",
            ),
            (
                RunState::Sleeping,
                &[(RunState::Sleeping, Some("do_freezer_trap"))],
                "is frozen, 2 threads sleeping in do_freezer_trap",
                "systemctl thaw \"$(ps -o unit= -p 7)\"",
            ),
            (
                RunState::Sleeping,
                &[waits, (RunState::Uninterruptible, Some("rpc_wait_bit_killable"))],
                "waits in the kernel, 2 threads uninterruptible in rpc_wait_bit_killable",
                THREADS,
            ),
            (
                RunState::Sleeping,
                &[waits],
                "runs, 2 threads sleeping in futex_wait_queue",
                "systemctl restart \"$(ps -o unit= -p 7)\"",
            ),
            // The kernel does not say where its threads wait.
            (RunState::Sleeping, &[(RunState::Sleeping, None)], "runs, 2 threads sleeping", THREADS),
        ] {
            let it = unresponsive(state, threads);
            let summary = it.summary();
            let expected = format!(
                "the runtime at /run/containerd/containerd.sock answers nothing: its process containerd[7] {said}"
            );
            assert_eq!(summary, expected);
            assert!(
                it.repair(&[], &[]).iter().any(|line| line == command),
                "{command}: {:?}",
                it.repair(&[], &[])
            );
        }
        let unknown = RuntimeUnresponsive { process: None, ..unresponsive(RunState::Other, &[]) };
        assert!(!unknown.summary().contains("process"), "{}", unknown.summary());
        let unread = RuntimeUnresponsive { state: None, ..unresponsive(RunState::Other, &[]) };
        assert!(unread.summary().ends_with("its process containerd[7] was not looked at yet"));
    }
}
