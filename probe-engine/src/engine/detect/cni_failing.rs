//! **Rule:** the ADD of a plugin that the runtime called fails, and no later ADD has given the pod its
//! network; or its DEL fails, no later DEL has succeeded, and the runtime has the sandbox on record, so that
//! the kubelet has DEL tried again. Either opens at the second failure for one pod, or when two pods fail
//! within a minute.
//!
//! containerd makes a new sandbox with a new network namespace for each try; other runtimes try again in the
//! same sandbox. The rule therefore judges pods, not sandboxes. It names the plugin that the runtime called;
//! a plugin that this one called may have failed first.
//!
//! Not flagged: one failure after which the next try succeeds (the event stream shows it); an ADD for a pod
//! that is gone; a DEL for a sandbox that is no longer on record, which nobody tries again
//! (`leaked_address`); a call that fails after the runtime that made it has ended, or that a signal ends
//! after that runtime was told to end; CHECK; a call that names no pod. If records were lost after a failure,
//! the record of a success may be among them: such a failure keeps a finding open and opens none.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Duration,
};

use probe_common::runtime::SYSLOG;

use super::{
    DetectContext, Detection, Verdict,
    index::Subjects,
    rule::{Judged, Part, Rule},
};
use crate::{
    engine::world::{
        World,
        table::{
            attachment::{Attachment, Failures, LATELY, Plugin},
            pod,
            record::HasRecord,
        },
    },
    model::{
        fact::{CniCommand, MessageFound, PodName},
        finding::{CniFailing, Explain, Kind, Message, SaidOften, Severity, Thing},
        id::ContainerId,
        time::Timestamp,
    },
    words::{
        count::counted,
        escape::escaped,
        shell::{UNPRINTABLE, cni_in_journal, crictl, quoted},
        span::span,
    },
};

/// Failures of two pods within this time count as one problem.
pub(super) const TOGETHER: Duration = Duration::from_secs(60);

/// Failures that go on for this long are confirmed.
pub(super) const LONG: Duration = Duration::from_secs(30);

const OFTEN: u32 = 3;

/// With this many pods that wait the finding is critical.
pub(super) const MANY: u32 = 3;

/// How long a pod may have neither sandbox nor cgroup between two tries, where its cgroup cannot be seen.
pub(super) const ABSENT: Duration = Duration::from_secs(30);

/// How many sandboxes, the latest ones, are shown as evidence.
const SHOWN: usize = 16;
/// Words, in lower case, of a plugin that cannot reach its daemon.
const DAEMON_WORDS: [&str; 5] = ["connect", "dial ", "socket", "timed out", "deadline exceeded"];
/// At most this many different messages are reported, the most frequent ones.
pub(super) const MESSAGES: usize = 8;

/// A pod that waits for its network, or for the end of it, because calls of this plugin failed.
pub(super) struct Waiting {
    pod: PodName,
    plugin: String,
    command: CniCommand,
    /// Calls that failed, and when the first of them began.
    attempts: u32,
    since: Timestamp,
    /// How long these calls ran in all.
    wasted: Duration,
    /// Records were lost during at least one of these calls.
    gapped: bool,
    is_sure: bool,
    /// The latest failed call, and the exit code below.
    last: Try,
    code: Option<u32>,
    /// The plugin's latest message, or the reason why it could not be read.
    said: Option<(Try, MessageFound)>,
    /// The latest failed calls, the oldest first.
    shown: Vec<Try>,
    /// When the pod no longer counts as waiting, if nothing more happens.
    until: Timestamp,
}

/// When a call failed last, and for which sandbox.
type Try = (Timestamp, ContainerId);

/// The calls of a plugin, by its name, with a command.
type Calls<'a> = (&'a str, CniCommand);

impl Rule for CniFailing {
    type Subject = PodName;
    type Part = Waiting;
    const SUBJECTS: Subjects<PodName> =
        Subjects { all: |ctx| ctx.index.named.things().cloned().collect(), marked: |marks| &marks.names };

