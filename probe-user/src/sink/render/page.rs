//! A picture as an HTML page: one file without scripts and without requests.
//!
//! **Invariant:** text from outside never becomes markup: `html::Html` takes markup from this program's
//! source only. As a second defence, the page's own content security policy forbids scripts and requests.

mod html;
mod row;

use std::collections::BTreeSet;

use super::chart::{Chart, Series, Table};
use html::Html;
use row::{axis, round_up, row};

const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
base-uri 'none'; form-action 'none'\">
<meta name=\"referrer\" content=\"no-referrer\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
";
const STYLE: &str = include_str!("page/style.css");
/// Uncertain bars are hatched, besides their color.
const HATCH: &str = "<svg class=\"defs\" aria-hidden=\"true\"><defs><pattern id=\"hatch\" width=\"6\" height=\"6\" \
patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect width=\"2\" height=\"6\"/></pattern></defs></svg>
";

#[must_use]
pub fn page(chart: &Chart) -> String {
    let mut page = Html::default();
    page.put(HEAD).put("<title>").put(chart.title);
    if let Some((_, node)) = chart.about.iter().find(|(name, _)| *name == "node") {
        page.put(": ").text(node);
    }
    page.put("</title>\n<style>\n").put(STYLE).put("</style>\n</head>\n<body>\n").put(HATCH);
    page.put("<h1>").put(chart.title).put("</h1>\n<dl class=\"about\">\n");
    for (name, word) in &chart.about {
        page.put("<div><dt>").put(name).put("</dt><dd>").text(word).put("</dd></div>\n");
    }
    page.put("</dl>\n");
    for note in &chart.notes {
        page.put("<p>").text(note).put("</p>\n");
    }
    chart.tables.iter().for_each(|it| table(it, &mut page));
    if chart.rows.is_empty() {
        page.put("<p>There is nothing to draw.</p>\n");
    } else {
        rows(chart, &mut page);
    }
    page.put("</body>\n</html>\n");
    page.end()
}

fn table(table: &Table, page: &mut Html) {
    page.put("<div class=\"wide\"><table>\n<caption>").put(table.title).put("</caption>\n<thead><tr>");
    for heading in &table.headings {
        page.put("<th scope=\"col\">").put(heading).put("</th>");
    }
    page.put("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        page.put("<tr>");
        for (n, cell) in row.iter().enumerate() {
            let (open, close) = if n == 0 { ("<th scope=\"row\">", "</th>") } else { ("<td>", "</td>") };
            page.put(open).text(cell).put(close);
        }
        page.put("</tr>\n");
    }
    page.put("</tbody>\n</table></div>\n");
}

fn rows(chart: &Chart, page: &mut Html) {
    legend(chart, page);
    let scale = round_up(chart.rows.iter().map(|row| row.span()).max().unwrap_or_default());
    page.put("<section aria-label=\"each ").put(chart.noun).put("\">\n<div class=\"line head\"><span>");
    page.put(chart.noun).put("</span>");
    axis(scale, page);
    page.put("<span class=\"took\">took</span><span>slowest</span></div>\n");
    chart.rows.iter().for_each(|it| row(it, scale, page));
    page.put("</section>\n");
}

/// The legend of the colors in use.
fn legend(chart: &Chart, page: &mut Html) {
    let mut bars = chart.rows.iter().flat_map(|row| &row.bars);
    let tones: BTreeSet<Series> = bars.clone().map(|bar| bar.tone).collect();
    page.put("<ul class=\"legend\" aria-label=\"colors\">\n");
    for tone in tones {
        page.put("<li><svg aria-hidden=\"true\"><rect class=\"").put(row::class(tone));
        page.put("\" width=\"100%\" height=\"100%\"/></svg>").put(tone.meaning()).put("</li>\n");
    }
    if bars.any(|bar| !bar.marks.is_empty()) {
        page.put("<li><svg aria-hidden=\"true\"><rect class=\"in\" width=\"100%\" height=\"100%\"/>");
        page.put("<rect class=\"u\" width=\"100%\" height=\"100%\"/></svg>");
        page.put("hatched: inferred, or something was lost meanwhile (gapped)</li>\n");
    }
    page.put("</ul>\n");
}
