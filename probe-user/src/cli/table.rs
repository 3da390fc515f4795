//! Prints aligned columns with headings.

use std::borrow::Cow;

use crate::sink::escape::escaped;

/// Aligns rows of as many cells as there are headings. Cells are printed escaped, and are as wide as what is
/// printed. The last cell is not padded.
pub(super) fn aligned<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let mut lines: Vec<[Cow<'_, str>; N]> = vec![headings.map(Cow::Borrowed)];
    lines.extend(rows.iter().map(|row| row.each_ref().map(|cell| escaped(cell))));
    let mut widths = [0; N];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> =
            line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::aligned;

    #[test]
    fn a_cell_that_is_escaped_keeps_its_row_and_its_column() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned);
        let rows = [row(["a\u{1b}[31m", "1"]), row(["b\nc", "2"]), row(["d", "\u{202e}3"])];
        let expected = "NAME         NUMBER\na\\u{1b}[31m  1\nb\\nc         2\nd            \\u{202e}3\n";
        assert_eq!(aligned(["NAME", "NUMBER"], &rows), expected);
    }
}
