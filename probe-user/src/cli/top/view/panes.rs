//! Draws a pane: its heading, and as many of its rows as fit.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{Theme, bar};
use crate::{
    cli::top::{
        query::Pane,
        table::{Cell, Column, ColumnKind, Table},
        ui::Ui,
    },
    sink::render::text::cut,
};

/// The space between two columns.
const GAP: usize = 1;
/// The characters at the end of a pod's name that distinguish it from its replicas.
const TAIL: usize = 5;

pub(super) fn draw(theme: Theme, ui: &Ui, pane: Pane, table: &Table, area: Rect, buffer: &mut Buffer) {
    if area.height == 0 {
        return;
    }
    let is_focused = ui.focus == pane;
    let width = usize::from(area.width);
    let widths = widths(table, width);
    let (selected, top) = ui.cursor(pane);
    let style = if is_focused { theme.focused() } else { theme.unfocused() };
    let range = range(top, usize::from(area.height - 1), table.rows.len());
    bar(&heading(pane, table, &widths, &range, width), style, Rect { height: 1, ..area }, buffer);
    let rows = table.rows.iter().enumerate().skip(top);
    for ((place, row), y) in rows.zip(area.y + 1..area.bottom()) {
        let line = Rect { y, height: 1, ..area };
        cells(theme, &row.cells, table.columns, &widths, line, buffer);
        if is_focused && place == selected {
            buffer.set_style(line, theme.selected());
        }
    }
    if table.rows.is_empty() && area.height > 1 {
        buffer.set_stringn(area.x, area.y + 1, cut(&table.empty, width), width, theme.plain());
    }
}

/// Returns which rows are shown, as `1-4 of 8`; empty if all are.
fn range(top: usize, height: usize, count: usize) -> String {
    if count <= height {
        String::new()
    } else {
        format!("{}-{} of {count}", top + 1, (top + height).min(count))
    }
}

/// Returns the pane's number, name and count; then the titles of those columns for which that leaves room; on
/// the right which rows are shown.
fn heading(pane: Pane, table: &Table, widths: &[usize], range: &str, width: usize) -> String {
    let room = if range.is_empty() { width } else { width.saturating_sub(range.len() + GAP) };
    let mut heading = format!("{} {} {}", pane.place() + 1, pane.title(), table.count);
    let mut column = 0;
    let columns = if table.rows.is_empty() { &[] } else { table.columns };
    for (Column { title, kind, .. }, width) in columns.iter().zip(widths) {
        let right = if *kind == ColumnKind::Numbers { width.saturating_sub(title.len()) } else { 0 };
        let begin = column + right;
        let used = heading.chars().count();
        if begin > used && *width > 0 && begin + title.len() <= room {
            heading.extend(std::iter::repeat_n(' ', begin - used));
            heading.push_str(title);
        }
        column += width + GAP;
    }
    if range.is_empty() {
        return heading;
    }
    format!("{:room$}{:GAP$}{range}", cut(&heading, room), "")
}

fn cells(
    theme: Theme,
    cells: &[Cell],
    columns: &[Column],
    widths: &[usize],
    line: Rect,
    buffer: &mut Buffer,
) {
    let mut x = line.x;
    for ((cell, column), width) in cells.iter().zip(columns).zip(widths) {
        let text = match column.kind {
            ColumnKind::Words => cut(&cell.text, *width),
            ColumnKind::Names => cut_within(&cell.text, *width),
            ColumnKind::Numbers => format!("{:>width$}", cell.text),
        };
        if x < line.right() {
            let room = usize::from(line.right() - x).min(*width);
            buffer.set_stringn(x, line.y, text, room, theme.of(cell.tone));
        }
        x = x.saturating_add(u16::try_from(width + GAP).unwrap_or(u16::MAX));
    }
}

/// Returns the name with its beginning and its end.
fn cut_within(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let tail: String = name.chars().skip(length - TAIL.min(width / 3)).collect();
    cut(name, width - tail.chars().count()) + &tail
}

/// Returns the width of each column: what its cells need, as far as there is room. The last column has the
/// rest, and is not shown if that is less than it needs.
fn widths(table: &Table, screen: usize) -> Vec<usize> {
    let Some((last, first)) = table.columns.split_last() else { return Vec::new() };
    let needs = first.iter().enumerate().map(|(place, column)| {
        let cells = table.rows.iter().filter_map(|row| row.cells.get(place));
        let widest = cells.map(|cell| cell.text.chars().count()).max().unwrap_or_default();
        widest.max(column.title.len()).clamp(column.least, column.most)
    });
    let mut widths: Vec<usize> = needs.collect();
    // The column that has most beyond its least width gives up one, and so on.
    while total(&widths) + last.least > screen {
        let spare = widths.iter().zip(first).map(|(width, column)| match column.kind {
            ColumnKind::Numbers => 0,
            ColumnKind::Words | ColumnKind::Names => width - column.least,
        });
        match spare.enumerate().max_by_key(|(place, spare)| (*spare, usize::MAX - place)) {
            Some((place, spare)) if spare > 0 => widths[place] -= 1,
            _ => break,
        }
    }
    let rest = screen.saturating_sub(total(&widths));
    widths.push(if rest < last.least { 0 } else { rest.min(last.most) });
    widths
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len()
}

#[cfg(test)]
mod tests {
    use super::cut_within;

    #[test]
    fn replicas_can_be_told_apart() {
        assert_eq!(cut_within("shop/web-6b5c9dfc7d-x2x4k", 16), "shop/web-6…x2x4k");
        assert_eq!(cut_within("shop/web-6b5c9dfc7d-x2x4k", 25), "shop/web-6b5c9dfc7d-x2x4k");
        assert_eq!([3, 2, 1, 0].map(|width| cut_within("abcdef", width)), ["a…f", "a…", "…", ""]);
    }
}
