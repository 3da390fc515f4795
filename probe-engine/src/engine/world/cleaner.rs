//! The daemons that clean up after pods, the runtimes and the kubelet: when they started, and their versions.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use probe_common::runtime::CRIO;

use crate::{
    engine::world::{
        World,
        cgroup::Cgroup,
        daemon::{is_kubelet, is_runtime, is_trusted},
        path::may_be_of_node,
        process::Process,
        record::reading::PROGRAMS,
        restart::RESIDENT,
        sandbox::LastStarted,
    },
    model::{
        change::{ChangeKind, Finding, Question},
        fact::{List, ProgramFound, RuntimeKind},
        id::{ContainerId, TaskKey},
        time::Timestamp,
    },
};

/// After so long the version of a plugin that is in use is asked for again.
const PLUGIN_AGAIN: Duration = Duration::from_secs(10 * 60);

impl World {
    /// Since when the daemons that clean up have all been running: the runtimes that are used and, where the node needs
    /// one, the kubelet. None: one of them does not run. A runtime that is installed but not used has nothing to clean
    /// up, so it does not count.
    pub(in crate::engine) fn cleaners_since(&self) -> Option<Timestamp> {
        let used = self.records.used_runtimes();
        let runtime = latest(self.daemons_named(|comm| used.contains(&comm)))?;
        match latest(self.kubelets()) {
            Some(kubelet) => Some(runtime.max(kubelet)),
            None if self.records.kubelet_expected => None,
            None => Some(runtime),
        }
    }

    /// When the earliest of the used runtimes that run now started. A sandbox whose making began before that time is
    /// not being made any more.
    pub(in crate::engine) fn runtimes_since(&self) -> Option<Timestamp> {
        let used = self.records.used_runtimes();
        self.daemons_named(|comm| used.contains(&comm)).map(|row| Timestamp(row.key.start)).min()
    }

    /// Whether CRI-O is a runtime of this node. That holds also while CRI-O restarts, if it ran a moment ago or its
    /// sandboxes are on record.
    pub(in crate::engine) fn has_crio(&self) -> bool {
        let ran = |row: &Process| row.comm == CRIO.daemon && !self.is_contained(row);
        let ended = self.processes.ended_daemons().map(|(_, row)| row);
        self.records.of_kind(RuntimeKind::Crio).any(|row| !row.sandboxes.is_empty())
            || self.processes.daemons().chain(ended).any(ran)
    }

    /// When a runtime last started or ended, while one runs. What ran for a moment only was asked for its version, say.
    pub(in crate::engine) fn runtimes_turned_at(&self) -> Option<Timestamp> {
        let started = latest(self.runtimes())?;
        let of_node = |row: &Process| is_runtime(&row.comm) && !self.is_contained(row);
        let was_resident = |at: Timestamp, row: &Process| at.since(Timestamp(row.key.start)) >= RESIDENT;
        let ended = self.processes.ended_daemons().filter(|(at, row)| of_node(row) && was_resident(*at, row));
        Some(ended.map(|(at, _)| at).fold(started, Timestamp::max))
    }

    fn runtimes(&self) -> impl Iterator<Item = &Process> {
        self.daemons_named(is_runtime)
    }

    fn kubelets(&self) -> impl Iterator<Item = &Process> {
        self.daemons_named(is_kubelet)
    }

    /// When each runtime and kubelet that runs started, by the name of its program.
    pub(in crate::engine) fn daemons_since(&self) -> BTreeMap<&str, Timestamp> {
        let mut since = BTreeMap::new();
        for row in self.runtimes().chain(self.kubelets()) {
            let at = Timestamp(row.key.start);
            since.entry(row.comm.as_str()).and_modify(|it: &mut Timestamp| *it = at.max(*it)).or_insert(at);
        }
        since
    }