    fn judge(ctx: &DetectContext<'_>, pod: &PodName, found: &mut Vec<Waiting>) {
        if !pod.names_pod() {
            return;
        }
        let rows: Vec<&Attachment> =
            ctx.index.named.by(pod).filter_map(|key| ctx.world.attachments.get(key)).collect();
        // In an outage these are few: a pod has many attachments then, and is judged often.
        let mut connected: Vec<&Attachment> = rows.clone();
        connected.retain(|row| row.plugins.iter().any(|it| it.add.succeeded > 0));
        let mut failed: BTreeMap<Calls<'_>, Vec<(&Attachment, Failures<'_>)>> = BTreeMap::new();
        for row in &rows {
            for (plugin, command, failures) in row.failures() {
                let is_over = match command {
                    CniCommand::Add => has_network(&connected, row, plugin),
                    CniCommand::Del => matches!(ctx.has_record(&row.container), HasRecord::No { .. }),
                };
                if !is_over {
                    failed.entry((&plugin.name, command)).or_default().push((row, failures));
                }
            }
        }
        // The pod waits as long as its last failure is recent. All of its failures count until then.
        failed.retain(|_, tries| tries.iter().any(|(_, failures)| ctx.now < failures.last_at + LATELY));
        if failed.is_empty() {
            return;
        }
        let absent = gone_at(ctx.world, pod).map(|at| at + ABSENT);
        for (calls, tries) in failed {
            // The kubelet ends the sandboxes of a pod that is gone, too.
            let absent = if calls.1 == CniCommand::Add { absent } else { None };
            if absent.is_none_or(|until| ctx.now < until) {
                found.extend(waiting(pod, calls, tries, absent));
            }
        }
    }
}

impl Part for Waiting {
    fn due_at(&self) -> Option<Timestamp> {
        Some(self.until)
    }
}

