//! Finds the errors that the runtime and the kubelet logged about pods that wait, or with which they ended.
//!
//! A line is about a pod if it has the pod's UID, its name as klog writes it, or the id of one of its
//! sandboxes. The kubelet writes klog's text or JSON (`pod_workers.go`, `nestedpendingoperations.go`), and
//! the runtimes write logrus' text or JSON. A distribution that runs both in one process has both.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use jiff::Timestamp as Wall;
use probe_common::runtime::{self, KUBELET};
use serde_json::Value;

use super::{
    AskedPod, Unreadable,
    plugin_log::{container_log, last_words_by, plain, unquote},
};
use crate::{
    model::{
        fact::{DaemonWordsFound, Fact, NameSource, Said, Speaker, WordsFound},
        time::Timestamp,
    },
    source::host::HostRoot,
};

/// Older lines say what a pod waited for before. The kubelet tries again within 5 min.
pub(super) const RECENT: Duration = Duration::from_secs(6 * 60);
/// The most errors that are kept for a pod or a daemon.
const MAX_SAID: usize = 4;
/// The most different errors that are compared.
const MAX_FORMS: usize = 32;

/// A word of at least this many hexadecimal digits is an id.
const ID_DIGITS: usize = 12;

/// Errors that say that something failed, and not what.
const VAGUE: [&str; 6] = [
    "context deadline exceeded",
    "context canceled",
    "timed out waiting for the condition",
    "unmounted volumes=",
    "Back-off ",
    "back-off ",
];

/// What the kubelet logs when it ends (`component-base/cli/run.go`).
const COMMAND_FAILED: &str = "command failed";

/// The words about each pod and each daemon.
#[derive(Debug, Default)]
pub(super) struct Words<'a> {
    pods: Vec<PodWords<'a>>,
    daemons: Vec<DaemonWords<'a>>,
    /// The words that a line about a pod contains, one of them, with the pod's place. There may be a hundred
    /// pods, and many lines.
    signs: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct PodWords<'a> {
    pod: &'a AskedPod,
    asked_since: Timestamp,
    /// Microseconds since 1970.
    since: u64,
    errors: Errors,
    /// The pod's namespace and name, if they were not known and the kubelet names them.
    name: Option<(String, String)>,
}

/// A daemon that does not come up.
#[derive(Debug)]
struct DaemonWords<'a> {
    daemon: &'a str,
    asked_since: Timestamp,
    /// Microseconds since 1970.
    since: u64,
    errors: Errors,
}

/// Errors by their words without numbers, which differ from try to try.
#[derive(Debug, Default)]
struct Errors(BTreeMap<String, Heard>);

/// An error in a line.
#[derive(Debug, PartialEq, Eq)]
struct Logged {
    by: Speaker,
    text: String,
    /// The program ends with it.
    is_fatal: bool,
}

#[derive(Debug)]
struct Heard {
    is_telling: bool,
    at: u64,
    said: Said,
}

impl<'a> Words<'a> {
    /// Adds a pod, which has waited since then. `from`: older lines do not count, microseconds since 1970.
    pub(super) fn add(&mut self, pod: &'a AskedPod, asked_since: Timestamp, from: u64) {
        let place = self.pods.len();
        self.signs.insert(pod.uid.as_str().to_owned(), place);
        if let (Some(namespace), Some(name)) = (&pod.namespace, &pod.name) {
            self.signs.insert(format!("{namespace}/{name}"), place);
        }
        self.signs.extend(pod.sandboxes.iter().map(|id| (id.as_str().to_owned(), place)));
        self.pods.push(PodWords { pod, asked_since, since: from, errors: Errors::default(), name: None });
    }

    /// Adds a daemon, like a pod.
    pub(super) fn add_daemon(&mut self, daemon: &'a str, asked_since: Timestamp, from: u64) {
        self.daemons.push(DaemonWords { daemon, asked_since, since: from, errors: Errors::default() });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.daemons.is_empty()
    }

