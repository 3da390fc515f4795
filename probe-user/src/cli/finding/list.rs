//! `sandprobe findings`.

use std::fmt::Write as _;

use clap::Args;

use super::select::Select;
use crate::{
    cli::{
        ExitStatus,
        args::Form,
        output, say,
        snapshot::{AgentSnapshot, SnapshotArgs},
        table::aligned,
    },
    engine::incident::{Incident, Incidents, Member},
    model::{
        change::Finding,
        finding::{Kind, Stage},
        time::Timestamp,
    },
    sink::{
        escape::{brief, escaped, short_key},
        render::{jsonl, phase::pod, text::cut},
        select::findings,
        span::span,
    },
};

#[derive(Debug, Args)]
pub(in crate::cli) struct Findings {
    #[command(flatten)]
    select: Select,

    /// The format of the output
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Form,

    #[command(flatten)]
    from: SnapshotArgs,
}

impl Findings {
    pub(in crate::cli) fn run(&self) -> anyhow::Result<ExitStatus> {
        let snapshot = self.from.read()?;
        for caveat in &snapshot.caveats {
            say(caveat);
        }
        let incidents = Incidents::of(&snapshot.findings);
        let mut bytes = match self.output {
            Form::Text => text(&incidents, &self.select, &snapshot).into_bytes(),
            Form::Json if self.select.incidents => {
                let mut bytes = Vec::new();
                for it in wanted(&incidents, &self.select) {
                    if let Some(it) = jsonl::Incident::of(&it, &snapshot.label) {
                        jsonl::line(&it, &mut bytes);
                    }
                }
                bytes
            }
            Form::Json => {
                let mut findings: Vec<&Finding> =
                    snapshot.findings.iter().filter(|it| self.select.keeps(it)).collect();
                findings::sort(&mut findings);
                let mut bytes = Vec::new();
                findings.iter().for_each(|it| jsonl::placed(it, &incidents, &snapshot.label, &mut bytes));
                bytes
            }
        };
        output::write(&mut bytes)?;
        Ok(snapshot.done)
    }
}

/// Returns the incidents of which a finding is selected, in the order in which they are listed.
fn wanted<'a>(incidents: &Incidents<'a>, select: &Select) -> Vec<Incident<'a>> {
    let mut all = incidents.all();
    all.retain(|it| it.members.iter().any(|it| select.keeps(it.finding)));
    findings::sort_incidents(&mut all);
    all
}

/// Lists the selected findings, those of an incident one below the other, each effect with a line that says
/// what led to it. Of incidents lists the first finding alone.
fn text(incidents: &Incidents<'_>, select: &Select, snapshot: &AgentSnapshot) -> String {
    let all = wanted(incidents, select);
    if all.is_empty() {
        // The reason was printed already.
        let is_sure = snapshot.caveats.is_empty();
        return if is_sure { "no findings\n" } else { "no findings, as far as sandprobe can see\n" }
            .to_owned();
    }
    let listed: Vec<_> = if select.incidents {
        all.iter().filter_map(|it| it.members.first()).map(Listed::alone).collect()
    } else {
        all.iter().flat_map(|it| listed(it, |it| select.keeps(it))).collect()
    };
    let rows: Vec<_> = listed.iter().map(|it| row(it, snapshot.now)).collect();
    let table = aligned(HEADINGS, &rows);
    let mut lines = table.lines();
    let heading = lines.next().unwrap_or_default();
    let column = heading.find("KIND").unwrap_or_default();
    let mut text = format!("{heading}\n");
    for (line, it) in lines.zip(&listed) {
        _ = writeln!(text, "{line}");
        if let Some(because) = because(it) {
            _ = writeln!(text, "{:width$}{because}", "", width = column + INDENT * it.depth);
        }
    }
    text
}

const HEADINGS: [&str; 7] = ["STAGE", "SEVERITY", "KIND", "POD", "SINCE", "SUMMARY", "KEY"];

/// How many columns an effect is indented below its cause.
const INDENT: usize = 2;

/// A member of an incident that is listed.
pub(in crate::cli) struct Listed<'a, 'i> {
    pub(in crate::cli) member: &'i Member<'a>,
    /// How many of the findings between it and the root are listed.
    depth: usize,
    /// Whether the first of its causes is listed.
    follows: bool,
}

impl<'a, 'i> Listed<'a, 'i> {
    /// A member that is not listed below its cause.
    pub(in crate::cli) fn alone(member: &'i Member<'a>) -> Self {
        Self { member, depth: 0, follows: false }
    }
}

