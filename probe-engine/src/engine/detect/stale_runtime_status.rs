//! **Rule:** a runtime reports something about a sandbox or a container that the kernel contradicts: that it
//! runs although its program has ended, that it has ended although its program runs, that it ended with
//! another exit code, or that it is another container than its cgroup and its bundle show. The runtime must
//! have said so when it was asked after the grace period, counted from what the kernel has shown or from when
//! the runtime answers again.
//!
//! Not flagged, except for its identity: a sandbox or container whose program no hook and no listing has
//! shown, such as one from before the agent, or whose processes are not its own program's (a virtual machine,
//! gVisor). Not flagged: a sandbox of which nothing at all is left (`phantom_sandbox`); a container whose
//! cgroup has other processes. An end that no hook saw has no exit code to compare. No finding opens or
//! closes while the runtime does not answer, nor between a gap and the listing that shows which processes
//! run.

use std::fmt::Display;

use super::{
    DetectContext, Detection, Verdict,
    index::{Marks, Subjects},
    phantom_sandbox,
    rule::Rule,
};
use crate::{
    engine::world::{
        lookup,
        table::{
            belief::{Belief, Runtime},
            process::State,
        },
    },
    model::{
        fact::{Believed, List, Role},
        finding::{Contradiction, Explain, Severity, StaleRuntimeStatus},
        id::ContainerId,
        time::Timestamp,
    },
    words::{escape::escaped, shell::asked},
};

impl Rule for StaleRuntimeStatus {
    type Subject = ContainerId;
    type Part = Detection;
    const SUBJECTS: Subjects<ContainerId> = Subjects::BELIEVED;

    fn depends_on_others(marks: &Marks) -> bool {
        marks.runtimes
    }

    fn judge(ctx: &DetectContext<'_>, id: &ContainerId, found: &mut Vec<Detection>) {
        let Some(row) = ctx.world.beliefs.get(id) else { return };
        let Some(runtime) = ctx.world.beliefs.runtime_of(row) else { return };
        if let Some((stale, since)) = contradiction(ctx, row, runtime) {
            let verdict = verdict(ctx, runtime, stale.how, since);
            found.push(detection(ctx, row, stale, since, verdict));
        }
    }
}

/// Returns what is contradicted, and since when. The state of a container comes before its identity.
fn contradiction(
    ctx: &DetectContext<'_>,
    row: &Belief,
    runtime: &Runtime,
) -> Option<(StaleRuntimeStatus, Timestamp)> {
    of_state(ctx, row, runtime).or_else(|| of_identity(ctx, row))
}

fn of_state(
    ctx: &DetectContext<'_>,
    row: &Belief,
    runtime: &Runtime,
) -> Option<(StaleRuntimeStatus, Timestamp)> {
    if [Some(&row.id), row.sandbox.as_ref()]
        .into_iter()
        .flatten()
        .any(|id| lookup::sandbox::hides_programs(ctx.world, id))
    {
        return None;
    }
    match row.state(runtime)? {
        Believed::Running => {
            let ended = row.ended?;
            if has_processes(ctx, &row.id) {
                return None;
            }
            if row.role == Some(Role::Sandbox) && !phantom_sandbox::is_anything_left(ctx, &row.id) {
                return None;
            }
            let about = about(ctx, row, Contradiction::Dead);
            Some((StaleRuntimeStatus { exit_code: ended.code, ..about }, ended.at))
        }
        Believed::Exited if runs(ctx, &row.id) => {
            Some((about(ctx, row, Contradiction::Alive), row.said_since(runtime)))
        }
        Believed::Exited => {
            let ended = row.ended?;
            let runtime_exit_code = row.listed.exit_code?;
            if u32::try_from(runtime_exit_code) == Ok(ended.code?) {
                return None;
            }
            let about = about(ctx, row, Contradiction::ExitCode);
            let stale = StaleRuntimeStatus {
                exit_code: ended.code,
                runtime_exit_code: Some(runtime_exit_code),
                ..about
            };
            Some((stale, ended.at))
        }
        Believed::Created | Believed::Unknown => None,
    }
}

/// Compares the container's name and pod as the runtime reports them with its cgroup and its bundle. The
/// runtime got all of them when it made the container.
fn of_identity(ctx: &DetectContext<'_>, row: &Belief) -> Option<(StaleRuntimeStatus, Timestamp)> {
    let seen = ctx.world.containers.get(&row.id)?;
    let cgroup = ctx.world.cgroups.get(&seen.cgroup?)?;
    let said = &row.described;
    let uid = said.pod.as_ref().and_then(|pod| pod.uid.as_ref());
    let (evidence, runtime_says) = differing("of pod", cgroup.pod.as_ref(), uid)
        .or_else(|| differing("named", seen.name.as_ref(), said.name.as_ref()))?;
    let stale = StaleRuntimeStatus {
        evidence: Some(evidence),
        runtime_says: Some(runtime_says),
        ..about(ctx, row, Contradiction::Identity)
    };
    Some((stale, row.first_at.max(seen.first_at)))
}

/// Returns both as text, if both are known and differ.
fn differing<T: PartialEq + Display>(
    what: &str,
    seen: Option<&T>,
    said: Option<&T>,
) -> Option<(String, String)> {
    let (seen, said) = seen.zip(said).filter(|(seen, said)| seen != said)?;
    Some((format!("{what} {seen}"), format!("{what} {said}")))
}

