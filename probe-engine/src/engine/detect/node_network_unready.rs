//! **Rule:** the runtime that serves the node's pods can make no network, as its configuration and the files
//! that it names are: the file of the CNI configuration that it takes is missing or cannot be loaded, or the
//! executable of a plugin that it calls is in none of the folders in which it looks. This has been so for the
//! limit while the runtime, the kubelet and an agent ran, and a reading after that shows the same.
//!
//! Whoever reads the files judges them as this runtime would: containerd takes the first files by name and
//! stops at one that it cannot load; CRI-O passes over those that it cannot load, and over those of which a
//! plugin is missing.
//!
//! Not flagged: a node on which no kubelet runs; a file that the runtime does not reach; a file that is
//! missing, or half written, for less than the limit; what cannot be read (the finding stays as it is); a
//! node with several runtimes, since it is not known which of them serves its pods; a plugin's executable,
//! if the runtime said with its last call that it looks in other folders than those of its configuration.
//!
//! It is critical while pods wait whose sandboxes the runtime gave up. It is information if there is no
//! configuration, and no pod has had a network of its own: the network plugin was not installed yet.

use std::{fmt::Write as _, time::Duration};

use probe_common::runtime::Runtime;

use super::{
    DetectContext, Detection, HasRun, Verdict,
    runtime_unresponsive::{FIRST, WAITING, name, sandboxes},
    stuck_start::{has_begun, has_run, made_without_process},
};
use crate::{
    engine::world::{
        lookup,
        table::{pod::Pod, sandbox::State},
    },
    model::{
        fact::{NetworkFault, NetworkFaultForm, NetworkLoading, PodName},
        finding::{Explain, FindingKind, Key, NodeNetworkUnready, Severity},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        count::counted,
        escape::escaped,
        shell::{cni_in_journal, look_for_configuration, look_for_plugin},
    },
};

/// How long the network may be unready. Installers replace files and executables within seconds.
pub(super) const UNREADY: Duration = Duration::from_secs(60);

pub(super) fn detect(ctx: &DetectContext<'_>, found: &mut Vec<Detection>) {
    let key = Key::new(FindingKind::NodeNetworkUnready.into_str(), &["node"]);
    let records = &ctx.world.records;
    let (Some(since), Some((read_at, _))) = (records.unready_since, &records.networks) else { return };
    if !lookup::daemons::has_kubelet(ctx.world) {
        return;
    }
    let Some((loading, fault)) = records.loading() else {
        found.extend(ctx.open_finding(&key).map(Detection::unsure));
        return;
    };
    let program = Runtime::of(loading.runtime).daemon;
    let Some(fault) = fault else { return };
    if lookup::daemons::named(ctx.world, |comm| comm == program).next().is_none() {
        return;
    }
    // Without one of the two nobody makes pods.
    let ready = ctx.up.map(|up| ctx.awake(since.max(up)) + UNREADY);
    let verdict = match ready {
        Some(ready) if ctx.now < ready => Verdict::Watched { until: Some(ready) },
        Some(ready) if *read_at < ready => Verdict::Unverified,
        Some(_) => Verdict::Confirmed,
        None => Verdict::Watched { until: None },
    };
    let waiting = waiting(ctx, since);
    let kind = unready(ctx, loading, fault, &waiting);
    let severity = severity(ctx, fault.how, !waiting.is_empty());
    found.push(Detection::keyed(key, kind, severity, since, verdict));
}

fn unready(
    ctx: &DetectContext<'_>,
    loading: &NetworkLoading,
    fault: &NetworkFault,
    waiting: &[&PodName],
) -> NodeNetworkUnready {
    let folders = if fault.plugin.is_some() { ctx.world.records.plugin_folders() } else { Vec::new() };
    NodeNetworkUnready {
        how: fault.how,
        runtime: Runtime::of(loading.runtime).daemon.to_owned(),
        folder: loading.folder.clone(),
        config_file: fault.file.clone(),
        error: fault.error.clone(),
        plugin: fault.plugin.clone(),
        folders,
        pods: u32::try_from(waiting.len()).unwrap_or(u32::MAX),
        first: waiting.iter().filter_map(|pod| name(pod)).take(FIRST).collect(),
    }
}