    /// The runtime or kubelet that started last by then, of those that run.
    pub(super) fn last_started(&self, by: Timestamp) -> Option<LastStarted> {
        let all = self.runtimes().chain(self.kubelets());
        let started = all.map(|row| LastStarted { comm: row.comm.clone(), at: Timestamp(row.key.start) });
        started
            .filter(|it| it.at <= by)
            .max_by(|one, other| (one.at, &one.comm).cmp(&(other.at, &other.comm)))
    }

    /// Whether a kubelet runs. Only the kubelet removes the cgroups of pods.
    pub(in crate::engine) fn has_kubelet(&self) -> bool {
        self.kubelets().next().is_some()
    }

    /// Since when no kubelet has run though the node needs one: the node has pods, and shows that a kubelet made them.
    /// None where the agent has not listed the node, as in a replay of single facts.
    pub(in crate::engine) fn kubelet_missing_since(&self) -> Option<Timestamp> {
        let began = self.node.began_at?;
        let is_listed = self.records.networks.is_some() && !self.lists.partial.contains_key(&List::Processes);
        // A cgroup without processes may be left over from a pod that is gone.
        let is_pod = |row: &Cgroup| row.is_live() && row.is_pod() && row.populated != Some(false);
        let of_kubelet = || {
            self.cgroups.values().any(is_pod) || self.records.kubelet_expected && !self.sandboxes.is_empty()
        };
        if !is_listed || self.has_kubelet() || !of_kubelet() {
            return None;
        }
        let ended = self.processes.ended_daemons().filter(|(_, row)| is_kubelet(&row.comm));
        Some(ended.map(|(at, _)| at).max().map_or(began, |ended| ended.max(began)))
    }

    pub(super) fn daemons_named(&self, is_named: impl Fn(&str) -> bool) -> impl Iterator<Item = &Process> {
        let is_one = move |row: &&Process| {
            is_named(&row.comm) && (!self.is_contained(row) || self.is_contained_kubelet(row))
        };
        self.processes.daemons().filter(is_one)
    }

    /// Whether a process in a container is the node's kubelet, as in RKE1. The process must be root's and in the node's
    /// own pid and network namespaces, and its container may be of the node.
    pub(super) fn is_contained_kubelet(&self, row: &Process) -> bool {
        is_kubelet(&row.comm)
            && is_trusted(row.program.class)
            && self.cgroups.get(&row.cgroup).is_some_and(|cgroup| may_be_of_node(&cgroup.path))
            && row.program.ns_pid == row.key.pid
            && row.netns == self.node.host_netns
    }

    /// The executables that took part in what a finding is about: the plugins of its sandboxes, the runtime and the
    /// kubelet.
    fn paths_of(&self, finding: &Finding) -> BTreeSet<&str> {
        let all = finding.sandboxes.iter().flat_map(|id| self.attachments.of(id));
        let plugins = all.filter(|row| !row.is_loopback()).flat_map(|row| &row.plugins);
        let plugins = plugins.map(|plugin| plugin.path.as_str());
        let daemons = self.runtimes().chain(self.kubelets()).map(|row| row.program.filename.as_str());
        plugins.chain(daemons).filter(|path| path.starts_with('/')).collect()
    }

    /// The known versions of these executables.
    pub(in crate::engine) fn programs_of(&self, finding: &Finding) -> Vec<ProgramFound> {
        let version = |path: &str| self.records.programs.get(path).cloned().flatten();
        self.paths_of(finding)
            .into_iter()
            .map(|path| ProgramFound { path: path.to_owned(), version: version(path) })
            .collect()
    }

    /// A runtime or a kubelet started, and the recovery is to name it. Asks for its version.
    pub(super) fn ask_version_of(&mut self, daemon: TaskKey) {
        let path = self.processes.get(daemon).map(|row| row.program.filename.clone());
        let is_unknown = |path: &String| path.starts_with('/') && !self.records.programs.contains_key(path);
        if let Some(path) = path.filter(is_unknown) {
            self.ask(Question::Program { path });
        }
    }