fn about(ctx: &DetectContext<'_>, row: &Belief, how: Contradiction) -> StaleRuntimeStatus {
    StaleRuntimeStatus {
        how,
        id: row.id.clone(),
        is_sandbox: row.role == Some(Role::Sandbox),
        container: lookup::belief::name_of(ctx.world, row),
        exit_code: None,
        runtime_exit_code: None,
        evidence: None,
        runtime_says: None,
    }
}

/// Whether its program runs.
fn runs(ctx: &DetectContext<'_>, id: &ContainerId) -> bool {
    let process = ctx.world.containers.get(id).and_then(|row| row.process());
    let process = process.and_then(|key| ctx.world.processes.get(key));
    process.is_some_and(|row| row.state == State::Running)
}

/// Whether any process is in its cgroup.
fn has_processes(ctx: &DetectContext<'_>, id: &ContainerId) -> bool {
    let cgroup = ctx.world.containers.get(id).and_then(|row| ctx.world.cgroups.get(&row.cgroup?));
    cgroup.is_some_and(|row| row.is_live() && row.populated == Some(true))
}

fn verdict(ctx: &DetectContext<'_>, runtime: &Runtime, how: Contradiction, since: Timestamp) -> Verdict {
    let is_unsure = match how {
        Contradiction::Alive => ctx.world.lists.is_gapped(List::Processes),
        Contradiction::Dead | Contradiction::ExitCode | Contradiction::Identity => false,
    };
    if is_unsure || !runtime.answers() {
        return Verdict::Unsure;
    }
    let ready = runtime.must_know_by(ctx.awake(since));
    if ctx.now < ready {
        Verdict::Watched { until: Some(ready) }
    } else if runtime.read_at < ready {
        // Wait for the runtime's next list.
        Verdict::Watched { until: None }
    } else {
        Verdict::Confirmed
    }
}

fn detection(
    ctx: &DetectContext<'_>,
    row: &Belief,
    stale: StaleRuntimeStatus,
    since: Timestamp,
    verdict: Verdict,
) -> Detection {
    let severity = match stale.how {
        Contradiction::Dead | Contradiction::Alive | Contradiction::Identity => Severity::Warning,
        Contradiction::ExitCode => Severity::Info,
    };
    let sandbox = if stale.is_sandbox { Some(&row.id) } else { row.sandbox.as_ref() };
    Detection {
        pod: sandbox.map(|id| lookup::record::pod_of_nameless(ctx.world, id)),
        sandboxes: sandbox.into_iter().cloned().collect(),
        ..Detection::new(stale, &[row.id.as_str()], severity, since, verdict)
    }
}

impl Explain for StaleRuntimeStatus {
    fn summary(&self) -> String {
        let what = match &self.container {
            _ if self.is_sandbox => "the sandbox".to_owned(),
            Some(name) => format!("container {}", escaped(name)),
            None => "a container".to_owned(),
        };
        match self.how {
            Contradiction::Dead => format!("the runtime says that {what} runs, and its process has ended"),
            Contradiction::Alive => format!("the runtime says that {what} has ended, and its process runs"),
            Contradiction::ExitCode => {
                let seen = self.exit_code.map(i64::from);
                let [seen, said] = [seen, self.runtime_exit_code.map(i64::from)]
                    .map(|code| code.map_or_else(|| "?".to_owned(), |code| code.to_string()));
                format!("{what} ended with {seen}, and the runtime says {said}")
            }
            Contradiction::Identity => {
                let [seen, said] =
                    [&self.evidence, &self.runtime_says].map(|text| escaped(text.as_deref().unwrap_or("?")));
                format!("{what} is {seen}, and the runtime says {said}")
            }
        }
    }

    fn cause(&self) -> &'static str {
        match self.how {
            Contradiction::Dead => {
                "The runtime has not noticed the end of the process: its shim or monitor was killed, or the message of the \
                 end was lost. The kubelet believes the runtime, so it does not restart the container, and the pod looks \
                 healthy."
            }
            Contradiction::Alive => {
                "The runtime counts the container as ended and its process runs on: the runtime lost its shim or monitor, \
                 and took that for the end. The kubelet starts another container beside the one that runs."
            }
            Contradiction::ExitCode => {
                "The runtime reports another exit code than the kernel, as after a restart or when its shim or monitor was \
                 killed. The pod's status, restart policy and jobs go by the runtime's code."
            }
            Contradiction::Identity => {
                "The runtime's record of the container is not what it made its cgroup and its bundle of: the record was \
                 restored from another one, or the bundle was changed. The kubelet acts on the pod that the runtime names."
            }
        }
    }

    fn repair(&self, _sandboxes: &[ContainerId], runtimes: &[String]) -> Vec<String> {
        let verb = if self.is_sandbox { "inspectp" } else { "inspect" };
        let mut all = vec!["# What the runtime says:".to_owned()];
        all.extend(asked(runtimes, verb, std::slice::from_ref(&self.id)));
        match self.how {
            Contradiction::Dead | Contradiction::Alive => {
                all.push(
                    "# If it still says so, a restart of the runtime has it look again. Pods keep running."
                        .to_owned(),
                );
            }
            Contradiction::ExitCode | Contradiction::Identity => {}
        }
        all
    }
}
