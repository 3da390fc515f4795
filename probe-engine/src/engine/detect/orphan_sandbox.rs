//! **Rule:** the process that holds a sandbox (pause), its shim or its conmon runs, although no runtime has
//! this sandbox or another one of its pod on record any more.
//!
//! Not flagged: a sandbox that is being made (the runtime may write its record only after its network is set
//! up, however long that takes); a pod that has another sandbox on record (`duplicate_sandbox` covers that);
//! anything while a runtime's records cannot be read whole, or between a gap and the listing that closes it.

use std::fmt::Write as _;

use super::{
    DetectContext, Detection, Verdict,
    index::{Marks, Subjects},
    rule::Rule,
};
use crate::{
    engine::world::table::{
        attachment::Attachment,
        process::{Process, State},
        record::HasRecord,
        sandbox::{self, Sandbox},
    },
    model::{
        change,
        fact::List,
        finding::{Explain, OrphanSandbox, Severity},
        id::ContainerId,
    },
    words::{
        escape::escaped,
        shell::{crictl, lines, quoted},
    },
};

/// The processes that run for a sandbox besides its pause process, by the first letters of their names. The
/// kernel truncates names.
const MONITORS: [&str; 2] = ["containerd-shim", "conmon"];

impl Rule for OrphanSandbox {
    type Subject = ContainerId;
    type Part = Detection;
    const SUBJECTS: Subjects<ContainerId> = Subjects::SANDBOXES;

    /// Any sandbox can change the pod of a record without a pod's name, or get its namespace.
    fn depends_on_others(marks: &Marks) -> bool {
        !marks.sandboxes.is_empty()
    }

    fn judge(ctx: &DetectContext<'_>, id: &ContainerId, found: &mut Vec<Detection>) {
        let row = ctx.world.sandboxes.recall(id).filter(|row| row.ending.forgotten_at.is_some());
        if let Some(row) = row
            && let Some(process) = pause(ctx, id).or_else(|| monitor(ctx, id))
        {
            found.extend(orphan(ctx, row, process));
        }
    }
}

fn monitor<'a>(ctx: &DetectContext<'a>, id: &ContainerId) -> Option<&'a Process> {
    let all = ctx.index.monitors.by(id).filter_map(|key| ctx.world.processes.get(*key));
    all.filter(|row| MONITORS.iter().any(|name| row.comm.starts_with(name))).last()
}

fn pause<'a>(ctx: &DetectContext<'a>, id: &ContainerId) -> Option<&'a Process> {
    let key = ctx.world.containers.get(id)?.process()?;
    ctx.world.processes.get(key).filter(|row| row.state == State::Running)
}

fn orphan(ctx: &DetectContext<'_>, row: &Sandbox, process: &Process) -> Option<Detection> {
    let since = row.ending.forgotten_at?.max(row.first_at);
    let being_made = ctx.world.sandboxes.get(&row.id).is_some_and(|row| row.state == sandbox::State::Created)
        || ctx.world.attachments.of(&row.id).any(Attachment::is_adding);
    if being_made {
        return None;
    }
    let verdict = match (ctx.has_record(&row.id), ctx.pod_has_record(row.reported.pod.uid.as_ref()?)) {
        (HasRecord::Yes, _) | (_, HasRecord::Yes) => return None,
        (HasRecord::Unknown, _) | (_, HasRecord::Unknown) => Verdict::Unsure,
        _ if ctx.world.lists.is_gapped(List::Processes) => Verdict::Unsure,
        (HasRecord::No { at }, HasRecord::No { .. }) => {
            ctx.left_over(List::Processes, since, at, process.found_at)?
        }
    };
    let it = change::Process { key: process.key, parent: process.parent, comm: process.comm.clone() };
    let kind = OrphanSandbox { process: it };
    Some(Detection {
        pod: Some(row.reported.pod.clone()),
        sandboxes: vec![row.id.clone()],
        gapped: row.gapped,
        ..Detection::new(kind, &[row.id.as_str()], Severity::Warning, since, verdict)
    })
}