    /// Reads a line.
    /// `is_from_kubelet`: the journal says that a kubelet wrote it.
    pub(super) fn read(&mut self, at: u64, line: &str, file: &Path, is_from_kubelet: bool) {
        if !self.daemons.is_empty() {
            self.read_of_daemons(at, line, file, is_from_kubelet);
        }
        // Most lines are no errors. klog's JSON may have the error in its message.
        let may_be_error =
            line.starts_with(['E', 'F']) || line.contains("err") || line.starts_with("{\"ts\":");
        let about = if may_be_error { self.about(line) } else { BTreeSet::new() };
        if about.is_empty() {
            return;
        }
        let Some(Logged { by, text, .. }) = read(line) else { return };
        let uid = uid_of(line);
        for place in about {
            let Some(it) = self.pods.get_mut(place).filter(|it| it.since <= at) else { continue };
            // A pod that is gone may have had the same name, and a message may quote any UID.
            if uid.is_some_and(|uid| uid != it.pod.uid.as_str()) {
                continue;
            }
            let is_telling = !VAGUE.iter().any(|words| text.contains(words));
            it.errors.hear(at, is_telling, by, &text, file);
            if it.pod.name.is_none() && by == Speaker::Kubelet {
                it.name = pod_of(line, it.pod.uid.as_str()).or(it.name.take());
            }
        }
    }

    /// Reads the logs of the containers that do not come up.
    pub(super) fn read_containers(&mut self, root: &HostRoot, not: &mut Unreadable) {
        for PodWords { pod, since, errors, .. } in &mut self.pods {
            let (Some(namespace), Some(name), Some(container)) = (&pod.namespace, &pod.name, &pod.container)
            else {
                continue;
            };
            if [namespace, name, container].iter().any(|part| part.contains('/') || part.starts_with('.')) {
                continue;
            }
            let folder = format!("{namespace}_{name}_{}/{container}", pod.uid);
            container_log::each(root, &folder, not, &mut |at, line, file| {
                if at >= *since {
                    let error = read(line).map(|error| error.text);
                    let is_telling = error.is_some() || has_failure(line);
                    let text = error.unwrap_or_else(|| plain(line.trim_end()));
                    errors.hear(at, is_telling, Speaker::Plugin, &text, file);
                }
            });
        }
    }

    /// Reads a line that a daemon may have written about its own end.
    fn read_of_daemons(&mut self, at: u64, line: &str, file: &Path, is_from_kubelet: bool) {
        let last_words = last_words_by(line);
        let error = if last_words.is_some() { None } else { read(line) };
        // An error about a pod ends no daemon.
        let is_own = error.as_ref().is_some_and(|error| error.is_fatal || !is_about_pod(line));
        if last_words.is_none() && !is_own {
            return;
        }
        for it in self.daemons.iter_mut().filter(|it| it.since <= at) {
            let speaker = speaker(it.daemon);
            if let Some(Logged { by, text, is_fatal }) = &error {
                if speaker.is_none_or(|speaker| speaker == *by) {
                    it.errors.hear(at, *is_fatal, *by, text, file);
                }
                continue;
            }
            let is_its = match last_words {
                Some(Some(daemon)) => daemon == it.daemon,
                // A panic does not say whose it is, but the journal does, and mostly the file's name.
                Some(None) if is_from_kubelet => speaker != Some(Speaker::Runtime),
                Some(None) => is_file_of(file, it.daemon),
                None => false,
            };
            if is_its {
                let by = speaker.unwrap_or(Speaker::Kubelet);
                it.errors.hear(at, true, by, &plain(line.trim_end()), file);
            }
        }
    }

    /// Returns the places of the pods whose signs a line contains.
    fn about(&self, line: &str) -> BTreeSet<usize> {
        let mut about = BTreeSet::new();
        for words in line.split(|letter: char| !letter.is_ascii_alphanumeric() && !"-./".contains(letter)) {
            about.extend(self.signs.get(words));
            about.extend(words.split('/').filter_map(|word| self.signs.get(word)));
        }
        about
    }

    /// Returns the answers. `not`: the places that were searched.
    pub(super) fn answers(self, not: &Unreadable) -> Vec<Fact> {
        let mut facts = Vec::new();
        for DaemonWords { daemon, asked_since, errors, .. } in self.daemons {
            let (said, unsaid) = errors.most_telling(not);
            let daemon = daemon.to_owned();
            facts.push(Fact::DaemonWordsFound(DaemonWordsFound { daemon, since: asked_since, said, unsaid }));
        }
        for PodWords { pod, asked_since, errors, name, .. } in self.pods {
            let (said, unsaid) = errors.most_telling(not);
            if let Some((namespace, name)) = name {
                let source = NameSource::KubeletLog;
                facts.push(Fact::PodFound { uid: pod.uid.clone(), namespace, name, source });
            }
            facts.push(Fact::WordsFound(WordsFound {
                uid: pod.uid.clone(),
                since: asked_since,
                said,
                unsaid,
            }));
        }
        facts
    }
}

