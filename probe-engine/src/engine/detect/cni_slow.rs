//! **Rule:** the runtime called a plugin with ADD or DEL, and the call has run for longer than the limit; or
//! such a call ended in the last ten minutes.
//!
//! Not flagged: an ADD that ran for long and failed, or that is tried again after a failed one
//! (`cni_failing`); calls that plugins make themselves, which are part of the time of the runtime's call; a
//! call whose end may be among lost records, until a listing shows that it still runs; the time that a call
//! ran on after its runtime had ended. After a suspend of the node the time of a call counts from when the
//! node woke.
//!
//! What a call waits for is read from `/proc` shortly before it is slow, and again while it runs: by the
//! function of the kernel in which its process waits or, if that waits for a program that it started, that
//! program.

use std::{collections::BTreeMap, time::Duration};

use super::{
    DetectContext, Detection, Verdict,
    index::Subjects,
    rule::{Judged, Part, Rule},
};
use crate::{
    engine::world::table::{
        attachment::{Attachment, LATELY, Plugin, Runs},
        call::Call,
    },
    model::{
        fact::{List, Origin, PodName},
        finding::{CniSlow, CniWait, CniWaitForm, Explain, Severity, Thing},
        id::{ContainerId, TaskKey},
        process::Process,
        time::Timestamp,
    },
    words::{
        escape::escaped,
        shell::{cni_in_journal, lines, quoted},
        span::span,
    },
};

/// How many sandboxes, those whose calls still run and then the longest, are shown as evidence.
const SHOWN: usize = 16;

/// Whether a call is judged. A call that only a listing showed is not: its program began before the hooks,
/// and no hook sees its end.
fn is_judged(call: &Call) -> bool {
    call.top && call.origin != Origin::Listed
}

/// A slow call of a plugin.
#[derive(Clone)]
pub(super) struct Slow {
    plugin: String,
    command: &'static str,
    took: Duration,
    since: Timestamp,
    /// Until when the finding names the call. None: the call still runs.
    until: Option<Timestamp>,
    pod: PodName,
    container: Option<ContainerId>,
    /// The process of the call, if it still runs.
    call: Option<TaskKey>,
    waits: Option<CniWait>,
    gapped: bool,
}

/// Judges the ended calls of one sandbox.
impl Rule for CniSlow {
    type Subject = ContainerId;
    type Part = Slow;
    const SUBJECTS: Subjects<ContainerId> = Subjects::ATTACHED;

    fn judge(ctx: &DetectContext<'_>, id: &ContainerId, found: &mut Vec<Slow>) {
        for row in ctx.world.attachments.of(id) {
            let runs = row.plugins.iter().flat_map(runs_of);
            found
                .extend(runs.filter_map(|(plugin, command, runs)| finished(ctx, row, plugin, command, runs)));
        }
    }
}

impl Slow {
    /// Returns the order in which calls are named, the last one first: calls that run, then the longest.
    fn rank(&self) -> (bool, Duration, Option<&ContainerId>) {
        (self.until.is_none(), self.took, self.container.as_ref())
    }
}

impl Part for Slow {
    fn due_at(&self) -> Option<Timestamp> {
        self.until
    }
}

