//! Prints a start for people: each phase is a line with a bar at its place in the whole, and its causes
//! below.

use std::{fmt::Write as _, time::Duration};

use crate::{
    model::{
        phase::{Kind, Start},
        time::Timestamp,
    },
    sink::{
        Label,
        render::{
            phase::{causes, listening, marks, pod, title, title_of},
            text::cut,
            wall_clock::Rfc3339,
        },
        span::span,
    },
};

/// The width of the bars.
const WIDTH: u32 = 40;
/// The width of a phase's name, which may contain the names of a plugin and a container.
const TITLE: usize = 32;

pub(in crate::cli) fn text(start: &Start, label: &Label) -> String {
    let what = if start.waits { "has been starting for" } else { "started in" };
    let mut text = format!("{} {what} {}", pod(&start.pod), span(start.total()));
    if let Some(slowest) = start.slowest() {
        _ = write!(text, ", slowest {} ({})", title(slowest), span(slowest.took()));
    }
    _ = write!(text, "\n  began    {}", Rfc3339(label.wall_ns(start.begin)));
    _ = write!(text, "\n  sandbox  {}", start.sandbox.as_str());
    let marks = marks(start);
    if !marks.is_empty() {
        _ = write!(text, "\n  marks    {} (docs/phases.md)", marks.join(", "));
    }
    text += "\n\n";
    let titles: Vec<String> = start.phases.iter().map(|phase| cut(&title(phase), TITLE)).collect();
    let beyond =
        start.listening.iter().map(|it| (cut(&title_of(&Kind::Listening, &it.container), TITLE), it));
    let beyond: Vec<_> = beyond.collect();
    let width = titles.iter().chain(beyond.iter().map(|(title, _)| title)).map(|title| title.chars().count());
    let width = width.max().unwrap_or(0).max("PHASE".len());
    let head = format!("  {:width$}  {:>8}  {:>8}", "PHASE", "AT", "TOOK");
    text += head.trim_end();
    text.push('\n');
    for (phase, title) in start.phases.iter().zip(&titles) {
        let at = format!("+{}", span(phase.begin.since(start.begin)));
        let bar = bar(start, phase.begin, phase.end);
        let row = format!("  {title:width$}  {at:>8}  {:>8}  {bar}", span(phase.took()));
        text += row.trim_end();
        text.push('\n');
        for cause in causes(phase) {
            _ = writeln!(text, "  {:width$}  {cause}", "");
        }
    }
    // Phases after the whole have no bar.
    for (title, it) in beyond {
        let at = format!("+{}", span(it.begin.since(start.begin)));
        let said = listening(it).join("; ");
        _ = writeln!(text, "  {title:width$}  {at:>8}  {:>8}  {said}", span(it.took()));
    }
    text
}

/// Returns the bar of a phase. A phase that took any time has at least a mark.
fn bar(start: &Start, begin: Timestamp, end: Timestamp) -> String {
    let from = columns(begin.since(start.begin), start.total());
    let to = columns(end.since(start.begin), start.total());
    let (from, to) =
        if from == to && end > begin { (from.min(WIDTH - 1), from.min(WIDTH - 1) + 1) } else { (from, to) };
    let mut bar = " ".repeat(usize::try_from(from).unwrap_or(0));
    bar.extend((from..to).map(|_| '█'));
    bar
}

fn columns(part: Duration, whole: Duration) -> u32 {
    let scaled = part.as_nanos().saturating_mul(u128::from(WIDTH)).checked_div(whole.as_nanos());
    u32::try_from(scaled.unwrap_or(0)).map_or(WIDTH, |columns| columns.min(WIDTH))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::text;
    use crate::{
        model::{
            change::ContainerRef,
            fact::{CpuUse, Family, Listener, PodName, Pressure},
            id::ContainerId,
            phase::{Cause, Kind, Listening, Part, PartKind, Phase, Start},
            time::Timestamp,
        },
        sink::Label,
    };

    fn at(ms: u64) -> Timestamp {
        Timestamp(ms * 1_000_000)
    }

    #[test]
    fn a_waterfall_shows_where_each_phase_lies_and_why() {
        let id = |text| ContainerId::parse(text).expect("an id");
        let main = ContainerRef::new(id("c0ffee"), Some("main\x1b[2J".to_owned()));
        let cpu =
            CpuUse { used: Duration::ZERO, throttled: Duration::from_millis(1200), periods: 12, limit: None };
        let pressure = Pressure { cpu: Some(cpu), ..Pressure::default() };
        let phase = |kind, begin, end, container: Option<&ContainerRef>, cause| Phase {
            kind,
            container: container.cloned(),
            begin: at(begin),
            end: at(end),
            gapped: false,
            cause,
            pressure: Pressure::default(),
            parts: Vec::new(),
        };
        let bridge = Kind::Cni { plugin: "bridge".to_owned(), ifname: "eth0".to_owned() };
        let failed = Cause { adds: 3, failed: 2, wasted: Duration::from_millis(200), ..Cause::default() };
        let throttled = Phase { pressure, ..phase(Kind::Cgroup, 2000, 5000, Some(&main), Cause::default()) };
        let start = Start {
            pod: PodName { namespace: Some("default".to_owned()), name: Some("web-0".to_owned()), uid: None },
            sandbox: id("e6f3"),
            begin: at(1000),
            end: at(5000),
            phases: vec![
                phase(Kind::Prepare, 1000, 1001, None, Cause::default()),
                phase(bridge, 1001, 2000, None, failed),
                throttled,
            ],
            plugins: Vec::new(),
            listening: vec![Listening {
                container: main,
                begin: at(5000),
                end: at(5350),
                socket: Listener { port: 8080, family: Family::Ipv6 },
                gapped: false,
                suspended: false,
                pressure: Pressure::default(),
            }],
            complete: true,
            containers_known: true,
            missing: Vec::new(),
            revised: false,
            rebuilt: false,
            listed: true,
            suspended: false,
            waits: false,
        };
        let label = Label { node: "n".to_owned(), boot_id: "b".to_owned(), boot_wall_ns: 0 };
        assert_eq!(
            text(&start, &label),
            "\
default/web-0 started in 4.00 s, slowest cgroup main\\u{1b}[2J (3.00 s)
  began    1970-01-01T00:00:01.000000000Z
  sandbox  e6f3
  marks    listed (docs/phases.md)

  PHASE                          AT      TOOK
  prepare                     +0 µs    1.0 ms  █
  cni bridge                +1.0 ms    999 ms  ██████████
                           2 of 3 ADDs failed, which took 200 ms
  cgroup main\\u{1b}[2J      +1.00 s    3.00 s            ██████████████████████████████
                           throttled 1.20 s of 3.00 s (12 periods)
  listening main\\u{1b}[2J   +4.00 s    350 ms  port 8080 (ipv6)
"
        );
        // The objective of Kubernetes leaves out images and init containers.
        let mut pulled = start;
        assert_eq!(pulled.without_pulls(), Duration::from_secs(4));
        pulled.phases[0].kind = Kind::Init;
        pulled.phases[1].kind = Kind::Image;
        assert_eq!(pulled.without_pulls(), Duration::from_secs(3));
        // For an image whose parts are known, its creation counts.
        let Phase { begin, end, .. } = pulled.phases[1];
        let middle = begin + Duration::from_millis(499);
        let part = |kind, begin, end: Timestamp| Part { kind, begin, took: end.since(begin), waits: None };
        pulled.phases[1].parts =
            vec![part(PartKind::Pull, begin, middle), part(PartKind::Create, middle, end)];
        assert_eq!(pulled.without_pulls(), Duration::from_millis(3500));
    }
}