/// Returns the members of the incident that are kept, each effect after its cause.
pub(in crate::cli) fn listed<'a, 'i>(
    incident: &'i Incident<'a>,
    keeps: impl Fn(&Finding) -> bool,
) -> Vec<Listed<'a, 'i>> {
    // Whether each member from the root to the previous one is listed.
    let mut above: Vec<bool> = Vec::new();
    let mut listed = Vec::new();
    for member in &incident.members {
        above.truncate(member.depth);
        let depth = above.iter().filter(|is_listed| **is_listed).count();
        let follows = above.last().copied().unwrap_or(false);
        let is_listed = keeps(member.finding);
        above.push(is_listed);
        if is_listed {
            listed.push(Listed { member, depth, follows });
        }
    }
    listed
}

/// Returns a cell for each of the headings.
pub(in crate::cli) fn row(Listed { member, depth, .. }: &Listed<'_, '_>, now: Timestamp) -> [String; 7] {
    let it = member.finding;
    [
        it.stage.into_str().to_owned(),
        it.severity.into_str().to_owned(),
        format!("{:width$}{}", "", it.kind.into_str(), width = INDENT * depth),
        it.pod.as_ref().map_or_else(|| "-".to_owned(), pod),
        match it.since {
            Timestamp::ZERO => "before boot".to_owned(),
            since => span(now.since(since)),
        },
        summary(it),
        short_key(&it.key),
    ]
}

/// Returns what is wrong, for a cell of a table. Cuts a plugin's own words, which may be garbage.
pub(in crate::cli) fn summary(it: &Finding) -> String {
    const WORDS: usize = 120;
    let mut kind = it.kind.clone();
    if let Kind::CniFailing(failing) = &mut kind {
        let said = failing.message.iter_mut().filter_map(|it| it.text.as_mut());
        for words in said.chain(failing.messages.iter_mut().map(|it| &mut it.text)) {
            // An escape takes more columns than the character that it stands for.
            *words = cut(&escaped(words), WORDS);
        }
        // A cell has room for two.
        failing.messages.truncate(2);
    }
    brief(&kind.explain().summary())
}