pub(super) fn gather(ctx: &DetectContext<'_>, judged: &Judged<CniSlow>, found: &mut Vec<Detection>) {
    let mut slow: BTreeMap<(String, &'static str), Vec<Slow>> = BTreeMap::new();
    for it in judged.parts() {
        slow.entry((it.plugin.clone(), it.command)).or_default().push(it.clone());
    }
    // When the first of the calls that are within the limit will exceed it.
    let mut next: Option<(Timestamp, TaskKey)> = None;
    for (key, call) in &ctx.world.calls {
        if !is_judged(call) {
            continue;
        }
        let plugin = call.call.plugin.clone();
        let Some(command) = operation(&call.call.command) else { continue };
        if command == "ADD" && has_failed(ctx, &call.pod, &plugin) {
            continue;
        }
        let due = ctx.awake(call.at) + ctx.limits.cni_slow;
        let until = call.cut_off_at.unwrap_or(ctx.now);
        if until < due {
            if call.cut_off_at.is_some() {
                continue;
            }
            next = next.into_iter().chain([(due, *key)]).min();
            continue;
        }
        slow.entry((plugin.clone(), command)).or_default().push(Slow {
            plugin,
            command,
            took: ctx.world.awake_for(call.at, until),
            since: call.at,
            until: None,
            pod: call.pod.clone(),
            container: call.container.clone(),
            call: Some(*key),
            waits: call.looked.as_ref().and_then(|it| it.waits.clone()).map(|it| until_now(ctx, it)),
            gapped: ctx.world.lists.is_gapped(List::Processes),
        });
    }
    for ((plugin, command), all) in slow {
        found.extend(detection(&plugin, command, all));
    }
    found.extend(next.map(watched));
}

/// Notes whether the program that was looked at has ended.
fn until_now(ctx: &DetectContext<'_>, it: CniWait) -> CniWait {
    CniWait { ended: !ctx.world.processes.is_running(it.process.key), ..it }
}

/// Whether an ADD of this plugin has failed for the pod. Then `cni_failing` covers the pod.
fn has_failed(ctx: &DetectContext<'_>, pod: &PodName, plugin: &str) -> bool {
    let rows = ctx.index.named.by(pod).filter_map(|key| ctx.world.attachments.get(key));
    pod.names_pod() && rows.flat_map(|row| &row.plugins).any(|it| it.name == plugin && it.add.failed > 0)
}

fn runs_of(plugin: &Plugin) -> [(&Plugin, &'static str, &Runs); 3] {
    [(plugin, "ADD", &plugin.add), (plugin, "DEL", &plugin.del), (plugin, "DEL", &plugin.del_without_netns)]
}

fn finished(
    ctx: &DetectContext<'_>,
    row: &Attachment,
    plugin: &Plugin,
    command: &'static str,
    runs: &Runs,
) -> Option<Slow> {
    let until = runs.longest_at + LATELY;
    let is_slow = runs.longest >= ctx.limits.cni_slow && runs.longest > Duration::ZERO && ctx.now < until;
    is_slow.then(|| Slow {
        plugin: plugin.name.clone(),
        command,
        took: runs.longest,
        since: runs.longest_at.saturating_sub(runs.longest),
        until: Some(until),
        pod: row.pod.clone(),
        container: Some(row.container.clone()),
        call: None,
        waits: runs.longest_waits.clone(),
        gapped: false,
    })
}

fn operation(command: &str) -> Option<&'static str> {
    ["ADD", "DEL"].into_iter().find(|it| *it == command)
}

fn detection(plugin: &str, command: &str, mut all: Vec<Slow>) -> Option<Detection> {
    all.sort_by(|one, other| one.rank().cmp(&other.rank()));
    let worst = all.last()?;
    let kind = CniSlow {
        plugin: plugin.to_owned(),
        command: command.to_owned(),
        took: worst.took,
        open: worst.until.is_none(),
        waits: worst.waits.clone(),
    };
    let mut sandboxes: Vec<ContainerId> = Vec::new();
    for id in all.iter().rev().filter_map(|it| it.container.as_ref()) {
        if !sandboxes.contains(id) && sandboxes.len() < SHOWN {
            sandboxes.push(id.clone());
        }
    }
    let pod = Some(worst.pod.clone()).filter(|pod| *pod != PodName::default());
    let is_sure = all.iter().any(|it| !it.gapped);
    let verdict = match all.iter().filter_map(|it| it.until).max() {
        _ if !is_sure => Verdict::Watched { until: None },
        Some(until) => Verdict::Passing { until },
        None => Verdict::Confirmed,
    };
    Some(Detection {
        pod,
        sandboxes,
        gapped: all.iter().any(|it| it.gapped),
        call: worst.call,
        ..Detection::new(kind, &[plugin, command], Severity::Warning, worst.since, verdict)
    })
}

/// Makes a detection that opens no finding, but sets a time to judge again. It has its own key, so that it
/// keeps no finding open.
fn watched((until, call): (Timestamp, TaskKey)) -> Detection {
    let nothing = CniSlow {
        plugin: String::new(),
        command: String::new(),
        took: Duration::ZERO,
        open: true,
        waits: None,
    };
    let verdict = Verdict::Watched { until: Some(until) };
    Detection { call: Some(call), ..Detection::new(nothing, &[""], Severity::Info, until, verdict) }
}

fn processes_of(plugin: &str) -> Vec<String> {
    let mut all = lines(&[
        "# The processes of the plugin, and the function of the kernel in which each of them waits:",
    ]);
    all.extend(quoted(plugin).map(|name| format!("ps -o pid,stat,etime,wchan:32,args -C {name}")));
    all
}

/// Prints the process that holds the file lock for which the process `pid` waits.
fn lock_holder(pid: u32) -> String {
    format!(
        "awk -v pid={pid} 'NR == FNR {{ if ($2 == \"->\" && $6 == pid) lock = $1; next }} \
         $1 == lock && $2 != \"->\" {{ print $5 }}' /proc/locks /proc/locks | xargs -r ps -o pid,etime,stat,args -p"
    )
}

/// Prints the sockets of the process `pid`, the other ends of those of the node, and the listening sockets
/// that have connections which nobody has accepted (`Recv-Q`). The line of a socket of the file system
/// (`unix(7)`) has only the number of its other end, whose line has the path, if the daemon has accepted it.
fn peers(pid: u32) -> String {
    format!(
        "nsenter -n -t {pid} ss -Haxtnp | awk -v own=pid={pid}, '{{ line[$6] = $0 }} index($0, own) {{ print; other[$8] }} \
         $2 == \"LISTEN\" && $3 > 0 {{ full[$0] }} \
         END {{ for (end in other) if (end in line) print line[end]; for (it in full) print it }}'"
    )
}

/// Prints the processes that have a pipe of the process `pid` open.
fn pipe_holders(pid: u32) -> String {
    format!(
        "for it in $(find /proc/{pid}/fd -lname 'pipe:*' -printf '%l\\n' | sort -u | tr '[]' '??'); do \
         find /proc/[0-9]*/fd -lname \"$it\" 2>/dev/null; done | cut -d/ -f3 | sort -u | \
         paste -sd, | xargs -r ps -o pid,stat,etime,wchan:32,args -p"
    )
}

/// Thaws the frozen cgroups in which the process `pid` is, of cgroup v2 and of v1.
fn thaw(pid: u32) -> String {
    format!(
        "awk -F: '$2 == \"\" || $2 == \"freezer\" {{ print $3 }}' /proc/{pid}/cgroup | while read -r at; do \
         while [ \"$at\" ]; do for top in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/freezer; do \
         it=$top${{at%/}}; grep -qsx 1 \"$it/cgroup.freeze\" && echo 0 > \"$it/cgroup.freeze\"; \
         grep -qsx FROZEN \"$it/freezer.state\" && echo THAWED > \"$it/freezer.state\"; done; at=${{at%/*}}; done; done"
    )
}

impl CniWait {
    fn does(&self) -> String {
        let Process { key, comm, .. } = &self.process;
        let does = match self.form {
            CniWaitForm::Continue => "is stopped",
            CniWaitForm::Thaw => "is frozen",
            CniWaitForm::NetworkLock => "waits for the kernel's network lock",
            CniWaitForm::Kernel => "waits in the kernel",
            CniWaitForm::FileLock => "waits for a file lock",
            CniWaitForm::Nothing => "is at work",
            CniWaitForm::Input => "waits for input",
            CniWaitForm::Program => "waits for a program that it started",
            CniWaitForm::Answer => "waits for an answer",
            CniWaitForm::Pause => "pauses",
        };
        let function = self.function.as_deref().map(|it| format!(" ({})", escaped(it))).unwrap_or_default();
        format!("{}[{}] {does}{function}", escaped(comm), key.pid)
    }

    fn cause(&self) -> &'static str {
        match self.form {
            CniWaitForm::Continue => {
                "A signal or a debugger has stopped the program that works for the call, and nobody has continued it."
            }
            CniWaitForm::Thaw => "The cgroup of the program that works for the call is frozen.",
            CniWaitForm::NetworkLock => {
                "The call waits for the kernel's lock of the network configuration (rtnl), which one task at a time has: \
                 another call, a daemon that reads all interfaces or routes, or the teardown of a network namespace."
            }
            CniWaitForm::Kernel => {
                "The call waits in the kernel for something that does not come, most likely a disk or a file server."
            }
            CniWaitForm::FileLock => {
                "The call waits for a file lock that another process holds. host-local has one for each network, and iptables \
                 has one for the node."
            }
            CniWaitForm::Nothing => {
                "The call is at work. It has much to do, as iptables with ten thousand rules has, or the node has little CPU \
                 time left."
            }
            CniWaitForm::Input => {
                "The call reads from a pipe into which nobody writes: another program of the call, or the runtime, which gives \
                 a plugin its configuration through a pipe."
            }
            CniWaitForm::Program => "The call waits for a program that it started, and that does not end.",
            CniWaitForm::Answer => {
                "The call has asked another process, most likely the plugin's daemon or an API server, and has no answer."
            }
            CniWaitForm::Pause => {
                "The call pauses between two tries: what it waits for, such as the plugin's daemon or its file, is not there."
            }
        }
    }

    fn repair(&self) -> Vec<String> {
        let pid = self.process.key.pid;
        let (why, command) = match self.form {
            CniWaitForm::Continue => (
                "# Somebody stopped it, perhaps for a reason. This lets it go on:",
                format!("kill -CONT {pid}"),
            ),
            CniWaitForm::Thaw => (
                "# Its cgroup is frozen, or one above it. This thaws them, if nobody needs them frozen:",
                thaw(pid),
            ),
            CniWaitForm::NetworkLock => (
                "# The tasks that wait in the kernel (state D), and those that work there (R): one of them has the lock.",
                "ps -eLo pid,lwp,stat,etime,wchan:32,args | awk '$3 ~ /^[DR]/'".to_owned(),
            ),
            CniWaitForm::Kernel => (
                "# Where the kernel holds it. A disk or a file server is named by dmesg.",
                format!("cat /proc/{pid}/stack"),
            ),
            CniWaitForm::FileLock => (
                "# The process that holds the lock. It can be killed if it is a plugin whose runtime has ended.",
                lock_holder(pid),
            ),
            CniWaitForm::Nothing => (
                "# How much CPU time it has had (TIME) since it began (ELAPSED):",
                format!("ps -o pid,etime,time,args -p {pid}"),
            ),
            CniWaitForm::Input => (
                "# Who has its pipes open, and what each of them waits for. One of them is to write:",
                pipe_holders(pid),
            ),
            CniWaitForm::Program => (
                "# The programs that it started:",
                format!("ps -o pid,stat,etime,wchan:32,args --ppid {pid}"),
            ),
            CniWaitForm::Answer => (
                "# Its sockets with their other ends, then those (LISTEN) at which somebody waits to be accepted:",
                peers(pid),
            ),
            CniWaitForm::Pause => (
                "# Its arguments, and the program that started it, say what it waits for:",
                format!("ps -o pid,etime,args -p {pid} -p \"$(ps -o ppid= -p {pid})\""),
            ),
        };
        vec![why.to_owned(), command]
    }
}

