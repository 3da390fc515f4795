//! The lines above the panes: whose view it is, the verdict, and the numbers.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use super::View;
use crate::{
    cli::{
        top::{
            link::Connection,
            model::Data,
            table::{Tone, age},
            ui::Ui,
        },
        verdict::Status,
    },
    sink::{
        escape::escaped,
        render::{text::cut, wall_clock::TimeOfDay},
    },
};

pub(super) fn draw(view: &View<'_>, ui: &Ui, area: Rect, buffer: &mut Buffer) {
    let lines = [name(view, ui, area), verdict(view, area), numbers(view)];
    for (line, y) in lines.iter().zip(area.y..area.bottom()) {
        buffer.set_line(area.x, y, line, area.width);
    }
}

/// Returns the node and its agent, and on the right the time of the data.
fn name<'a>(view: &View<'_>, ui: &Ui, area: Rect) -> Line<'a> {
    let theme = view.theme;
    let Some(data) = view.data else { return Line::styled("sandprobe top", theme.heading()) };
    let node = cut(&escaped(&data.doctor.node), usize::from(area.width / 2));
    let about = format!("  sandprobe {}, up {}", escaped(&data.doctor.version), age(uptime(data)));
    let time = time(data);
    let state = match view.connection {
        _ if ui.is_paused => "PAUSED at ",
        Connection::Well => "",
        Connection::Silent(_) | Connection::Away { .. } => "data of ",
    };
    let used = [node.as_str(), &about, state, &time].iter().map(|part| part.chars().count()).sum();
    let gap = usize::from(area.width).saturating_sub(used).max(1);
    Line::from(vec![
        Span::styled(node, theme.heading()),
        Span::raw(about),
        Span::raw(" ".repeat(gap)),
        Span::styled(state, theme.of(Tone::Warning).patch(theme.heading())),
        Span::raw(time),
    ])
}

fn time(data: &Data) -> String {
    let wall = TimeOfDay(data.state.snapshot.label.wall_ns(data.now())).to_string();
    // Nobody reads microseconds that change.
    format!("{} UTC", wall.split('.').next().unwrap_or_default())
}

fn uptime(data: &Data) -> std::time::Duration {
    let now = data.state.snapshot.label.wall_ns(data.now());
    let nanos = (now - data.doctor.agent.since.as_nanosecond()).max(0);
    std::time::Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Returns the verdict, or that the agent does not answer, which matters more.
fn verdict<'a>(view: &View<'_>, area: Rect) -> Line<'a> {
    let theme = view.theme;
    let (word, style, said) = match (&view.connection, view.data) {
        (Connection::Away { time, why }, _) => {
            (format!("AGENT AWAY {}", age(*time)), theme.alarm(), why.clone())
        }
        (Connection::Silent(time), _) => {
            let said = "the agent has a request and has not answered yet".to_owned();
            (format!("AGENT SILENT {}", age(*time)), theme.alarm(), said)
        }
        (Connection::Well, None) => return Line::raw("waiting for the agent"),
        (Connection::Well, Some(data)) => {
            let (word, style) = verdict_of(view, data);
            (word.to_owned(), style, verdict_words(data))
        }
    };
    let room = usize::from(area.width).saturating_sub(word.chars().count() + 2);
    Line::from(vec![Span::styled(word, style), Span::raw("  "), Span::raw(cut(&escaped(&said), room))])
}

fn verdict_of(view: &View<'_>, data: &Data) -> (&'static str, Style) {
    let theme = view.theme;
    match data.verdict.status {
        Some(Status::Ok) => ("OK", theme.of(Tone::Good).patch(theme.heading()).patch(theme.of(Tone::Good))),
        Some(Status::NotOk) => ("NOT OK", theme.of(Tone::Bad)),
        Some(Status::Unknown) | None => ("UNKNOWN", theme.of(Tone::Warning)),
    }
}

/// Returns the verdict's reason, and what the agent says about itself.
fn verdict_words(data: &Data) -> String {
    let verdict = data.verdict.message.as_ref().or(data.verdict.error.as_ref());
    let agent = &data.doctor.agent;
    let not_ready = agent.reasons.first().map(|reason| format!("not ready: {reason}"));
    let degraded = agent.degraded.first().map(|reason| format!("degraded: {reason}"));
    let parts: Vec<String> = verdict.cloned().into_iter().chain(not_ready).chain(degraded).collect();
    parts.join("; ")
}

fn numbers<'a>(view: &View<'_>) -> Line<'a> {
    let theme = view.theme;
    let Some(data) = view.data else { return Line::default() };
    let agent = &data.doctor.agent;
    let lost = agent.lost();
    let late = data.rates.is_some_and(|rates| rates.lost > 0);
    let tone = if late {
        Tone::Bad
    } else if lost > 0 {
        Tone::Warning
    } else {
        Tone::Plain
    };
    let events = match data.rates {
        Some(rates) => format!("events {:.1}/s", rates.events),
        None => format!("events {}", agent.seq),
    };
    let netns = match agent.netns.limit {
        Some(limit) => format!("netns {}/{limit}", agent.netns.count),
        None => format!("netns {}", agent.netns.count),
    };
    let cost = [
        data.rates.map(|rates| format!("{:.1}% CPU", rates.cpu_percent)),
        agent.memory().map(|memory| format!("{memory} MiB")),
    ];
    let cost: Vec<String> = cost.into_iter().flatten().collect();
    Line::from(vec![
        Span::raw(format!("pods {}  {events}  ", pods(data))),
        Span::styled(format!("lost {lost}"), theme.of(tone)),
        Span::raw(format!("  {netns}  agent {}", cost.join(" "))),
    ])
}

/// Returns the number of pods, as `300 (297 ready)`.
fn pods(data: &Data) -> String {
    let pods = &data.state.pods;
    let ready = pods.iter().filter(|pod| pod.state == "ready").count();
    if ready == pods.len() { ready.to_string() } else { format!("{} ({ready} ready)", pods.len()) }
}