fn severity(ctx: &DetectContext<'_>, how: NetworkFaultForm, has_waiting: bool) -> Severity {
    if has_waiting {
        return Severity::Critical;
    }
    // libcni's cache outlives a reboot, and shows the networks of before.
    let had_network = ctx.world.attachments.values().any(|it| !it.is_loopback());
    if how == NetworkFaultForm::NoConfiguration && !had_network { Severity::Info } else { Severity::Warning }
}

/// Returns the pods whose sandboxes the runtime gave up, or has been making for a while, the earliest first.
fn waiting<'a>(ctx: &DetectContext<'a>, since: Timestamp) -> Vec<&'a PodName> {
    let mut pods: Vec<(Timestamp, &Pod)> = Vec::new();
    for pod in ctx.world.pods.values() {
        let Some(made_at) = pod.start.made_at else { continue };
        let is_first = pod.is_present() && !pod.start.is_complete && pod.left_at.is_none();
        let tries = sandboxes(ctx, pod);
        let has_network = tries.iter().any(|row| {
            row.network.is_host
                || matches!(row.state, State::Ready { .. })
                || made_without_process(ctx, row).is_some()
        });
        if is_first
            && ctx.now >= ctx.awake(made_at.max(since)) + WAITING
            && !has_network
            && has_begun(ctx, pod, &tries)
            && has_run(ctx, pod, &tries) == HasRun::No
        {
            pods.push((made_at, pod));
        }
    }
    pods.sort_by_key(|(made_at, pod)| (*made_at, &pod.named));
    pods.into_iter().map(|(_, pod)| &pod.named).collect()
}

impl Explain for NodeNetworkUnready {
    fn summary(&self) -> String {
        let runtime = escaped(&self.runtime);
        let file = self.config_file.as_deref().map(escaped);
        let mut text = match (self.how, &file) {
            (NetworkFaultForm::BadConfiguration, Some(file)) => {
                let error = escaped(self.error.as_deref().unwrap_or("it cannot be decoded"));
                format!("{runtime} can make no network: it cannot load {file}: {error}")
            }
            (NetworkFaultForm::PluginMissing, _) => {
                let plugin = escaped(self.plugin.as_deref().unwrap_or_default());
                let folders: Vec<_> = self.folders.iter().map(|folder| escaped(folder)).collect();
                let named = file.map(|file| format!(", which {file} names,")).unwrap_or_default();
                let folders = folders.join(" or ");
                format!("{runtime} can make no network: the plugin {plugin}{named} is not in {folders}")
            }
            (NetworkFaultForm::NoConfiguration | NetworkFaultForm::BadConfiguration, _) => {
                let folder = escaped(&self.folder);
                format!("{runtime} can make no network: there is no CNI configuration in {folder}")
            }
        };
        if self.pods > 0 {
            let verb = if self.pods == 1 { "waits" } else { "wait" };
            _ = write!(text, "; {} {verb} for a sandbox", counted(self.pods.into(), "pod"));
        }
        text
    }

