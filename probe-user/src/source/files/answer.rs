//! Answers the engine's questions about one container, pod or program from the node's files.

use std::{ops::Range, path::Path};

use super::release;
use crate::{
    model::{
        fact::{CniCommand, Fact, MessageFound, PodName, ProgramFound, Role},
        id::{ContainerId, NetnsKey, PodUid},
        time::Timestamp,
    },
    source::{
        backfill::{
            allocation::{self, Allocation},
            bundle::Places,
            containerd_roots, log, netns_of,
        },
        host::{HostRoot, ReadError, skipped::Skipped},
        logs::{
            plugin_log::{self, Message, Window},
            search,
        },
        node::clock,
    },
};

pub use crate::source::logs::search::AskedPod;

/// The timestamp of a log line may be this many microseconds off ours.
const SLACK: u64 = 1_000_000;

/// A failed CNI call whose plugin may have logged a message.
#[derive(Clone, Debug)]
pub struct FailedCall<'a> {
    pub container: &'a ContainerId,
    pub command: CniCommand,
    /// When the message was logged.
    pub logged: Range<Timestamp>,
}

/// What the logs are searched for.
#[derive(Clone, Debug)]
pub struct LogSearch {
    pub about: About,
    pub time: Range<Timestamp>,
}

#[derive(Clone, Debug)]
pub enum About {
    /// A phase of a start that was long, up to the first sign of this container.
    Container(ContainerId),
    /// A phase of a start that was long, up to the first sign of this sandbox.
    Sandbox(ContainerId),
    /// A pod that waits.
    Pod(AskedPod),
    /// A daemon that does not come up, by the name of its program.
    Daemon(String),
}

/// Answers questions. It remembers where runtimes and kubelets keep their files.
#[derive(Debug)]
pub struct Answerer<'a> {
    root: &'a HostRoot,
    places: Places,
    allocation: Allocation,
    /// Answers that exist but could not be read.
    pub skipped: Skipped,
}

impl<'a> Answerer<'a> {
    #[must_use]
    pub fn new(root: &'a HostRoot) -> Self {
        Self {
            root,
            places: Places::default(),
            allocation: Allocation::default(),
            skipped: Skipped::default(),
        }
    }

    /// Describes the container: `ContainerFound`, or `ContainerUnknown`.
    pub fn container(&mut self, id: &ContainerId) -> Fact {
        let mut found = self.places.find(self.root, id);
        if found == Err(ReadError::Absent) {
            // The container's runtime may have started after the last search for runtimes.
            self.places = Places::discover(self.root);
            found = self.places.find(self.root, id);
        }
        match found {
            Ok(found) => Fact::ContainerFound(found),
            Err(why) => {
                self.skipped.add(id.as_str(), why);
                Fact::ContainerUnknown(id.clone())
            }
        }
    }

    /// Finds the name of a pod: `PodFound`, or `PodUnknown` if the pod is gone.
    #[must_use]
    pub fn pod(&self, uid: &PodUid) -> Option<Fact> {
        log::find(self.root, uid)
    }

    /// Finds the containers that a pod is expected to have: `ContainersExpected`, if the kubelet keeps that
    /// record.
    #[must_use]
    pub fn expected(&mut self, uid: &PodUid, now: Timestamp) -> Option<Fact> {
        let found = self.allocation.containers(self.root, uid, now);
        let names = found.unwrap_or_else(|why| {
            self.skipped.add(allocation::FILE, why);
            None
        });
        names.map(|names| Fact::ContainersExpected { uid: uid.clone(), names })
    }

    /// Finds the network namespace that is bound to this file: `NetnsFound`, not known to be vacant.
    #[must_use]
    pub fn netns(&self, path: &str) -> Option<Fact> {
        let at = Path::new(path);
        let (folder, name) = at.parent().zip(at.file_name()?.to_str())?;
        let inode = self.root.folder(folder).and_then(|folder| folder.namespace(name)).ok()??;
        let netns = NetnsKey::new(u32::try_from(inode).ok()?, 0);
        Some(Fact::NetnsFound { netns, mounts: vec![path.to_owned()], vacant: false })
    }

    /// Finds the network namespace of a process: `ProcessNetns`, if it runs and may be read.
    #[must_use]
    pub fn process_netns(&self, pid: u32) -> Option<Fact> {
        netns_of(self.root, pid)
    }

    /// Finds the version that an executable reports: `ProgramFound`.
    #[must_use]
    pub(crate) fn program(&self, path: String) -> Fact {
        let version = release::version(self.root, Path::new(&path));
        Fact::ProgramFound(ProgramFound { path, version })
    }