/// Returns what led to the finding, in one line. Names a cause that is listed by its kind, another one by its
/// key.
pub(in crate::cli) fn because(Listed { member, follows, .. }: &Listed<'_, '_>) -> Option<String> {
    if let Some(with) = member.with {
        return Some(format!("of the same sandbox as {}", named(with, *follows)));
    }
    let cause = member.causes.last()?;
    let more = match member.causes.len() {
        1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    Some(format!("caused by {}{more}: {}", named(cause.finding, *follows), cause.why))
}

fn named(it: &Finding, is_listed: bool) -> String {
    match (is_listed, it.stage) {
        (true, _) => it.kind.into_str().to_owned(),
        (false, Stage::Closed) => format!("{} (closed)", short_key(&it.key)),
        (false, Stage::Candidate | Stage::Confirmed) => short_key(&it.key),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::{Findings, Incidents, Select, summary, text};
    use crate::{
        cli::{ExitStatus, snapshot::AgentSnapshot},
        model::{
            change::Finding,
            fact::{CniCommand, NodeFolders},
            finding::{
                Cause, CniFailing, Duplicate, DuplicateSandbox, Key, Kind, LeakedAddress, Message,
                OutOfOrder, Severity, Stage, TeardownOutOfOrder,
            },
            id::ContainerId,
            time::Timestamp,
        },
        sink::Label,
    };

    fn finding(key: &str, kind: impl Into<Kind>, stage: Stage, sandboxes: &[&str]) -> Finding {
        let at = Timestamp(1_000_000_000);
        Finding {
            key: Key::parse(key).expect("a key"),
            kind: kind.into(),
            severity: Severity::Warning,
            stage,
            since: at,
            opened_at: at,
            confirmed_at: Some(at),
            closed_at: (stage == Stage::Closed).then_some(Timestamp(2_000_000_000)),
            pod: None,
            sandboxes: sandboxes.iter().filter_map(|it| ContainerId::parse(it)).collect(),
            gapped: false,
            evidence: Vec::new(),
            programs: Vec::new(),
            runtimes: Vec::new(),
            folders: NodeFolders::default(),
            worst: None,
        }
    }

    fn findings() -> Vec<Finding> {
        let form = Duplicate::AfterCompletion;
        let how = OutOfOrder::PauseOutOfMemory;
        let leaked = LeakedAddress {
            cause: Cause::DelBlind,
            address: [10, 88, 0, 5].into(),
            network: None,
            inferred: false,
            ifname: "eth0".to_owned(),
            plugin: None,
            stores: Vec::new(),
            many: None,
        };
        vec![
            finding("leaked_address/n/b", leaked, Stage::Confirmed, &["b"]),
            finding(
                "teardown_out_of_order/b",
                TeardownOutOfOrder { how, killer: None, signal: None },
                Stage::Confirmed,
                &["b"],
            ),
            finding("duplicate_sandbox/b", DuplicateSandbox { form, count: 1 }, Stage::Closed, &["a", "b"]),
        ]
    }

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        select: Select,
    }

    /// The kinds that are listed, as they are indented, and what each was caused by.
    fn listed(typed: &[&str]) -> Vec<String> {
        let snapshot = AgentSnapshot {
            label: Label { node: "n".to_owned(), boot_id: "b".to_owned(), boot_wall_ns: 0 },
            findings: findings(),
            starts: Vec::new(),
            shares: Vec::new(),
            pods: Vec::new(),
            now: Timestamp(3_000_000_000),
            caveats: Vec::new(),
            done: ExitStatus::Ok,
        };
        let Typed { select } = Typed::parse_from([&["findings"], typed].concat());
        let text = text(&Incidents::of(&snapshot.findings), &select, &snapshot);
        let mut lines = text.lines();
        let column = lines.next().and_then(|it| it.find("KIND")).expect("headings");
        let parts = lines.map(|line| {
            let cell = line.get(column..).unwrap_or_default();
            let end = if line.starts_with(' ') { cell.find(": ") } else { cell.trim_start().find(' ') };
            let indent = cell.len() - cell.trim_start().len();
            let end = end.map(|end| if line.starts_with(' ') { end } else { end + indent });
            cell[..end.unwrap_or(cell.len())].to_owned()
        });
        parts.collect()
    }

    #[test]
    fn effects_stand_below_their_cause() {
        let all = listed(&["--all"]);
        let expected = [
            "duplicate_sandbox",
            "  teardown_out_of_order",
            "  caused by duplicate_sandbox",
            "    leaked_address",
            "    caused by teardown_out_of_order",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn of_an_incident_the_first_cause_alone_is_listed() {
        assert_eq!(listed(&["--all", "--incidents"]), ["duplicate_sandbox"]);
        // One of its findings is selected.
        assert_eq!(listed(&["--incidents", "--kind", "leaked_address"]), ["duplicate_sandbox"]);
    }

    /// As `cargo xtask demo --replay` shows it, and the pages without the keys.
    #[test]
    fn the_recorded_demo_is_one_story_with_the_first_cause_at_the_top() {
        #[derive(Debug, Parser)]
        struct Typed {
            #[command(flatten)]
            findings: Findings,
        }
        let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/recordings/demo.jsonl");
        let Typed { findings } = Typed::parse_from(["findings", "--recording", recording]);
        let snapshot = findings.from.read().expect("the recording");
        let told = text(&Incidents::of(&snapshot.findings), &findings.select, &snapshot);
        let keys = told.find("KEY").expect("the last column");
        let shown = told.lines().skip(1).map(|line| match line.starts_with(' ') {
            true => line,
            false => line.get(..keys).unwrap_or(line).trim_end(),
        });
        let shown = shown.collect::<Vec<_>>().join("\n");
        let starts: Vec<&str> = shown.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
        assert_eq!(
            starts,
            [
                "duplicate_sandbox",
                "teardown_out_of_order",
                "duplicate_sandbox:",
                "leaked_address",
                "teardown_out_of_order:"
            ]
        );
        for (name, page) in [
            ("README.md", include_str!("../../../../README.md")),
            ("docs/incidents.md", include_str!("../../../../docs/incidents.md")),
            ("docs/guides/five-minutes.md", include_str!("../../../../docs/guides/five-minutes.md")),
        ] {
            assert!(page.contains(&format!("{shown}\n```\n")), "{name} does not show\n{shown}");
        }
    }

    /// What follows the words shows whether they can be believed.
    #[test]
    fn the_words_of_a_plugin_do_not_fill_a_table() {
        let summary = |words: &str| {
            let message = Message { text: Some(words.to_owned()), source: "/var/log/syslog".to_owned() };
            let kind = CniFailing {
                plugin: "bridge".to_owned(),
                command: CniCommand::Add,
                attempts: 2,
                pods: 1,
                wasted: Duration::from_secs(3),
                code: None,
                message: Some(message),
                messages: Vec::new(),
            };
            summary(&finding("cni_failing/bridge/ADD", kind, Stage::Confirmed, &[]))
        };
        let told = |words: &str| {
            format!(
                "ADD of bridge failed 2 times, 1 pod waits, 3.00 s lost: {words} (as /var/log/syslog has it, where any \
                 user can write)"
            )
        };
        assert_eq!(summary("no route"), told("no route"));
        assert_eq!(summary(&"\u{1}".repeat(60)), told(&("\\u{1}".repeat(23) + "\\u{1…")));
    }

    #[test]
    fn a_cause_that_is_not_listed_is_named_by_its_key() {
        let expected = [
            "teardown_out_of_order",
            "caused by duplicate_sandbox/b (closed)",
            "  leaked_address",
            "  caused by teardown_out_of_order",
        ];
        assert_eq!(listed(&[]), expected);
        let expected = ["leaked_address", "caused by teardown_out_of_order/b"];
        assert_eq!(listed(&["--kind", "leaked_address"]), expected);
    }
}