    fn cause(&self) -> &'static str {
        match self.how {
            NetworkFaultForm::NoConfiguration => {
                "The network plugin writes the configuration when its own pod starts on the node, and has not, or somebody \
                 removed it. Until then the node is NotReady (NetworkReady=false), and the kubelet starts only pods on the \
                 host's network."
            }
            NetworkFaultForm::BadConfiguration => {
                "A crash, a power loss or an installer left the file empty, cut off or wrong. The runtime makes no network \
                 with it: the node is NotReady (NetworkReady=false), pods stay ContainerCreating or Pending, and pods that \
                 end stay Terminating."
            }
            NetworkFaultForm::PluginMissing => {
                "The runtime executes the plugin for each sandbox, and does not find it. An upgrade or a removal of a package \
                 took the executable away, or it was installed in another folder. Pods stay Pending or ContainerCreating, pods that \
                 end stay Terminating, and addresses that other plugins of the chain gave stay allocated."
            }
        }
    }

    fn repair(&self, _sandboxes: &[ContainerId], _runtimes: &[String]) -> Vec<String> {
        match self.how {
            NetworkFaultForm::NoConfiguration => look_for_configuration(None, Some(&self.folder)),
            NetworkFaultForm::BadConfiguration => {
                let mut all = look_for_configuration(self.config_file.as_deref(), Some(&self.folder));
                all.push(
                    "# If another file there is the right one, this file goes: the runtime takes the first one by name."
                        .to_owned(),
                );
                all
            }
            NetworkFaultForm::PluginMissing => {
                let mut all = look_for_plugin(self.plugin.as_deref(), &self.folders);
                all.extend(cni_in_journal());
                all
            }
        }
    }

    fn forget_numbers(&mut self) {
        self.pods = 0;
        self.first.clear();
    }

    fn shows_some(&self) -> bool {
        true
    }

    fn rests_on(&self, _lasted: Duration) -> Option<String> {
        Some("the CNI configuration and the plugins in the node's files".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::{Explain, NetworkFaultForm, NodeNetworkUnready};

    #[test]
    fn what_the_runtime_lacks_is_said_with_the_paths_of_the_node() {
        let text = |text: &str| Some(text.to_owned());
        let none = NodeNetworkUnready {
            how: NetworkFaultForm::NoConfiguration,
            runtime: "containerd".to_owned(),
            folder: "/etc/cni/net.d".to_owned(),
            config_file: None,
            error: None,
            plugin: None,
            folders: Vec::new(),
            pods: 0,
            first: Vec::new(),
        };
        let bad = NodeNetworkUnready {
            how: NetworkFaultForm::BadConfiguration,
            config_file: text("/etc/cni/net.d/10-podnet.conflist"),
            error: text("it is empty"),
            pods: 1,
            ..none.clone()
        };
        let missing = NodeNetworkUnready {
            how: NetworkFaultForm::PluginMissing,
            plugin: text("portmap"),
            folders: vec!["/opt/cni/bin".to_owned(), "/usr/lib/cni".to_owned()],
            pods: 2,
            error: None,
            ..bad.clone()
        };
        let loopback = NodeNetworkUnready { plugin: text("loopback"), config_file: None, ..missing.clone() };
        for (it, summary, command) in [
            (
                none,
                "containerd can make no network: there is no CNI configuration in /etc/cni/net.d",
                "ls -l -- '/etc/cni/net.d'",
            ),
            (
                bad,
                "containerd can make no network: it cannot load /etc/cni/net.d/10-podnet.conflist: it is empty; 1 pod waits \
                 for a sandbox",
                "jq . '/etc/cni/net.d/10-podnet.conflist'",
            ),
            (
                missing,
                "containerd can make no network: the plugin portmap, which /etc/cni/net.d/10-podnet.conflist names, is not in \
                 /opt/cni/bin or /usr/lib/cni; 2 pods wait for a sandbox",
                "find -L '/opt/cni/bin' '/usr/lib/cni' -maxdepth 1 -type f -name 'portmap'",
            ),
            (
                loopback,
                "containerd can make no network: the plugin loopback is not in /opt/cni/bin or /usr/lib/cni; 2 pods wait for \
                 a sandbox",
                "find -L '/opt/cni/bin' '/usr/lib/cni' -maxdepth 1 -type f -name 'loopback'",
            ),
        ] {
            assert_eq!(it.summary(), summary);
            let repair = it.repair(&[], &[]);
            assert!(repair.iter().any(|line| line == command), "{repair:?}");
        }
    }
}
