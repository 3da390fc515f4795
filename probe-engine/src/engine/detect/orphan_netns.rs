//! **Rule:** a network namespace is bound to a file and no process is in it. Either it belonged to a pod's
//! sandbox that is over and that no runtime has on record, or its file has a name as containerd and CRI-O
//! give and no sandbox has the namespace. A listing of the node must show it when the time is up. If the
//! namespace was made while the agent ran, the agent also asks for a listing when a quarter of the time is
//! up.
//!
//! Or it belonged to such a sandbox, no listing has had it for half an hour, and no hook reported its end: an
//! interface in another namespace holds it (a macvlan, a VRF), or a descriptor, or a socket.
//!
//! Not flagged: namespaces of other programs (`ip netns add`, `qrouter-*`, Docker); a namespace that a socket
//! holds for a while, such as one that sends its last bytes to a peer that does not answer; a namespace of a
//! dead sandbox that its runtime has not cleaned up yet; a namespace without a known owner that can be that
//! of a sandbox on record whose namespace is not known. It cannot be if it was made long after that sandbox
//! came on record. Nothing is flagged while the listing of processes is incomplete.
//!
//! A runtime that restarts cleans nothing up, and only the file holds the namespaces of its sandboxes without
//! a process. No finding opens or closes then.

use std::time::Duration;

use super::{
    DetectContext, Detection, Verdict,
    index::{Marks, Subjects},
    rule::Rule,
};
use crate::{
    engine::world::{
        World, lookup,
        table::{netns::Netns, record::HasRecord},
    },
    model::{
        fact::{List, PodName},
        finding::{Explain, OrphanNetns, Severity},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        escape::escaped,
        shell::{UNPRINTABLE, lines, quoted},
    },
};

/// A socket that sends its last bytes to a peer that does not answer holds its namespace for up to a quarter
/// of an hour.
pub(super) const HELD: Duration = Duration::from_secs(30 * 60);

impl Rule for OrphanNetns {
    type Subject = u64;
    type Part = Detection;
    const SUBJECTS: Subjects<u64> =
        Subjects { all: |ctx| ctx.world.netns.keys().copied().collect(), marked: |marks| &marks.netns };

    /// Any sandbox can change the pod of a record without a pod's name, and can be the owner of a namespace
    /// without one.
    fn depends_on_others(marks: &Marks) -> bool {
        !marks.sandboxes.is_empty()
    }

    fn judge(ctx: &DetectContext<'_>, life: &u64, found: &mut Vec<Detection>) {
        let Some(row) = ctx.world.netns.get(*life) else { return };
        if !row.is_live() || row.key.inode == ctx.world.node.host_netns {
            return;
        }
        if row.mounts.is_empty() && row.sandbox.is_none() {
            found.extend(not_listed_yet(ctx, row));
            return;
        }
        let Some(leftover) = leftover(ctx, row) else { return };
        let verdict = match row.unlisted_since {
            Some(since) => unlisted(ctx, &leftover, since),
            None => verdict(ctx, row, &leftover),
        };
        if let Some(verdict) = verdict {
            found.push(detection(ctx, row, leftover, verdict));
        }
    }
}

/// Judges a namespace that was made while the agent ran and that no CNI call named. No hook reports the file
/// that holds it, so a listing must show it once the namespace is old enough to be reported.
fn not_listed_yet(ctx: &DetectContext<'_>, row: &Netns) -> Option<Detection> {
    let made = row.created_at?;
    if row.sandbox.is_some() || row.found_at.is_some() || ctx.index.residents.is_named(&row.key.inode) {
        return None;
    }
    let verdict = match ctx.after_cleanup(made, ctx.limits.leak_grace / 4) {
        Verdict::Confirmed => {
            ctx.listed_since(&[List::Netns], made.max(ctx.up?) + ctx.limits.leak_grace / 4)?
        }
        early @ (Verdict::Watched { .. }
        | Verdict::Candidate { .. }
        | Verdict::Unsure
        | Verdict::Unverified
        | Verdict::Unlisted
        | Verdict::Passing { .. }) => Verdict::Watched { until: early.due_at() },
    };
    let leftover = Leftover { since: made, read_at: None, owners: Vec::new() };
    Some(detection(ctx, row, leftover, verdict))
}

