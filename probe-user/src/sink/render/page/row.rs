//! A row of a picture: a line to compare it with other rows, and its details below, which a click opens.

use std::time::Duration;

use super::html::Html;
use crate::sink::{
    render::chart::{Bar, Row, Series},
    span::span,
};

/// Round times in minutes, whose quarters are round too.
const ROUND_MINUTES: [u64; 12] = [1, 2, 4, 8, 20, 40, 60, 120, 240, 480, 1_200, 2_400];

/// The next round time, whose quarters are round too.
pub(super) fn round_up(longest: Duration) -> Duration {
    if longest > Duration::from_secs(60) {
        let minutes = ROUND_MINUTES.map(|minutes| Duration::from_secs(60 * minutes));
        let days = longest.as_secs().div_ceil(4 * 86_400).saturating_mul(4 * 86_400);
        let fits = minutes.into_iter().find(|round| *round >= longest);
        return fits.unwrap_or(Duration::from_secs(days)).max(longest);
    }
    let longest = longest.as_nanos().max(1);
    let mut power: u128 = 1_000;
    loop {
        for times in [1, 2, 4, 6, 8] {
            if power * times >= longest {
                return Duration::from_nanos(u64::try_from(power * times).unwrap_or(u64::MAX));
            }
        }
        power *= 10;
    }
}

/// The axis, with a mark at each quarter.
pub(super) fn axis(scale: Duration, page: &mut Html) {
    page.put("<span class=\"axis\">");
    for quarter in 0..=4 {
        page.put("<span>").text(&span(scale / 4 * quarter)).put("</span>");
    }
    page.put("</span>");
}

pub(super) fn row(row: &Row, scale: Duration, page: &mut Html) {
    page.put(if row.is_open { "<details open>\n" } else { "<details>\n" });
    page.put("<summary class=\"line\"><span class=\"name\">").text(&row.name);
    for mark in &row.marks {
        page.put(" <i>").put(mark).put("</i>");
    }
    page.put("</span><svg aria-hidden=\"true\">");
    row.parts().for_each(|it| bar(it, scale, true, page));
    page.put("</svg><span class=\"took\">").text(&took(row)).put("</span><span class=\"slow\">");
    if let Some(slowest) = row.slowest() {
        page.text(&slowest.name).put(" ").text(&span(slowest.took.unwrap_or_default()));
    }
    page.put("</span></summary>\n");
    details(row, page);
    page.put("</details>\n");
}

/// The total time; none for a row without a complete part.
fn took(row: &Row) -> String {
    if row.slowest().is_some() { span(row.took) } else { "-".to_owned() }
}

fn details(row: &Row, page: &mut Html) {
    page.put("<dl class=\"about\">\n");
    for (name, word) in &row.facts {
        page.put("<div><dt>").put(name).put("</dt><dd>").text(word).put("</dd></div>\n");
    }
    page.put("</dl>\n");
    if !row.notes.is_empty() {
        page.put("<ul class=\"notes\">\n");
        row.notes.iter().for_each(|note| {
            page.put("<li>").text(note).put("</li>\n");
        });
        page.put("</ul>\n");
    }
    let scale = round_up(row.span());
    page.put("<div class=\"wide\"><table class=\"fall\">\n<thead><tr><th scope=\"col\">what</th>");
    page.put("<th scope=\"col\">at</th><th scope=\"col\">took</th><th scope=\"col\">");
    axis(scale, page);
    page.put("</th></tr></thead>\n<tbody>\n");
    let mut lane: Option<&str> = None;
    for it in &row.bars {
        if lane != Some(&it.lane) {
            page.put("<tr class=\"lane\"><th colspan=\"4\" scope=\"rowgroup\">").text(&it.lane);
            page.put("\n");
            lane = Some(&it.lane);
        }
        line(it, scale, page);
    }
    page.put("</tbody>\n</table></div>\n");
}

fn line(it: &Bar, scale: Duration, page: &mut Html) {
    // Five hundred pods have six thousand of these lines, so optional tags are left out.
    page.put("<tr><th>").text(&it.name);
    for mark in &it.marks {
        page.put(" <i>").put(mark).put("</i>");
    }
    page.put("<td>+").text(&span(it.at)).put("<td>");
    if let Some(took) = it.took {
        page.text(&span(took));
    }
    page.put("<td><svg>");
    bar(it, scale, false, page);
    page.put("</svg>");
    for note in &it.notes {
        page.put("<div>").text(note).put("</div>");
    }
    page.put("\n");
}

/// A bar is at least this fraction (1/500) of the scale wide, so that it is visible.
const MIN_SHARE: u32 = 500;

/// Draws a bar. With `tip`, it shows its name when the pointer is over it.
fn bar(it: &Bar, scale: Duration, tip: bool, page: &mut Html) {
    if it.took.is_some_and(|took| took.is_zero()) {
        return;
    }
    rect(it, class(it.tone), scale, tip, page);
    if !it.marks.is_empty() {
        rect(it, "u", scale, false, page);
    }
}

fn rect(it: &Bar, class: &'static str, scale: Duration, tip: bool, page: &mut Html) {
    let took = it.took.unwrap_or_default();
    page.put("<rect class=\"").put(class).put("\" x=\"").percent(it.at, scale);
    page.put("\" width=\"").percent(took.max(scale / MIN_SHARE), scale);
    if tip {
        page.put("\"><title>").text(&it.name).put(" ").text(&span(took)).put("</title></rect>");
    } else {
        page.put("\"/>");
    }
}

pub(super) fn class(tone: Series) -> &'static str {
    match tone {
        Series::Prepare => "pr",
        Series::Retry => "re",
        Series::Netns => "ns",
        Series::Cni => "cn",
        Series::Between => "be",
        Series::Pause => "pa",
        Series::Image => "im",
        Series::Runtime => "ru",
        Series::Cgroup => "cg",
        Series::Init => "in",
        Series::Listening => "li",
        Series::First => "p1",
        Series::Second => "p2",
        Series::Third => "p3",
        Series::Fourth => "p4",
        Series::Down => "dn",
        Series::Lost => "lo",
        Series::Failed => "fa",
        Series::Done => "ok",
        Series::Moment => "mo",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::round_up;

    #[test]
    fn a_scale_is_round_and_long_enough() {
        for (nanos, expect) in
            [(0, 1_000), (1_001, 2_000), (331_000_000, 400_000_000), (8_000_000_001, 10_000_000_000)]
        {
            assert_eq!(round_up(Duration::from_nanos(nanos)), Duration::from_nanos(expect), "{nanos}");
        }
        for (seconds, expect) in [(60, 60), (61, 120), (7_300, 14_400), (345_601, 691_200)] {
            assert_eq!(round_up(Duration::from_secs(seconds)), Duration::from_secs(expect), "{seconds}");
        }
        assert_eq!(round_up(Duration::MAX), Duration::MAX);
    }
}