    /// Searches the logs once for all of these: `ImageWork`, `HeldRequests`, `WordsFound` and
    /// `DaemonWordsFound`.
    #[must_use]
    pub fn search_logs(&mut self, searches: Vec<LogSearch>, boot_wall_ns: i64, now: Timestamp) -> Vec<Fact> {
        let mut all = search::Search::default();
        for LogSearch { about, time: Range { start: from, end: until } } in searches {
            match about {
                About::Container(container) => {
                    let found = self.places.find(self.root, &container).ok();
                    let is_sandbox = found.as_ref().is_some_and(|found| found.role == Role::Sandbox);
                    let (name, pod) = found.map_or((None, None), |found| (found.name, found.pod));
                    let images = self.places.images(self.root, &container);
                    let pod = pod.unwrap_or_default();
                    let asked = search::Asked { container, is_sandbox, images, pod, name, from, until };
                    all.containers.push(asked);
                }
                About::Sandbox(sandbox) => {
                    let pod = self.places.find(self.root, &sandbox).ok().and_then(|found| found.pod);
                    let PodName { namespace, uid, .. } = pod.unwrap_or_default();
                    let kubelets = self.allocation.roots(self.root, now);
                    if uid.is_some_and(|uid| kubelets.needs_api(self.root, &uid)) {
                        let it = search::AskedSandbox { sandbox, namespace, from, until };
                        all.sandboxes.push(it);
                    }
                }
                About::Pod(pod) => all.pods.push((pod, from)),
                About::Daemon(daemon) => all.daemons.push((daemon, from)),
            }
        }
        let found = search::find(self.root, &all, boot_wall_ns, now, || containerd_roots(self.root));
        let images = found.images.into_iter().map(|work| Fact::ImageWork(Box::new(work)));
        let mut facts: Vec<Fact> = images.chain(found.held.into_iter().map(Fact::HeldRequests)).collect();
        facts.extend(found.words);
        facts
    }

    /// Finds the plugin's message for each of these failed calls, if it was logged in the given time. One
    /// search serves all calls; the answers are in their order.
    #[must_use]
    pub fn messages(&self, failed: &[FailedCall<'_>], boot_wall_ns: i64) -> Vec<MessageFound> {
        let wanted = failed.iter().map(|call| plugin_log::Wanted {
            sandbox: call.container.as_str(),
            pod: None,
            command: call.command,
            window: Window {
                from: clock::wall_us(call.logged.start, boot_wall_ns).saturating_sub(SLACK),
                until: clock::wall_us(call.logged.end, boot_wall_ns).saturating_add(SLACK),
            },
        });
        let answers = plugin_log::find(self.root, &wanted.collect::<Vec<_>>());
        let mut messages = Vec::with_capacity(failed.len());
        for (call, found) in failed.iter().zip(answers) {
            let (text, source) = match found {
                Ok(Message { text, source }) => (Some(text), source.display().to_string()),
                Err(not) => (None, not.to_string()),
            };
            messages.push(MessageFound {
                container: call.container.clone(),
                command: call.command,
                text,
                source,
            });
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Answerer, CniCommand, ContainerId, FailedCall, HostRoot, Timestamp};

    #[test]
    fn a_message_is_one_of_its_time() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(root.path().join("var/log")).expect("a directory");
        let line = "2023-11-14T22:13:30Z node containerd: time=\"2023-11-14T22:13:30Z\" level=error \
            msg=\"RunPodSandbox failed, error\" error=\"failed to setup network for sandbox \\\"aa11\\\": \
            plugin type=\\\"bridge\\\" failed (add): no address\"\n";
        fs::write(root.path().join("var/log/syslog"), line).expect("a file");
        let host = HostRoot::open(root.path()).expect("the root");
        let answerer = Answerer::new(&host);
        let id = ContainerId::parse("aa11").expect("an id");
        // The boot was at 22:13:20.
        let find = |windows: &[(u64, u64)]| {
            let seconds = |n: u64| Timestamp(n * 1_000_000_000);
            let call = |(from, until): &(u64, u64)| {
                let logged = seconds(*from)..seconds(*until);
                FailedCall { container: &id, command: CniCommand::Add, logged }
            };
            let failed: Vec<_> = windows.iter().map(call).collect();
            answerer.messages(&failed, 1_700_000_000_000_000_000)
        };
        // Each sandbox has its own time, whether it is searched for alone or with others.
        let [found, later] = &find(&[(9, 12), (60, 70)])[..] else { panic!("two were asked for") };
        assert!(found.text.as_deref().is_some_and(|text| text.contains("no address")), "{found:?}");
        assert_eq!(found.source, "/var/log/syslog");
        assert_eq!([&find(&[(9, 12)])[0], &find(&[(60, 70)])[0]], [found, later]);
        assert_eq!(find(&[]), []);
        assert_eq!(later.text, None);
        assert!(later.source.contains("/var/log/syslog"), "{}", later.source);
    }
}
