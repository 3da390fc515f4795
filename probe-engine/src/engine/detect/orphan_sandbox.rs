//! **Rule:** the process that holds a sandbox (pause), its shim or its conmon runs, although no runtime has
//! this sandbox or another one of its pod on record any more.
//!
//! Not flagged: a sandbox that is being made (the runtime may write its record only after its network is set
//! up, however long that takes); a pod that has another sandbox on record (`duplicate_sandbox` covers that);
//! anything while a runtime's records cannot be read whole, or between a gap and the listing that closes it.

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
    words::{escape::escaped, shell::crictl},
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

    fn repair(&self, _sandboxes: &[ContainerId], runtimes: &[String]) -> Vec<String> {
        let mut all = vec![
            "# Look at the process before you stop it: a runtime that restarts may take the sandbox up again."
                .to_owned(),
            format!("ps -o pid,ppid,lstart,cgroup,args -p {}", self.process.key.pid),
        ];
        all.extend(crictl(runtimes).map(|crictl| format!("{crictl} pods")));
        all
    }
}