impl Errors {
    /// Returns the most telling errors; if there are none, where they were looked for.
    fn most_telling(self, not: &Unreadable) -> (Vec<Said>, Option<String>) {
        let mut heard: Vec<Heard> = self.0.into_values().collect();
        // The container's own words say more than the kubelet's.
        heard.sort_by_key(|it| Reverse((it.is_telling, it.said.by == Speaker::Plugin, it.at)));
        heard.truncate(MAX_SAID);
        let unsaid = if heard.is_empty() { Some(not.to_string()) } else { None };
        (heard.into_iter().map(|it| it.said).collect(), unsaid)
    }

    fn hear(&mut self, at: u64, is_telling: bool, by: Speaker, text: &str, file: &Path) {
        let form = form(text);
        match self.0.get(&form) {
            // The journal is read from its newest line to the oldest.
            Some(known) if known.at > at => return,
            Some(_) => {}
            None if self.0.len() < MAX_FORMS => {}
            None => {
                let oldest = self.0.iter().min_by_key(|(_, it)| it.at);
                let oldest = oldest.filter(|(_, it)| it.at < at).map(|(form, _)| form.clone());
                let Some(oldest) = oldest else { return };
                self.0.remove(&oldest);
            }
        }
        let seconds = i64::try_from(at / 1_000_000).unwrap_or(i64::MAX);
        let said = Said {
            by,
            text: text.to_owned(),
            at: Wall::from_second(seconds).unwrap_or(Wall::MAX).to_string(),
            source: file.display().to_string(),
        };
        self.0.insert(form, Heard { is_telling, at, said });
    }
}

/// Returns a text without its numbers and ids, which differ from try to try.
fn form(text: &str) -> String {
    let mut form = String::new();
    for word in text.split(|letter: char| !letter.is_alphanumeric()) {
        let is_id = word.len() >= ID_DIGITS && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_id {
            form.extend(word.chars().filter(|letter| letter.is_alphabetic()));
        }
    }
    form
}

/// Whether a line of a program that logs in a form of its own says that something failed.
fn has_failure(line: &str) -> bool {
    let line = line.to_lowercase();
    ["fatal", "panic", "error", "fail", "unable", "cannot", "denied", "refused"]
        .iter()
        .any(|word| line.contains(word))
}

/// Returns who writes a daemon's log. None: it is a kubelet and a runtime in one.
fn speaker(daemon: &str) -> Option<Speaker> {
    if daemon == KUBELET {
        Some(Speaker::Kubelet)
    } else if runtime::kubelets().any(|kubelet| kubelet == daemon) {
        None
    } else {
        Some(Speaker::Runtime)
    }
}

/// Whether a file's name says that this daemon, or what it is a part of, writes it.
fn is_file_of(file: &Path, daemon: &str) -> bool {
    let name = daemon.split('-').next().unwrap_or(daemon);
    file.to_string_lossy().contains(name)
}

/// Whether a line has a pod, or something of one, as a member.
fn is_about_pod(line: &str) -> bool {
    line.contains("podUID") || line.contains(" pod=") || line.contains("\"pod\"") || line.contains("Sandbox")
}

/// Returns the error that a line is. None: the line is no error.
fn read(line: &str) -> Option<Logged> {
    // klog continues a message of several lines with a tab, and what follows may be a container's own text.
    let line = line.trim_end();
    let (by, text, is_fatal) = if line.starts_with('{') {
        // klog has `ts`, and `v` in what is no error; logrus has `level`.
        let members: Value = serde_json::from_str(line).ok()?;
        // etcd, which k3s and k0s contain, has both.
        let is_less = member(&members, "level").is_some_and(|level| !is_error(level));
        if members.get("v").is_some() || is_less {
            return None;
        }
        if members.get("ts").is_some() {
            let text = member(&members, "err").or_else(|| member(&members, "msg").map(told_by_operation))?;
            (Speaker::Kubelet, text.to_owned(), member(&members, "msg") == Some(COMMAND_FAILED))
        } else if is_error(member(&members, "level")?) {
            let text = member(&members, "error").or_else(|| member(&members, "msg"))?;
            (Speaker::Runtime, text.to_owned(), is_fatal(member(&members, "level")?))
        } else {
            return None;
        }
    } else if let Some(text) = of_klog(line) {
        let is_fatal = line.starts_with('F') || line.contains(&format!("] \"{COMMAND_FAILED}\" "));
        (Speaker::Kubelet, text.to_owned(), is_fatal)
    } else {
        // A line of another form may quote anything.
        if !line.starts_with("time=\"") {
            return None;
        }
        let level = line.split_once("level=")?.1.split(' ').next()?;
        if !is_error(level) {
            return within(line);
        }
        let text = value(line, " error=").or_else(|| value(line, " msg="))?;
        (Speaker::Runtime, text.to_owned(), is_fatal(level))
    };
    // It shows the values of the environment, which may be secrets. Another line has the reason.
    if text.contains("&Container{") || text.contains("EnvVar{") {
        return None;
    }
    let text = told(&plain(&text));
    (!text.is_empty()).then_some(Logged { by, text, is_fatal })
}