/// A network namespace without a live sandbox.
struct Leftover {
    since: Timestamp,
    /// When the records were read and no longer named its sandbox. None: they do not show that at the moment.
    read_at: Option<Timestamp>,
    /// The sandboxes that are known to have had it.
    owners: Vec<ContainerId>,
}

fn leftover(ctx: &DetectContext<'_>, row: &Netns) -> Option<Leftover> {
    let world = ctx.world;
    if row.sandbox.as_ref().is_some_and(|id| lives(world, id)) {
        return None;
    }
    let owners = ctx.index.owners(row);
    let is_pinned = runtime_mount(world, row).is_some();
    if owners.is_empty() {
        if !is_pinned {
            return None;
        }
        // A namespace is empty before its sandbox gets it, so the time counts from its creation at the
        // earliest.
        let since = row.vacant_since?.max(row.created_at.unwrap_or(Timestamp::ZERO));
        let read_at = lookup::unplaced::sandboxes(world).and_then(|it| it.absent_at(row.created_at));
        return Some(Leftover { since, read_at, owners });
    }
    // An owner that is known only by the path needs such a path. Otherwise a plugin of a pod's sandbox must
    // have worked in the namespace.
    let mut known = owners.iter().filter_map(|id| world.sandboxes.recall(id));
    if !is_pinned && (!row.proven || known.all(|row| row.reported.pod == PodName::default())) {
        return None;
    }
    let mut since = Timestamp::ZERO;
    let mut read_at = Some(Timestamp::ZERO);
    for id in &owners {
        let at = match ctx.has_record(id) {
            HasRecord::Yes => return None,
            HasRecord::No { at } => Some(at),
            HasRecord::Unknown => None,
        };
        let known = world.sandboxes.recall(id);
        let over_at = known.and_then(|known| known.over_at()).or(row.vacant_since)?;
        since = since.max(over_at).max(known.and_then(|known| known.ending.forgotten_at).unwrap_or(over_at));
        read_at = read_at.zip(at).map(|(one, other)| one.max(other));
        if lives(world, id) {
            return None;
        }
    }
    Some(Leftover { since, read_at, owners })
}

fn verdict(ctx: &DetectContext<'_>, row: &Netns, leftover: &Leftover) -> Option<Verdict> {
    let listed = row.found_at >= Some(leftover.since);
    if listed && row.vacant_since.is_none() || ctx.index.residents.is_named(&row.key.inode) {
        return None;
    }
    let Some(read_at) = leftover.read_at else { return Some(Verdict::Unsure) };
    let verdict = ctx.left_over(List::Netns, leftover.since, read_at, row.found_at)?;
    if let Verdict::Candidate { until } = verdict
        && row.may_be_over()
    {
        // The listing that found it is no longer enough. The one that confirms it shows whether it exists.
        return Some(Verdict::Watched { until });
    }
    Some(verdict)
}

/// Judges a namespace that no listing has had since `since`.
fn unlisted(ctx: &DetectContext<'_>, leftover: &Leftover, since: Timestamp) -> Option<Verdict> {
    let ready = ctx.awake(since) + HELD;
    if leftover.read_at.is_none() {
        return Some(Verdict::Unsure);
    }
    if ctx.now < ready {
        return Some(Verdict::Watched { until: Some(ready) });
    }
    Some(ctx.listed_since(&[List::Netns], ready).unwrap_or(Verdict::Confirmed))
}

fn lives(world: &World, id: &ContainerId) -> bool {
    world.sandboxes.get(id).is_some_and(|row| !row.is_stopped())
}

/// Returns the name of the file, if a runtime made it.
fn runtime_mount<'a>(world: &World, row: &'a Netns) -> Option<&'a str> {
    row.mounts.iter().find_map(|path| {
        let name = path.strip_prefix("/var").unwrap_or(path).strip_prefix("/run/netns/")?;
        let of_containerd = name.strip_prefix("cni-").is_some_and(is_uuid);
        let of_crio = is_uuid(name) && lookup::daemons::has_crio(world);
        (of_containerd || of_crio).then_some(name)
    })
}

fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn detection(ctx: &DetectContext<'_>, row: &Netns, leftover: Leftover, verdict: Verdict) -> Detection {
    let sandbox = leftover.owners.last().and_then(|id| ctx.world.sandboxes.recall(id));
    // No listing shows the files any more.
    let mounts = if row.unlisted_since.is_some() { Vec::new() } else { row.mounts.clone() };
    let kind = OrphanNetns { netns: row.key, mounts };
    let inode = row.key.inode.to_string();
    let name =
        runtime_mount(ctx.world, row).or_else(|| row.mounts.first().map(String::as_str)).unwrap_or(&inode);
    Detection {
        pod: sandbox.map(|row| row.reported.pod.clone()),
        gapped: sandbox.is_some_and(|row| row.gapped),
        sandboxes: leftover.owners,
        ..Detection::new(kind, &[name], Severity::Warning, leftover.since, verdict)
    }
}

impl Explain for OrphanNetns {
    fn summary(&self) -> String {
        match self.mounts.first() {
            Some(mount) => {
                format!("netns {} is unused and kept by the mount {}", self.netns.inode, escaped(mount))
            }
            None => {
                format!("netns {} outlives its sandbox, and no file and no process has it", self.netns.inode)
            }
        }
    }

    fn cause(&self) -> &'static str {
        if self.mounts.is_empty() {
            "The network namespace belonged to a sandbox that is over. It is bound to no file and no process is in it, and the \
             kernel has not ended it: an interface in another namespace holds it (a macvlan, a VRF), or an open \
             descriptor, a socket, or a mount in a container."
        } else {
            "The network namespace belonged to a sandbox. No process and no sandbox uses it any more, and a mount keeps it."
        }
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        if self.mounts.is_empty() {
            return self.find_holder();
        }
        let mut all = lines(&[
            "# Each command does nothing if a thread is in the network namespace. umount removes the mount that keeps the",
            "# namespace. rm removes the empty file beneath, and fails as long as something is mounted there.",
        ]);
        for mount in &self.mounts {
            all.push(quoted(mount).map_or_else(
                || UNPRINTABLE.to_owned(),
                |at| {
                    // `ip netns pids` knows only the files in /run/netns. An empty result means that nothing
                    // could be read. A thread may be in another namespace than its process.
                    let each = r"-path '*/ns/net' -printf '%l\n' -o ! -name ns -prune";
                    let all = format!(
                        r"find /proc/[0-9]*/task -mindepth 2 -maxdepth 3 \( {each} \) 2>/dev/null || :"
                    );
                    let is_empty = r#"case $in in "" | *"net:[$n]"*) false ;; esac"#;
                    format!(
                        "n=$(stat -Lc %i -- {at}) && in=$({all}) && {is_empty} && umount -- {at} && rm -- {at}"
                    )
                },
            ));
        }
        all
    }
}