impl Explain for CniSlow {
    fn summary(&self) -> String {
        let verb = if self.open { "has been running for" } else { "took" };
        let plugin = escaped(&self.plugin);
        let mut text = format!("{} {plugin} {verb} {}", escaped(&self.command), span(self.took));
        if let Some(waits) = &self.waits {
            text += &format!(": {}", waits.does());
            if !self.open || waits.ended {
                text += &format!(", {} after the call began", span(waits.after));
            }
        }
        text
    }

    fn cause(&self) -> &'static str {
        match &self.waits {
            Some(waits) => waits.cause(),
            None => "One call of the CNI plugin takes longer than a pod should have to wait.",
        }
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        let mut all = match &self.waits {
            Some(waits) if self.open && !waits.ended => waits.repair(),
            Some(_) | None if self.open => processes_of(&self.plugin),
            Some(_) | None => lines(&[
                "# The call has ended. While the next slow one runs, this shows the command for what it waits for.",
            ]),
        };
        all.extend(cni_in_journal());
        all
    }

    fn forget_numbers(&mut self) {
        self.took = Duration::ZERO;
        if let Some(waits) = &mut self.waits {
            waits.after = Duration::ZERO;
        }
    }

    fn shows_some(&self) -> bool {
        true
    }

    fn named(&self) -> Vec<Thing<'_>> {
        vec![Thing::Plugin(&self.plugin)]
    }

    fn follows_worst(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::net::{UnixListener, UnixStream},
        process::{self, Command, Stdio},
    };

    use super::{lock_holder, peers, pipe_holders};

    /// Returns what the command for the sockets of this process prints.
    fn told_peers() -> String {
        // A namespace of its own is entered with rights that this test may not have.
        let own = peers(process::id());
        let (_, command) = own.split_once("ss ").expect("the program");
        told(&format!("ss {command}"))
    }

    fn told(command: &str) -> String {
        let output = Command::new("sh").args(["-c", command]).output().expect("a shell");
        String::from_utf8(output.stdout).expect("text")
    }

    /// The end of a socket that the server has names its path, and the other end does not. Before the server
    /// accepts, only its listening socket is known.
    #[test]
    fn the_daemon_that_was_asked_is_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("daemon.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        let _asking = UnixStream::connect(&path).expect("a client");
        let path = path.to_str().expect("a path");
        let has =
            |told: &str, state: &str| told.lines().any(|line| line.contains(state) && line.contains(path));
        let before = told_peers();
        assert!(has(&before, "LISTEN") && !has(&before, "ESTAB"), "{before}");
        let _answering = listener.accept().expect("a server");
        let after = told_peers();
        assert!(has(&after, "ESTAB"), "{after}");
    }

    #[test]
    fn who_has_a_pipe_open_is_shown() {
        let mut reads = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
        let told = told(&pipe_holders(reads.id()));
        drop(reads.stdin.take());
        reads.wait().expect("its end");
        let pids: Vec<&str> =
            told.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
        for pid in [process::id(), reads.id()] {
            assert!(pids.contains(&pid.to_string().as_str()), "{pid}: {told}");
        }
    }

    /// One process holds the lock, and another one waits for it.
    #[test]
    fn the_process_that_holds_the_lock_is_shown() {
        let lock = tempfile::NamedTempFile::new().expect("a file");
        lock.as_file().lock().expect("the lock");
        let mut waits = Command::new("flock").arg(lock.path()).arg("true").spawn().expect("flock");
        let pid = format!(" {} ", waits.id());
        while !Command::new("grep").args(["-qF", &pid, "/proc/locks"]).status().expect("grep").success() {
            assert_eq!(waits.try_wait().expect("a child"), None, "it waits");
        }
        let told = told(&lock_holder(waits.id()));
        drop(lock);
        waits.wait().expect("its end");
        let held = told.lines().nth(1).and_then(|line| line.split_whitespace().next());
        assert_eq!(held, Some(process::id().to_string().as_str()), "{told}");
    }
}
