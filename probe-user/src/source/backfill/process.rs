//! Lists the processes that matter: the main processes of containers, runtimes and kubelets, and CNI plugins
//! at work.
//!
//! They are chosen by the same names as in the hooks (`probe_common::name`). A name counts only if the
//! process is root's, because any user can give a program any name. For all other processes only the parent,
//! the cgroup and the network namespace are read.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap},
    thread,
    time::Duration,
};

use nix::errno::Errno;
use probe_common::{name, runtime::Helper, text::sixteen};

use super::{Listing, Node, cgroupfs, proc};
use crate::{
    model::{
        fact::{Fact, List, ProcessFound, Task},
        id::{CgroupKey, NetnsKey, TaskKey},
        time::Timestamp,
    },
    source::{
        host::{Folder, HostRoot, ReadError},
        node::cgroup,
    },
};

/// How much of a command line is kept, and how much of an environment is searched, bytes.
const ARGUMENTS_BYTES: usize = 4096;
const ENVIRONMENT_BYTES: usize = 1 << 20;
/// By then a process has finished ending, or changing its credentials.
const SECOND_READ: Duration = Duration::from_millis(50);
/// How many generations above a plugin its caller can be. Other plugins and the shell of a wrapper script may
/// be in between.
const ANCESTORS: usize = 4;

/// All processes by pid.
#[derive(Debug)]
pub(super) struct Table {
    /// The time before the first process was read.
    pub(super) begun: Timestamp,
    /// Whether the table has every process that existed.
    pub(super) is_whole: bool,
    processes: BTreeMap<u32, Process>,
}

#[derive(Debug)]
pub(super) struct Process {
    /// The time just before it was read.
    pub(super) at: Timestamp,
    stat: proc::Stat,
    cgroup: String,
    /// The inodes of its namespaces; 0 if it has left them, or if they may not be read.
    pub(super) netns: u32,
    pub(super) mnt_ns: u32,
    /// Why its network namespace may not be read.
    pub(super) hidden: Option<ReadError>,
    container: Option<String>,
    /// It has a name that matters, but it is not root's.
    forged: bool,
}

