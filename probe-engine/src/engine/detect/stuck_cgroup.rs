//! **Rule:** the directory of a pod's cgroup stays although its sandbox, which had been ready, is over,
//! nothing of the pod runs, and no runtime has a sandbox of it on record any more.
//!
//! Not flagged: a pod that has not had a sandbox yet (the kubelet makes its directory before it waits for
//! volumes, for as long as that takes); a pod whose dead sandbox its runtime still has on record; any pod if
//! no kubelet runs, since nothing else removes these directories; a directory that is removed and that the
//! kernel still keeps for the memory charged to it. If neither a runtime's record nor another source names
//! the record's pod, it can belong to any pod that existed before it, and no such pod is reported.

use super::{
    DetectContext, Detection, Verdict,
    index::{Marks, Subjects},
    rule::Rule,
};
use crate::{
    engine::world::{
        lookup,
        table::{pod::Pod, record::HasRecord, sandbox::Sandbox},
    },
    model::{
        fact::List,
        finding::{Explain, Severity, StuckCgroup},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        escape::escaped,
        shell::{UNPRINTABLE, lines, quoted},
    },
};

impl Rule for StuckCgroup {
    type Subject = u64;
    type Part = Detection;
    const SUBJECTS: Subjects<u64> = Subjects::PODS;

    /// Any sandbox can change the pod of a record without a pod's name.
    fn depends_on_others(marks: &Marks) -> bool {
        !marks.sandboxes.is_empty()
    }

    fn judge(ctx: &DetectContext<'_>, id: &u64, found: &mut Vec<Detection>) {
        if lookup::daemons::has_kubelet(ctx.world) {
            found.extend(ctx.world.pods.get(id).and_then(|pod| stuck(ctx, pod)));
        }
    }
}

fn stuck(ctx: &DetectContext<'_>, pod: &Pod) -> Option<Detection> {
    let left_at = pod.left_at?;
    let uid = pod.named.uid.as_ref()?;
    let rows = pod.cgroups.iter().filter_map(|key| ctx.world.cgroups.get(key));
    // A cgroup that was made later belongs to a pod that waits for its first sandbox.
    let left = rows.filter(|row| row.is_live() && row.created_at.is_none_or(|made| made < left_at));
    let cgroup = left.max_by_key(|row| row.found_at)?;
    let mut containers =
        ctx.index.pods_of_containers.by(&pod.id).filter_map(|id| ctx.world.containers.get(id));
    let mut sandboxes = ctx.index.pods_of_sandboxes.by(&pod.id).filter_map(|id| ctx.world.sandboxes.get(id));
    let runs = containers.any(|row| row.is_running()) || sandboxes.any(|row| !row.is_stopped());
    if runs {
        return None;
    }
    // Its containers can outlive the pause process, and nobody cleans up before the runtime has forgotten it.
    let mut since = left_at;
    let mut last: Option<&Sandbox> = None;
    for row in ctx.index.uids.by(uid).filter_map(|id| ctx.world.sandboxes.recall(id)) {
        let ends = [row.emptied_at(), row.ending.forgotten_at];
        since = ends.into_iter().flatten().fold(since, Timestamp::max);
        if last.is_none_or(|last| last.first_at <= row.first_at) {
            last = Some(row);
        }
    }
    let verdict = match ctx.pod_has_record(uid) {
        HasRecord::Yes => return None,
        HasRecord::Unknown => Verdict::Unsure,
        HasRecord::No { at } => ctx.left_over(List::Cgroups, since, at, cgroup.found_at)?,
    };
    let kind = StuckCgroup { path: cgroup.path.clone(), populated: cgroup.populated };
    Some(Detection {
        pod: Some(pod.named.clone()),
        sandboxes: last.map(|row| row.id.clone()).into_iter().collect(),
        ..Detection::new(kind, &[uid.as_str()], Severity::Warning, since, verdict)
    })
}

impl Explain for StuckCgroup {
    fn summary(&self) -> String {
        format!("cgroup {} outlives its pod", escaped(&self.path))
    }

    fn cause(&self) -> &'static str {
        "The pod is gone and its cgroup directory is still there."
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        let Some(path) = quoted(&self.path) else { return lines(&[UNPRINTABLE]) };
        // With cgroups v1 each controller has a hierarchy, and in a hybrid one the second version has one
        // beside them.
        let [list, remove] = ["-name cgroup.procs -exec cat {} +", "-depth -type d -exec rmdir {} +"].map(|does| {
            format!(
                "for at in /sys/fs/cgroup{path} /sys/fs/cgroup/*{path}; do [ -d \"$at\" ] && find \"$at\" {does}; done"
            )
        });
        vec![
            "# The first command shows which processes are still in it. As long as there is one, rmdir fails and does no harm."
                .to_owned(),
            list,
            remove,
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::{Explain as _, StuckCgroup};

    /// cgroup v2, cgroup v1 with a hierarchy for each controller, and both together.
    #[test]
    fn its_directories_are_removed_in_each_hierarchy() {
        let path = "/kubepods/besteffort/pod1".to_owned();
        for hierarchies in [&[""][..], &["memory", "cpu,cpuacct"], &["", "unified"]] {
            let folder = tempfile::tempdir().expect("a folder");
            let root = folder.path();
            for hierarchy in hierarchies {
                fs::create_dir_all(root.join(hierarchy).join(&path[1..]).join("a")).expect("directories");
            }
            let stuck = StuckCgroup { path: path.clone(), populated: None };
            for command in stuck.repair(&[], &[]).iter().filter(|line| !line.starts_with('#')) {
                let command = command.replace("/sys/fs/cgroup", root.to_str().expect("text"));
                let done = Command::new("sh").args(["-c", &command]).output().expect("a shell");
                assert!(done.stderr.is_empty() && done.stdout.is_empty(), "{done:?}");
            }
            let left = hierarchies.iter().filter(|it| root.join(it).join(&path[1..]).exists()).count();
            let parents = hierarchies.iter().all(|it| root.join(it).join("kubepods/besteffort").exists());
            assert_eq!((left, parents), (0, true), "{hierarchies:?}");
        }
    }
}