fn waiting(
    pod: &PodName,
    (plugin, command): Calls<'_>,
    mut tries: Vec<(&Attachment, Failures<'_>)>,
    absent: Option<Timestamp>,
) -> Option<Waiting> {
    tries.sort_by_key(try_of);
    let (_, last) = tries.last()?;
    let said: Vec<(Try, &MessageFound)> =
        tries.iter().rev().filter_map(|it| Some((try_of(it), it.1.said?))).collect();
    // An older message of the plugin is worth more than the reason why the latest one could not be read.
    let best = said.iter().find(|(_, it)| it.text.is_some()).or_else(|| said.first());
    Some(Waiting {
        pod: pod.clone(),
        plugin: plugin.to_owned(),
        command,
        attempts: tries.iter().map(|(_, failures)| failures.count).fold(0, u32::saturating_add),
        since: tries.iter().map(|(_, failures)| failures.first_at).min()?,
        wasted: tries
            .iter()
            .map(|(_, failures)| failures.wasted)
            .fold(Duration::ZERO, Duration::saturating_add),
        gapped: tries.iter().any(|(row, _)| row.gapped),
        is_sure: tries.iter().any(|(row, _)| !row.gapped),
        last: tries.last().map(try_of)?,
        code: last.code,
        said: best.map(|(at, it)| (at.clone(), (*it).clone())),
        shown: tries.iter().skip(tries.len().saturating_sub(SHOWN)).map(try_of).collect(),
        until: absent.into_iter().fold(last.last_at + LATELY, Timestamp::min),
    })
}

fn try_of((row, failures): &(&Attachment, Failures<'_>)) -> Try {
    (failures.last_at, row.container.clone())
}

pub(super) fn gather(ctx: &DetectContext<'_>, judged: &Judged<CniFailing>, found: &mut Vec<Detection>) {
    let mut plugins: BTreeMap<Calls<'_>, Vec<&Waiting>> = BTreeMap::new();
    for it in judged.parts() {
        plugins.entry((&it.plugin, it.command)).or_default().push(it);
    }
    found.extend(plugins.into_iter().filter_map(|(calls, waiting)| detection(ctx, calls, &waiting)));
}

fn detection(ctx: &DetectContext<'_>, (name, command): Calls<'_>, waiting: &[&Waiting]) -> Option<Detection> {
    let last = waiting.iter().max_by_key(|it| &it.last)?;
    let since = waiting.iter().map(|it| it.since).min()?;
    let attempts = waiting.iter().map(|it| it.attempts).fold(0, u32::saturating_add);
    let pods = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
    // One failure is not a finding. A finding of which only one failure is left closes with its last numbers.
    if attempts < 2 {
        return None;
    }
    let said = waiting.iter().filter_map(|it| it.said.as_ref());
    let said = said.max_by_key(|(at, it)| (it.text.is_some(), at));
    let kind = CniFailing {
        plugin: name.to_owned(),
        command,
        attempts,
        pods,
        wasted: waiting.iter().map(|it| it.wasted).fold(Duration::ZERO, Duration::saturating_add),
        code: last.code,
        message: said.map(|(_, it)| Message { text: it.text.clone(), source: it.source.clone() }),
        messages: messages(waiting),
    };
    let mut shown: Vec<&Try> = waiting.iter().flat_map(|it| &it.shown).collect();
    shown.sort_unstable();
    let command_name = command.to_string();
    let parts: &[&str] = match command {
        CniCommand::Add => &[name],
        CniCommand::Del => &[name, &command_name],
    };
    let severity = if pods >= MANY { Severity::Critical } else { Severity::Warning };
    Some(Detection {
        pod: if pods == 1 { waiting.first().map(|it| it.pod.clone()) } else { None },
        sandboxes: shown
            .iter()
            .skip(shown.len().saturating_sub(SHOWN))
            .map(|(_, container)| container.clone())
            .collect(),
        gapped: waiting.iter().any(|it| it.gapped),
        ..Detection::new(kind, parts, severity, since, verdict(ctx, waiting, since, attempts))
    })
}

/// Returns the messages of the pods, if they differ: one plugin can fail for several reasons at once.
fn messages(waiting: &[&Waiting]) -> Vec<SaidOften> {
    let mut forms: BTreeMap<String, (u32, &Try, &str)> = BTreeMap::new();
    for it in waiting {
        let Some((at, said)) = &it.said else { continue };
        let Some(text) = said.text.as_deref() else { continue };
        let (pods, latest, shown) = forms.entry(form(text, &it.pod)).or_insert((0, at, text));
        *pods += 1;
        if at > *latest {
            (*latest, *shown) = (at, text);
        }
    }
    if forms.len() < 2 {
        return Vec::new();
    }
    let mut all: Vec<SaidOften> =
        forms.into_values().map(|(pods, _, text)| SaidOften { text: text.to_owned(), pods }).collect();
    all.sort_by(|one, other| other.pods.cmp(&one.pods).then_with(|| one.text.cmp(&other.text)));
    all.truncate(MESSAGES);
    all
}

/// Returns the words of a message without those that differ from pod to pod: words of the pod's name, and
/// words with a digit, such as parts of ids, addresses and paths.
fn form(text: &str, pod: &PodName) -> String {
    let names = [&pod.name, &pod.namespace].into_iter().flatten();
    let own: BTreeSet<&str> = names.flat_map(|name| words(name)).collect();
    let common =
        words(text).filter(|word| !own.contains(word) && !word.contains(|it: char| it.is_ascii_digit()));
    common.collect::<Vec<_>>().join(" ")
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty())
}

fn verdict(ctx: &DetectContext<'_>, waiting: &[&Waiting], since: Timestamp, attempts: u32) -> Verdict {
    let mut sure = waiting.iter().filter(|it| it.is_sure);
    let mut times: Vec<Timestamp> = sure.clone().map(|it| it.last.0).collect();
    times.sort_unstable();
    let several = times.windows(2).any(|pair| pair[1].since(pair[0]) <= TOGETHER);
    let until = waiting.iter().map(|it| it.until).min().unwrap_or(ctx.now);
    if !several && sure.all(|it| it.attempts < 2) {
        return Verdict::Watched { until: Some(until) };
    }
    let confirmed_at = ctx.awake(since) + LONG;
    if attempts >= OFTEN || ctx.now >= confirmed_at {
        Verdict::Passing { until }
    } else {
        Verdict::Candidate { until: Some(until.min(confirmed_at)) }
    }
}

/// Whether the pod got its network after this failure, in this sandbox or in another: by all plugins of a
/// chain, or by this one.
///
/// `connected`: the pod's attachments for which an ADD succeeded.
fn has_network(connected: &[&Attachment], row: &Attachment, failed: &Plugin) -> bool {
    let mut same = connected.iter().filter(|other| other.ifname == row.ifname);
    failed.add.succeeded > 0
        || same.any(|other| {
            let mut plugins = other.plugins.iter();
            let last = plugins.clone().map(|it| it.add.last_at).max();
            last > Some(failed.add.last_at)
                && (other.is_added() || plugins.any(|it| it.name == failed.name && it.add.succeeded > 0))
        })
}

/// Returns since when a pod has been gone. Zero: the world has forgotten it.
fn gone_at(world: &World, pod: &PodName) -> Option<Timestamp> {
    let row = match &pod.uid {
        Some(uid) => world.pods.by_uid(uid).and_then(|id| world.pods.get(&id)),
        None => world.pods.last_named(pod),
    };
    match row.map(|row| row.state) {
        Some(pod::State::Present) => None,
        Some(pod::State::Gone { at }) => Some(at),
        None => Some(Timestamp::ZERO),
    }
}

/// Whether a plugin says that it cannot reach its daemon.
fn names_daemon(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    DAEMON_WORDS.iter().any(|word| text.contains(word))
}

impl Explain for CniFailing {
    fn summary(&self) -> String {
        let Self { plugin, command, attempts, pods, wasted, code, message, messages } = self;
        let times = counted((*attempts).into(), "time");
        let mut text = format!("{command} of {} failed {times}", escaped(plugin));
        if let Some(code) = code {
            _ = write!(text, ", last with exit {code}");
        }
        let wait = match (command, pods) {
            (CniCommand::Add, 1) => "waits",
            (CniCommand::Add, _) => "wait",
            (CniCommand::Del, _) => "cannot end",
        };
        let pods = counted((*pods).into(), "pod");
        _ = write!(text, ", {pods} {wait}, {} lost", span(*wasted));
        if let Some(Message { text: Some(said), source }) = message {
            if messages.is_empty() {
                _ = write!(text, ": {}", escaped(said));
            }
            for (place, it) in messages.iter().enumerate() {
                let sign = if place == 0 { ':' } else { ';' };
                _ = write!(text, "{sign} {} ({})", escaped(&it.text), counted(it.pods.into(), "pod"));
            }
            if SYSLOG.contains(&source.as_str()) {
                _ = write!(text, " (as {source} has it, where any user can write)");
            }
        }
        text
    }

    fn cause(&self) -> &'static str {
        match self.command {
            CniCommand::Add => {
                "The CNI plugin's ADD fails, and the kubelet has it tried again, each time for a new sandbox. Pods do \
                 not start."
            }
            CniCommand::Del => {
                "The CNI plugin's DEL fails, and so does StopPodSandbox each time the kubelet tries it. Pods stay \
                 Terminating, and their addresses stay allocated."
            }
        }
    }

    fn repair(&self, _sandboxes: &[ContainerId], runtimes: &[String]) -> Vec<String> {
        let Some(said) = self.message.as_ref().and_then(|it| it.text.as_deref()) else {
            return cni_in_journal();
        };
        let mut all = self.messages.iter().map(|it| it.text.as_str()).chain([said]);
        if !all.any(names_daemon) {
            return vec![
                "# Repair what the plugin names. The kubelet has the call tried again by itself.".to_owned(),
            ];
        }
        let stem = self.plugin.split('-').next().unwrap_or_default();
        let Some(stem) = quoted(stem) else { return vec![UNPRINTABLE.to_owned()] };
        let mut lines = vec![
            "# The plugin asks a daemon. Whether its container runs, and how often it was started:"
                .to_owned(),
        ];
        lines.extend(
            crictl(runtimes).map(|crictl| format!("{crictl} ps -a | grep -i -e CONTAINER -e {stem}")),
        );
        lines
    }

    fn worst(&self, before: &Kind) -> Option<Kind> {
        let Kind::CniFailing(before) = before else { return None };
        let worst = Self {
            attempts: self.attempts.max(before.attempts),
            pods: self.pods.max(before.pods),
            wasted: self.wasted.max(before.wasted),
            ..self.clone()
        };
        Some(worst.into())
    }

    fn forget_numbers(&mut self) {
        (self.attempts, self.pods, self.wasted) = (0, 0, Duration::ZERO);
        self.messages.iter_mut().for_each(|it| it.pods = 0);
        self.messages.sort_by(|one, other| one.text.cmp(&other.text));
        // The sandbox whose message is shown can change. Only the text of the message counts, not its source.
        let said = self.message.take().and_then(|it| it.text);
        self.message = said.map(|text| Message { text: Some(text), source: String::new() });
    }

    fn shows_some(&self) -> bool {
        true
    }

    fn named(&self) -> Vec<Thing<'_>> {
        vec![Thing::Plugin(&self.plugin)]
    }
}