    /// The runtimes that are used, and the kubelets, which were started by then, by name and version.
    pub(super) fn daemons_with_versions(&self, by: Timestamp) -> [Option<String>; 2] {
        let is_of_then = |row: &&Process| row.executed_at.unwrap_or(Timestamp(row.key.start)) <= by;
        let named = |row: &Process| self.records.with_version(row);
        let used = self.records.used_runtimes();
        let runtimes = self.daemons_named(|comm| used.contains(&comm));
        let runtimes: BTreeSet<_> = runtimes.filter(is_of_then).map(named).collect();
        let kubelets: BTreeSet<_> = self.kubelets().filter(is_of_then).map(named).collect();
        [runtimes, kubelets].map(|all| {
            let all: Vec<String> = all.into_iter().collect();
            (!all.is_empty()).then(|| all.join(", "))
        })
    }

    /// Whether a daemon of this name serves the node's pods: it is a kubelet, or a runtime that is used.
    pub(super) fn serves_pods(&self, comm: &str) -> bool {
        is_kubelet(comm) || self.records.used_runtimes().contains(&comm)
    }

    /// A plugin has set up a sandbox's network, so that the start is to name its version. It may be replaced while the node
    /// runs, so its version is asked for again now and then.
    pub(super) fn ask_plugin_version(&mut self, at: Timestamp, path: &str) {
        // Records that were touched have all leaks judged again.
        let asked = &self.records.plugins_asked;
        let is_due = match asked.get(path) {
            Some(last) => at.since(*last) >= PLUGIN_AGAIN,
            None => asked.len() < PROGRAMS,
        };
        if is_due && path.starts_with('/') {
            self.records.plugins_asked.insert(path.to_owned(), at);
            self.ask(Question::Program { path: path.to_owned() });
        }
    }

    /// Another agent is there. Asks it for the versions that the last one was asked for and did not find out: those of
    /// daemons, and of plugins that set up a sandbox's network.
    pub(super) fn ask_versions_again(&mut self) {
        let daemons = self.runtimes().chain(self.kubelets()).map(|row| &row.program.filename);
        let asked = daemons.chain(self.records.plugins_asked.keys());
        let is_unknown = |path: &&String| path.starts_with('/') && !self.records.programs.contains_key(*path);
        let lost: BTreeSet<String> = asked.filter(is_unknown).cloned().collect();
        for path in lost {
            self.ask(Question::Program { path });
        }
    }

    /// The plugins that set up this sandbox's network, with the versions that are known.
    pub(super) fn plugins_of(&self, sandbox: &ContainerId) -> Vec<ProgramFound> {
        let version = |path: &str| self.records.programs.get(path).cloned().flatten();
        let plugins = self.attachments.of(sandbox).filter(|row| !row.is_loopback());
        let added = plugins.flat_map(|row| &row.plugins).filter(|plugin| plugin.add.begun > 0);
        let paths: BTreeSet<&str> = added.map(|plugin| plugin.path.as_str()).collect();
        let paths = paths.into_iter().filter(|path| path.starts_with('/'));
        paths.map(|path| ProgramFound { path: path.to_owned(), version: version(path) }).collect()
    }

    /// A finding opens. Asks for the versions of its programs, so that they are known when the finding is confirmed.
    pub(in crate::engine) fn ask_programs(&mut self, what: &ChangeKind) {
        let (ChangeKind::FindingOpened(finding) | ChangeKind::FindingConfirmed(finding)) = what else {
            return;
        };
        let unknown = |path: &&str| !self.records.programs.contains_key(*path);
        let paths: Vec<String> =
            self.paths_of(finding).into_iter().filter(unknown).map(str::to_owned).collect();
        for path in paths {
            self.ask(Question::Program { path });
        }
    }
}

/// When the latest of these daemons started.
fn latest<'a>(daemons: impl Iterator<Item = &'a Process>) -> Option<Timestamp> {
    daemons.map(|row| Timestamp(row.key.start)).max()
}