/// Reads the line of another program that a distribution's program passes on as its own message (k0s).
fn within(line: &str) -> Option<Logged> {
    // The API server and others of the cluster's own programs are no daemons of the node.
    if value(line, " component=").is_some_and(|name| !matches!(name, "containerd" | "kubelet")) {
        return None;
    }
    let inner = unquote(value(line, " msg=")?);
    let is_line = inner.starts_with("time=\"") || inner.starts_with('{') || of_klog(&inner).is_some();
    // Not more than one program passes it on.
    if is_line && !inner.contains("msg=\"time=") { read(&inner) } else { None }
}

fn member<'a>(of: &'a Value, name: &str) -> Option<&'a str> {
    of.get(name)?.as_str()
}

fn is_error(level: &str) -> bool {
    level == "error" || is_fatal(level)
}

fn is_fatal(level: &str) -> bool {
    matches!(level, "fatal" | "panic")
}

/// Returns the text of an error in klog's form: `E1125 09:29:07.123456  1234 file.go:1] ...`.
fn of_klog(line: &str) -> Option<&str> {
    let mut letters = line.chars();
    let is_klog = matches!(letters.next(), Some('E' | 'F')) && letters.take(4).all(|it| it.is_ascii_digit());
    let text = if is_klog { line.split_once("] ")?.1 } else { return None };
    if text.starts_with('"') {
        return value(text, " err=").or_else(|| value(text, ""));
    }
    Some(told_by_operation(text))
}

/// Leaves out until when the kubelet waits, which nestedpendingoperations.go writes before what went wrong.
fn told_by_operation(text: &str) -> &str {
    text.split_once(". Error: ").map_or(text, |(_, error)| error)
}

/// Returns the value after the first of these words: what is between its quotes, with the quoting in it, or
/// a word.
fn value<'a>(line: &'a str, words: &str) -> Option<&'a str> {
    unquoted(&line[line.find(words)? + words.len()..])
}

fn unquoted(text: &str) -> Option<&str> {
    let Some(text) = text.strip_prefix('"') else { return text.split(' ').next() };
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !is_escaped => return text.get(..at),
            b'\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    None
}

/// Leaves out what is not the error itself: which operation the kubelet gave up, gRPC's code, and the ids of
/// a volume and its pod. The rest is what the kubelet says in the pod's Event.
fn told(text: &str) -> String {
    let inner = text.strip_suffix('"').and_then(|text| {
        let (operation, inner) = text.strip_prefix("failed to \"")?.split_once(": \"")?;
        let is_one = !operation.contains(": ") && !inner.contains(", failed to \"");
        is_one.then_some(inner)
    });
    let text = inner.unwrap_or(text);
    if let Some((_, rest)) =
        text.strip_prefix("rpc error: code = ").and_then(|rest| rest.split_once(" desc = "))
    {
        return rest.to_owned();
    }
    if let Some((before, rest)) = text.split_once(" (UniqueName: ")
        && let Some((_, after)) = rest.split_once("\") : ")
    {
        return format!("{before} : {after}");
    }
    text.to_owned()
}

/// Returns the UID of the pod that a line of the kubelet is about, if the line has it as a member.
fn uid_of(line: &str) -> Option<&str> {
    let (_, rest) = line.rsplit_once("podUID")?;
    let rest = rest.trim_start_matches(['=', ':', '\\', '"', ' ']);
    rest.split(['"', '\\', ' ', ',', '}']).next().filter(|uid| !uid.is_empty())
}

/// Returns the namespace and the name of the pod with this UID, if the kubelet's line names them.
fn pod_of(line: &str, uid: &str) -> Option<(String, String)> {
    if line.starts_with('{') {
        let members: Value = serde_json::from_str(line).ok()?;
        let pod = if members.get("podUID")? == uid { members.get("pod")? } else { return None };
        return Some((member(pod, "namespace")?.to_owned(), member(pod, "name")?.to_owned()));
    }
    // The error, which may quote the names of other pods, comes before them.
    let (_, of) = line.rsplit_once(" podUID=")?;
    let (_, pod) = line.rsplit_once(" pod=")?;
    if unquoted(of)? != uid {
        return None;
    }
    let (namespace, name) = unquoted(pod)?.split_once('/')?;
    Some((namespace.to_owned(), name.to_owned()))
}

#[cfg(test)]
mod tests;