impl Explain for OrphanSandbox {
    fn summary(&self) -> String {
        let change::Process { comm, key, .. } = &self.process;
        format!("{}[{}] runs, and no runtime knows its sandbox", escaped(comm), key.pid)
    }

    fn cause(&self) -> &'static str {
        "The process that holds a sandbox (pause, shim or conmon) still runs, and no runtime has that sandbox on record. \
         Nothing will stop it."
    }

    fn repair(&self, sandboxes: &[ContainerId], runtimes: &[String]) -> Vec<String> {
        let pid = self.process.key.pid;
        let mut all = vec![
            "# Look at the process before you end it: a runtime that restarts may take the sandbox up again."
                .to_owned(),
            format!("ps -o pid,ppid,lstart,cgroup,args -p {pid}"),
        ];
        if let Some(id) = sandboxes.first() {
            all.extend(lines(&[
                "# If no runtime has the sandbox on record, this deletes containerd's task of it. If there is none, it ends the process,",
                "# after a check that it still belongs to the sandbox:",
            ]));
            all.push(end_if_forgotten(id, pid, runtimes));
        }
        all
    }
}

/// Ends what runs for a sandbox if each runtime answers that it does not know the sandbox.
fn end_if_forgotten(id: &ContainerId, pid: u32, runtimes: &[String]) -> String {
    let mut command = String::new();
    for crictl in crictl(runtimes) {
        _ = write!(command, "known=$({crictl} pods -q --no-trunc --id {id}) && [ -z \"$known\" ] && ");
    }
    let kill = format!("grep -qaF {id} /proc/{pid}/cmdline /proc/{pid}/cgroup && kill {pid}");
    let containerd = runtimes.iter().find(|socket| socket.contains("containerd"));
    if let Some(socket) = containerd.and_then(|socket| quoted(socket)) {
        let task = format!("ctr --address {socket} -n k8s.io tasks delete --force {id}");
        command + &format!("{{ {task} || {{ {kill}; }}; }}")
    } else {
        command + &kill
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::{ContainerId, end_if_forgotten};

    /// What runs is ended only if the runtime answers and has forgotten the sandbox, and if the process is
    /// still one of the sandbox.
    #[test]
    fn only_what_the_runtime_has_forgotten_is_ended() {
        let tools = tempfile::tempdir().expect("a folder");
        let id = ContainerId::parse(&"5a".repeat(32)).expect("an id");
        let path = format!("{}:/usr/bin:/bin", tools.path().display());
        for (crictl, ctr, is_own, is_killed) in [
            ("exit 0", "exit 1", true, true),
            ("exit 0", "exit 0", true, false),
            ("exit 0", "exit 1", false, false),
            ("echo known", "exit 1", true, false),
            ("exit 1", "exit 1", true, false),
        ] {
            for (name, does) in [("crictl", crictl), ("ctr", ctr)] {
                let tool = tools.path().join(name);
                let made = format!("printf '#!/bin/sh\\n{does}\\n' > \"$0\" && chmod +x \"$0\"");
                Command::new("sh").arg("-c").arg(made).arg(tool).status().expect("a shell");
            }
            let own = if is_own { id.as_str() } else { "other" };
            // A shell keeps its arguments, as a shim does.
            let mut shim = Command::new("sh");
            shim.args(["-c", "read line", "shim", own]).stdin(Stdio::piped());
            let mut shim = shim.spawn().expect("a process");
            let sockets = ["/run/containerd/containerd.sock".to_owned()];
            let command = end_if_forgotten(&id, shim.id(), &sockets);
            Command::new("sh").args(["-c", &command]).env("PATH", &path).output().expect("a shell");
            if is_killed {
                shim.wait().expect("its end");
            } else {
                assert_eq!(shim.try_wait().expect("a child"), None, "{crictl}, {ctr}");
                shim.kill().expect("a process");
                shim.wait().expect("its end");
            }
        }
    }
}