#[cfg(test)]
mod tests {
    use super::{CniCommand, CniFailing, Duration, Explain as _, Message, PodName, form};

    #[test]
    fn words_that_any_user_can_have_written_are_reported_as_such() {
        let told = |source: &str| {
            let message = Message { text: Some("no route".to_owned()), source: source.to_owned() };
            let it = CniFailing {
                plugin: "bridge".to_owned(),
                command: CniCommand::Add,
                attempts: 2,
                pods: 1,
                wasted: Duration::from_secs(3),
                code: None,
                message: Some(message),
                messages: Vec::new(),
            };
            it.summary()
        };
        let failed = "ADD of bridge failed 2 times, 1 pod waits, 3.00 s lost: no route";
        assert_eq!(told("/var/log/journal/1/system.journal"), failed);
        let syslog = format!("{failed} (as /var/log/syslog has it, where any user can write)");
        assert_eq!(told("/var/log/syslog"), syslog);
    }

    /// What the finding quotes is not searched for again.
    #[test]
    fn the_repair_begins_where_the_plugins_words_end() {
        let repair = |text: Option<&str>| {
            let message = Some(Message { text: text.map(str::to_owned), source: "journal".to_owned() });
            let it = CniFailing {
                plugin: "calico-ipam".to_owned(),
                command: CniCommand::Add,
                attempts: 2,
                pods: 1,
                wasted: Duration::from_secs(3),
                code: None,
                message,
                messages: Vec::new(),
            };
            it.repair(&[], &["/run/x.sock".to_owned()]).join("\n")
        };
        assert!(repair(None).contains("journalctl"));
        let refused = repair(Some("dial tcp 10.96.0.1:443: connect: connection refused"));
        let ask = "crictl --runtime-endpoint 'unix:///run/x.sock' ps -a | grep -i -e CONTAINER -e 'calico'";
        assert!(refused.contains(ask) && !refused.contains("journalctl"), "{refused}");
        let full = repair(Some("no IP addresses available in range set"));
        assert!(!full.contains("journalctl") && !full.contains("crictl"), "{full}");
    }

    #[test]
    fn a_message_keeps_its_form_from_pod_to_pod() {
        let pod = |name: &str| PodName {
            namespace: Some("default".to_owned()),
            name: Some(name.to_owned()),
            uid: None,
        };
        let refused = |name: &str, id: &str| {
            form(
                &format!("failed to set up default/{name} in {id}: dial tcp 10.96.0.1:443: refused"),
                &pod(name),
            )
        };
        assert_eq!(refused("web-0", "a1b2c3d4"), refused("api", "00ff00ff11"));
        assert_ne!(refused("web-0", "a1"), form("missing server_socket", &pod("web-0")));
    }
}