impl Table {
    /// Returns the node's own network namespace, which belongs to no pod: init's, or, if that may not be
    /// read, the one that most programs outside of containers are in.
    pub(super) fn own_netns(&self) -> Option<u32> {
        let init = self.processes.get(&1).map(|init| init.netns).filter(|netns| *netns != 0);
        init.or_else(|| {
            let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
            for process in self.processes.values().filter(|process| process.container.is_none()) {
                *counts.entry(process.netns).or_default() += u32::from(process.netns != 0);
            }
            let most = counts.into_iter().max_by_key(|(_, count)| *count);
            most.filter(|(_, count)| *count > 0).map(|(netns, _)| netns)
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Process)> {
        self.processes.iter().map(|(pid, process)| (*pid, process))
    }

    /// Returns the processes, oldest first. The main program of a container is the oldest that was started
    /// from outside. A probe, a hook or a user's shell that was executed into the container later may have a
    /// lower pid, because pids wrap around.
    fn by_age(&self) -> Vec<(u32, &Process)> {
        let mut all: Vec<(u32, &Process)> = self.iter().collect();
        all.sort_by_key(|(pid, process)| (process.stat.start, *pid));
        all
    }

    fn key(&self, pid: u32) -> TaskKey {
        TaskKey::new(pid, self.processes.get(&pid).map_or(0, |process| process.stat.start))
    }

    /// Returns whether a runtime is among the ancestors of a process.
    fn called(&self, process: &Process) -> bool {
        let mut parent = process.stat.parent;
        (0..ANCESTORS).any(|_| {
            let Some(found) = self.processes.get(&parent) else { return false };
            parent = found.stat.parent;
            found.is_caller()
        })
    }

    /// Returns whether a process is the first program in a container's cgroup: its parent is outside of
    /// containers. If the parent has ended, the init of the pid namespace adopted the process, and that init
    /// may be in another container of the pod.
    fn is_top(&self, process: &Process) -> bool {
        let parent = self.processes.get(&process.stat.parent);
        process.container.is_some() && parent.is_none_or(|parent| parent.container.is_none())
    }
}

impl Process {
    /// Returns whether it is one of the node's runtimes or kubelets. A name proves nothing in a container.
    fn is_caller(&self) -> bool {
        self.container.is_none() && !self.forged && self.has_name_of(&name::CALLERS)
    }

    /// Returns whether it is a runtime, which may hold namespaces in mounts of its own.
    pub(super) fn is_runtime(&self) -> bool {
        self.is_caller() || self.container.is_none() && !self.forged && self.has_name_of(&name::RUNTIMES)
    }

    fn has_name_of(&self, names: &[[u8; 16]]) -> bool {
        has_name_of(&self.stat, names)
    }
}

fn has_name_of(stat: &proc::Stat, names: &[[u8; 16]]) -> bool {
    names.contains(&sixteen(&stat.comm))
}

pub(super) fn list(node: Node<'_>) -> (Listing<'_>, Table) {
    let mut list = Listing::begin(List::Processes, node);
    let mut table = Table { begun: list.now(), is_whole: false, processes: BTreeMap::new() };
    let proc = node.root.folder("/proc").and_then(|proc| Ok((proc.entries()?, proc)));
    let proc = proc.map_err(|why| if why == ReadError::Absent { ReadError::NotPlain } else { why });
    let Some((entries, proc)) = list.take("/proc", proc) else { return (list, table) };

    let members = OnceCell::new();
    for entry in &entries.entries {
        let Ok(pid) = entry.name.parse::<u32>() else { continue };
        let at = list.now();
        let found = proc.folder(&entry.name).and_then(|folder| read(&folder, at, node.hierarchy.id));
        if let Some(mut process) = list.take(proc.path().join(&entry.name), found)
            && !process.stat.is_over()
        {
            // In a cgroup namespace of our own, paths outside of it are relative to our own cgroup.
            if process.cgroup.starts_with("/..") {
                let members: &HashMap<u32, String> = members.get_or_init(|| cgroupfs::members(node));
                process.cgroup = members.get(&pid).cloned().unwrap_or(process.cgroup);
            }
            table.processes.insert(pid, process);
        }
    }
    read_again(&mut table, &proc);
    table.is_whole = list.skipped.is_none() && entries.left_out == 0;
    let mut cgroups = Cgroups { node, ids: HashMap::new() };
    for (pid, process) in table.by_age() {
        let name = pid.to_string();
        let found =
            proc.folder(&name).and_then(|folder| describe(&table, pid, process, &folder, &mut cgroups));
        let path = proc.path().join(name);
        if let Some(Some((found, unread))) = list.take(&path, found) {
            if let Some(why) = unread {
                list.skip(path.join("cmdline"), why);
            }
            list.found(process.at, Fact::ProcessFound(found));
        }
    }
    (list, table)
}

/// Reads the processes a second time whose network namespace could not be read. A process that has ended by
/// then is no longer in a namespace, and a process that has its pid now began after the table.
fn read_again(table: &mut Table, proc: &Folder) {
    if table.processes.values().all(|process| process.hidden.is_none()) {
        return;
    }
    thread::sleep(SECOND_READ);
    table.processes.retain(|pid, process| {
        if process.hidden.is_none() {
            return true;
        }
        let folder = match proc.folder(&pid.to_string()) {
            Ok(folder) => folder,
            Err(why) => return why != ReadError::Absent,
        };
        let now = folder.head("stat", 4096).map(|text| proc::stat(&text));
        let is_over = match now {
            Ok(Some(now)) => now.start != process.stat.start || now.is_over(),
            Err(ReadError::Absent) => true,
            Ok(None) | Err(_) => false,
        };
        let netns = namespace(&folder, "net");
        process.netns = netns.unwrap_or(0);
        process.hidden = netns.err().filter(|why| *why != ReadError::Absent);
        !is_over
    });
}

/// Returns the inode of a process's namespace.
fn namespace(folder: &Folder, kind: &str) -> Result<u32, ReadError> {
    let link = folder.link(&format!("ns/{kind}"))?;
    proc::namespace(kind, &link).ok_or(ReadError::Malformed)
}

fn read(folder: &Folder, at: Timestamp, hierarchy: u32) -> Result<Process, ReadError> {
    let stat = proc::stat(&folder.head("stat", 4096)?).ok_or(ReadError::Malformed)?;
    let cgroup = cgroup::path_in(hierarchy, &folder.head("cgroup", 1 << 16)?).unwrap_or_default();
    let container = cgroupfs::container(&cgroup).map(|(id, _)| id.as_str().to_owned());
    let netns = namespace(folder, "net");
    let mnt_ns = namespace(folder, "mnt").unwrap_or(0);
    let named = [&name::CALLERS[..], &name::RUNTIMES].iter().any(|names| has_name_of(&stat, names));
    let forged = named && !is_root_by_itself(folder)?;
    let hidden = netns.err().filter(|why| *why != ReadError::Absent);
    Ok(Process { at, stat, cgroup, netns: netns.unwrap_or(0), mnt_ns, hidden, container, forged })
}

/// Returns whether a process is root's and its program is not setuid. A user who starts a setuid program can
/// choose its name, even if the program then takes root's ids for good.
pub(super) fn is_root_by_itself(folder: &Folder) -> Result<bool, ReadError> {
    // If the program may not be examined, only the user is known.
    let lends = match folder.is_setuid() {
        Err(ReadError::Unreadable(Errno::EACCES | Errno::EPERM) | ReadError::Absent) => false,
        lends => lends?,
    };
    Ok(!lends && proc::is_root(&folder.head("status", 1 << 16)?))
}

/// Describes a process; `None` if it does not matter, or if the pid now belongs to another process. The
/// second value says why its arguments could not be read.
fn describe(
    table: &Table,
    pid: u32,
    process: &Process,
    folder: &Folder,
    cgroups: &mut Cgroups<'_>,
) -> Result<Option<(ProcessFound, Option<ReadError>)>, ReadError> {
    // Init shows which network namespace is the node's own.
    let matters = pid == 1
        || table.is_top(process)
        || process.has_name_of(&name::PAUSES)
        || !process.forged
            && [&name::CALLERS[..], &name::RUNTIMES].iter().any(|names| process.has_name_of(names));
    let mut cni = None;
    if !matters {
        if process.container.is_some() || !table.called(process) {
            return Ok(None);
        }
        cni = proc::cni(&folder.head("environ", ENVIRONMENT_BYTES)?);
        if cni.is_none() {
            return Ok(None);
        }
    }
    let status = folder.head("status", 1 << 16)?;
    if cni.is_some() && !proc::is_root(&status) {
        return Ok(None);
    }
    let same = proc::stat(&folder.head("stat", 4096)?).is_some_and(|now| now.start == process.stat.start);
    if !same {
        return Ok(None);
    }
    let filename = folder.link("exe").unwrap_or_default();
    // The kernel reads arguments from the memory of the process, and the read hangs if the process hangs. The
    // arguments of programs in pods are not needed, so they are not read.
    let (argv, unread) = if process.container.is_some() && !is_of_runtime(&filename) {
        (Vec::new(), None)
    } else {
        match folder.head("cmdline", ARGUMENTS_BYTES) {
            Ok(cmdline) => (proc::arguments(&cmdline), None),
            // If a hook saw the process begin, its arguments are already known.
            Err(why @ ReadError::Unanswered) => (Vec::new(), Some(why)),
            Err(why) => return Err(why),
        }
    };
    let found = ProcessFound {
        forged: process.forged,
        task: Task {
            key: table.key(pid),
            tid: pid,
            parent: table.key(process.stat.parent),
            comm: process.stat.comm.clone(),
            cgroup: cgroups.key(&process.cgroup),
            netns: process.netns,
        },
        argv,
        cgroup_path: process.cgroup.clone(),
        ns_pid: proc::ns_pid(&status).unwrap_or(0),
        cni,
        filename: filename.strip_suffix(" (deleted)").unwrap_or(&filename).to_owned(),
    };
    Ok(Some((found, unread)))
}

/// Returns whether a program in a container can be an OCI runtime's, which is about to execute the
/// container's program. runc executes a copy of itself from memory, named
/// `/memfd:runc_cloned:/proc/self/exe`.
fn is_of_runtime(filename: &str) -> bool {
    let name = filename.strip_suffix(" (deleted)").unwrap_or(filename).rsplit('/').next();
    name.is_some_and(Helper::is_init)
}

/// The keys of cgroups by path; zero for a cgroup that is gone.
struct Cgroups<'a> {
    node: Node<'a>,
    ids: HashMap<String, CgroupKey>,
}

impl Cgroups<'_> {
    fn key(&mut self, path: &str) -> CgroupKey {
        let hierarchy = self.node.hierarchy;
        *self.ids.entry(path.to_owned()).or_insert_with(|| {
            let folder = self.node.root.folder(format!("{}{path}", hierarchy.mount));
            let id = folder.and_then(|folder| folder.inode());
            id.map_or(CgroupKey::default(), |id| CgroupKey::new(hierarchy.id, id))
        })
    }
}