impl OrphanNetns {
    /// Returns commands that find what holds a namespace that no listing shows.
    fn find_holder(&self) -> Vec<String> {
        let name = format!(r"'net:\[{}\]'", self.netns.inode);
        vec![
            "# A process that has it open, a thread that is in it, a container that has it mounted: end the process or restart the"
                .to_owned(),
            "# container.".to_owned(),
            format!("find /proc/[0-9]*/fd /proc/[0-9]*/task/[0-9]*/ns/net -lname {name} 2>/dev/null"),
            format!("grep -l {name} /proc/[0-9]*/mountinfo 2>/dev/null"),
            "# If these print nothing: an interface of the node whose other side is in it, as \"link-netnsid\" shows. Delete that"
                .to_owned(),
            "# interface. If there is none, only a reboot ends the namespace.".to_owned(),
            "ip -d link | grep -B1 -A2 link-netnsid".to_owned(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, symlink},
        process::Command,
    };

    use super::{Explain as _, OrphanNetns, is_uuid};
    use crate::model::id::NetnsKey;

    /// Runs the commands for the namespace at this file. `umount` and `rm` only print that they were called.
    /// `tools` replaces other commands.
    fn repaired(at: &str, tools: &str) -> String {
        repaired_of("/proc/", at, tools)
    }

    /// Runs the repair with this folder in place of `/proc`.
    fn repaired_of(proc: &str, at: &str, tools: &str) -> String {
        let netns = NetnsKey::new(7, 0);
        let commands = OrphanNetns { netns, mounts: vec![at.to_owned()] }.repair(&[], &[]);
        let stubs = format!("umount() {{ echo umount $2; }}\nrm() {{ echo rm $2; }}\n{tools}");
        let lines: Vec<String> = [stubs].into_iter().chain(commands).collect();
        let script = lines.join("\n").replace("/proc/[0-9]", &format!("{proc}[0-9]"));
        let said = ["dash", "bash"].map(|shell| {
            let output = Command::new(shell).args(["-c", &script]).output().expect("a shell");
            String::from_utf8(output.stdout).expect("text")
        });
        assert_eq!(said[0], said[1]);
        said.into_iter().next().expect("one")
    }

    #[test]
    fn only_a_namespace_in_which_no_process_is_found_is_unmounted() {
        let empty = tempfile::NamedTempFile::new().expect("a file");
        let empty = empty.path().to_str().expect("a path");
        assert_eq!(repaired(empty, ""), format!("umount {empty}\nrm {empty}\n"));
        assert_eq!(repaired("/proc/self/ns/net", ""), "", "the shell is in it");
        assert_eq!(repaired("/does/not/exist", ""), "");
        for broken in ["find() { return 127; }", "stat() { return 127; }"] {
            assert_eq!(repaired(empty, broken), "", "{broken}");
        }
    }

    /// A shell has its own network namespace open.
    #[test]
    fn a_process_that_has_an_unlisted_namespace_open_is_found() {
        let shell = |command: &str| {
            let output = Command::new("sh").args(["-c", command]).output().expect("a shell");
            String::from_utf8(output.stdout).expect("text")
        };
        let inode = shell("stat -Lc %i /proc/self/ns/net").trim().parse().expect("an inode");
        let repair = OrphanNetns { netns: NetnsKey::new(inode, 0), mounts: Vec::new() }.repair(&[], &[]);
        let find = repair.iter().find(|line| line.starts_with("find ")).expect("the command");
        let found = shell(&format!("exec 9</proc/self/ns/net; echo /proc/$$/fd/9; {find}"));
        let (own, found) = found.split_once('\n').expect("lines");
        assert!(found.lines().any(|line| line == own), "{own} is not in {found}");
    }

    /// A thread of a runtime may be in another network namespace than its process.
    #[test]
    fn a_namespace_in_which_a_thread_is_found_stays() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let inode = file.as_file().metadata().expect("a file").ino();
        let at = file.path().to_str().expect("a path");
        let processes = tempfile::tempdir().expect("a folder");
        let thread = |process: u32, thread: u32, netns: u64| {
            let folder = processes.path().join(format!("{process}/task/{thread}/ns"));
            fs::create_dir_all(&folder).expect("a folder");
            fs::remove_file(folder.join("net")).ok();
            symlink(format!("net:[{netns}]"), folder.join("net")).expect("a link");
        };
        let proc = format!("{}/", processes.path().display());
        for (process, of) in [(1, 1), (20, 20), (20, 21)] {
            thread(process, of, 4_026_531_840);
        }
        assert_eq!(repaired_of(&proc, at, ""), format!("umount {at}\nrm {at}\n"));
        thread(20, 21, inode);
        assert_eq!(repaired_of(&proc, at, ""), "");
    }

    #[test]
    fn a_uuid_is_known_by_its_form() {
        assert!(is_uuid("8d7f2f5e-2f0e-4a3b-9d0c-1c1f6b0e3c55"));
        for other in [
            "",
            "blue",
            "8d7f2f5e",
            "8d7f2f5e-2f0e-4a3b-9d0c-1c1f6b0e3c5",
            "8d7f2f5e-2f0e-4a3b-9d0c-1c1f6b0e3cxx",
        ] {
            assert!(!is_uuid(other), "{other}");
        }
        // The groups of digits have the wrong order.
        assert!(!is_uuid("8d7f-2f5e2f0e-4a3b-9d0c-1c1f6b0e3c55"));
    }
}