/// Finds the network namespace of one process: `ProcessNetns`. `None` if the process has ended or may not be
/// read.
pub(crate) fn netns_of(root: &HostRoot, pid: u32) -> Option<Fact> {
    let folder = root.folder(format!("/proc/{pid}")).ok()?;
    let stat = proc::stat(&folder.head("stat", 4096).ok()?)?;
    let netns = namespace(&folder, "net").ok()?;
    Some(Fact::ProcessNetns { process: TaskKey::new(pid, stat.start), netns })
}

/// Returns the key of a namespace in a listing. It has no cookie, because no file shows the cookie.
pub(super) fn netns_key(inode: u32) -> NetnsKey {
    NetnsKey::new(inode, 0)
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
        path::Path,
        sync::Arc,
    };

    use super::{Node, list, netns_of};
    use crate::{
        engine::{Engine, Settings},
        model::{
            change::{ChangeKind, Output},
            fact::{Exited, Fact, List, Observation, Origin, ProcessFound},
            time::Timestamp,
        },
        source::{
            host::{
                HostRoot,
                watch::{Avoided, Reader},
            },
            node::cgroup::Hierarchy,
        },
    };

    const UID: &str = "11111111-2222-3333-4444-555555555555";
    const SHIM: u32 = 623;
    const PROBE: u32 = 700;
    const MAIN: u32 = 4000;

    /// Writes a process as `/proc` shows it; `start` is in clock ticks since boot.
    fn process(root: &Path, pid: u32, parent: u32, comm: &str, (start, ns_pid): (u64, u32), cgroup: &str) {
        let folder = root.join(format!("proc/{pid}"));
        fs::create_dir_all(folder.join("ns")).expect("a directory");
        let write = |name: &str, text: String| fs::write(folder.join(name), text).expect("a file");
        write("stat", stat(pid, comm, 'S', parent, start));
        write("status", format!("NSpid:\t{pid}\t{ns_pid}\n"));
        write("cgroup", format!("0::{cgroup}\n"));
        write("cmdline", format!("/{comm}\0"));
        symlink("net:[4026532177]", folder.join("ns/net")).expect("a link");
        fs::create_dir_all(root.join("sys/fs/cgroup").join(cgroup.trim_start_matches('/')))
            .expect("a cgroup");
    }

    fn stat(pid: u32, comm: &str, state: char, parent: u32, start: u64) -> String {
        format!("{pid} ({comm}) {state} {parent} {}{start} 0 0\n", "0 ".repeat(17))
    }

    /// Lists the processes.
    fn found(root: &Path) -> Vec<Observation> {
        found_in(&HostRoot::open(root).expect("the root"))
    }

    fn found_in(root: &HostRoot) -> Vec<Observation> {
        let hierarchy = Hierarchy { id: 0, controllers: Vec::new(), mount: "/sys/fs/cgroup".to_owned() };
        let clock = || Timestamp(1_000_000_000_000);
        let node = Node { root, hierarchy: &hierarchy, clock: &clock, boot_wall_ns: 0, stores: &[] };
        list(node).0.end().0
    }

    fn it(seen: &Observation) -> Option<&ProcessFound> {
        if let Fact::ProcessFound(it) = &seen.fact { Some(it) } else { None }
    }

    /// The memory of programs in pods is not read, except that of the runtime's own program. A shim whose
    /// memory hangs is reported without its arguments, and the list is incomplete.
    #[test]
    fn no_memory_is_read_of_what_runs_in_a_container() {
        let root = tempfile::tempdir().expect("a directory");
        let leaf = |id: &str| format!("/kubepods/besteffort/pod{UID}/{}", id.repeat(64));
        process(root.path(), SHIM, 1, "containerd-shim", (400, SHIM), "/runtime.slice");
        process(root.path(), MAIN, SHIM, "main", (500, 1), &leaf("c"));
        process(root.path(), PROBE, SHIM, "runc", (600, 1), &leaf("d"));
        for (pid, file) in [(MAIN, "/main"), (PROBE, "/memfd:runc_cloned:/proc/self/exe (deleted)")] {
            symlink(file, root.path().join(format!("proc/{pid}/exe"))).expect("a link");
        }
        let avoided = Arc::new(Avoided::default());
        avoided.add(format!("/proc/{SHIM}/cmdline").into());
        avoided.add(format!("/proc/{MAIN}/cmdline").into());
        let host = HostRoot::open(root.path()).expect("the root");
        let host = host.watched(Arc::new(Reader::new(Arc::clone(&avoided)))).expect("a handle");
        let arguments = |facts: &[Observation], pid| {
            let mut all = facts.iter().filter_map(it);
            all.find(|it| it.task.key.pid == pid).map(|it| it.argv.clone())
        };
        let is_whole = |facts: &[Observation]| {
            facts.iter().any(|seen| matches!(seen.fact, Fact::ListEnded { complete: true, .. }))
        };
        let facts = found_in(&host);
        assert_eq!(arguments(&facts, SHIM), Some(Vec::new()));
        assert_eq!(arguments(&facts, PROBE), Some(vec!["/runc".to_owned()]));
        assert!(!is_whole(&facts), "{facts:?}");
        avoided.remove(format!("/proc/{SHIM}/cmdline").as_ref());
        let facts = found_in(&host);
        assert_eq!(arguments(&facts, SHIM), Some(vec!["/containerd-shim".to_owned()]));
        assert_eq!(arguments(&facts, MAIN), Some(Vec::new()));
        assert!(is_whole(&facts), "{facts:?}");
        // Nothing hangs any more, and the memory is still not read.
        avoided.remove(format!("/proc/{MAIN}/cmdline").as_ref());
        assert_eq!(arguments(&found_in(&host), MAIN), Some(Vec::new()));
    }

    /// Pids had wrapped around when the probe started, so its pid is lower.
    #[test]
    fn the_main_process_of_a_container_is_the_oldest_and_not_the_one_with_the_lowest_pid() {
        let root = tempfile::tempdir().expect("a directory");
        let leaf = format!("/kubepods/besteffort/pod{UID}/{}", "c".repeat(64));
        process(root.path(), 1, 0, "systemd", (1, 1), "/init.scope");
        process(root.path(), SHIM, 1, "containerd-shim", (400, SHIM), "/runtime.slice");
        process(root.path(), PROBE, SHIM, "probe", (90_000, 57), &leaf);
        process(root.path(), MAIN, SHIM, "main", (500, 1), &leaf);
        let facts = found(root.path());
        let order: Vec<u32> = facts.iter().filter_map(it).map(|it| it.task.key.pid).collect();
        assert_eq!(order, [1, SHIM, MAIN, PROBE]);

        let mut engine = Engine::new(Settings::default());
        let probe = facts.iter().filter_map(it).find(|it| it.task.key.pid == PROBE).expect("it is listed");
        let ended = Exited { task: probe.task.clone(), status: 0, class: 0 };
        facts.into_iter().for_each(|seen| engine.observe(seen));
        let pid = |engine: &Engine| engine.pods().first().and_then(|pod| pod.containers.first()?.pid);
        assert_eq!(pid(&engine), Some(MAIN));
        let at = Timestamp(1_001_000_000_000);
        engine.observe(Observation { at, origin: Origin::Kernel, fact: Fact::Exited(ended) });
        engine.advance(Timestamp(1_010_000_000_000));
        let told: Vec<Output> = std::iter::from_fn(|| engine.poll()).collect();
        let is_end = |output: &Output| matches!(output, Output::Change(it) if matches!(it.what, ChangeKind::ContainerExited { .. }));
        assert!(!told.iter().any(is_end), "{told:?}");
        assert_eq!(pid(&engine), Some(MAIN), "it runs on");
    }

    #[test]
    fn one_process_is_asked_for_its_network_namespace() {
        let root = tempfile::tempdir().expect("a directory");
        process(root.path(), SHIM, 1, "sshd", (400, SHIM), "/system.slice/sshd.service");
        let host = HostRoot::open(root.path()).expect("the root");
        let found = netns_of(&host, SHIM).expect("it runs");
        let Fact::ProcessNetns { process, netns } = found else { panic!("{found:?}") };
        assert_eq!((process.pid, process.start, netns), (SHIM, 4_000_000_000, 4_026_532_177));
        assert_eq!(netns_of(&host, PROBE), None, "there is none");
    }

    /// A link in an unknown form is used for one that may not be read. The clock is read before each process.
    #[test]
    fn a_process_whose_namespace_might_not_be_read_counts_only_if_it_is_still_there_and_still_hidden() {
        type Change = fn(&Path);
        let ends: Change = |own| fs::remove_dir_all(own).expect("a directory");
        let dies: Change = |own| fs::write(own.join("stat"), stat(10, "sh", 'Z', 1, 400)).expect("a file");
        let is_another: Change =
            |own| fs::write(own.join("stat"), stat(10, "sh", 'S', 1, 401)).expect("a file");
        let shows: Change = |own| {
            fs::remove_file(own.join("ns/net")).expect("a link");
            symlink("net:[4026532178]", own.join("ns/net")).expect("a link");
        };
        let stays: Change = |_| {};
        for (change, is_whole, is_kept) in [
            (ends, true, false),
            (dies, true, false),
            (is_another, true, false),
            (shows, true, true),
            (stays, false, true),
        ] {
            let root = tempfile::tempdir().expect("a directory");
            process(root.path(), 1, 0, "systemd", (1, 1), "/init.scope");
            process(root.path(), 10, 1, "sh", (400, 10), "/system.slice/x.service");
            process(root.path(), 20, 1, "sh", (400, 20), "/system.slice/x.service");
            let own = root.path().join("proc/10");
            fs::remove_file(own.join("ns/net")).expect("a link");
            symlink("net:hidden", own.join("ns/net")).expect("a link");
            let looks = Cell::new(0);
            let clock = || {
                looks.set(looks.get() + 1);
                // The list, the table, and the processes 1 and 10 have their times; 20 is next.
                if looks.get() == 5 {
                    change(&own);
                }
                Timestamp(1_000_000_000_000)
            };
            let host = HostRoot::open(root.path()).expect("the root");
            let hierarchy = Hierarchy { id: 0, controllers: Vec::new(), mount: "/sys/fs/cgroup".to_owned() };
            let node =
                Node { root: &host, hierarchy: &hierarchy, clock: &clock, boot_wall_ns: 0, stores: &[] };
            let table = list(node).1;
            let hidden: Vec<u32> =
                table.iter().filter(|(_, it)| it.hidden.is_some()).map(|(pid, _)| pid).collect();
            assert_eq!(hidden.is_empty(), is_whole, "{table:?}");
            assert_eq!(table.iter().any(|(pid, _)| pid == 10), is_kept, "{table:?}");
            let facts = super::super::netns::list(node, &table).0.end().0;
            let ended = facts.last().map(|seen| seen.fact.clone());
            assert_eq!(ended, Some(Fact::ListEnded { list: List::Netns, complete: is_whole }));
        }
    }

    /// A user can start it by a link named `containerd`, and it can take root's ids for good.
    #[test]
    fn a_program_that_was_lent_roots_rights_is_no_daemon() {
        let root = tempfile::tempdir().expect("a directory");
        for (pid, mode) in [(10, 0o755), (20, 0o4755)] {
            process(root.path(), pid, 1, "containerd", (400, pid), "/system.slice/x.service");
            let program = root.path().join(format!("proc/{pid}/exe"));
            fs::write(&program, "").expect("a file");
            fs::set_permissions(&program, fs::Permissions::from_mode(mode)).expect("its mode");
        }
        let pids: Vec<u32> = found(root.path()).iter().filter_map(it).map(|it| it.task.key.pid).collect();
        assert_eq!(pids, [10]);
    }
}
