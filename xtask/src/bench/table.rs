//! Comparisons as tables of text.

use super::comparison::Comparison;

/// Returns a line for each case. The median of each figure is a column. If several cases have the figure,
/// another column has the ratio to the first of them, with the quartiles.
pub(crate) fn text(comparison: &Comparison) -> String {
    let mut rows = vec![vec![comparison.title.clone()]];
    for figure in &comparison.shown {
        rows[0].push(figure.clone());
        if comparison.is_compared(figure) {
            rows[0].push("ratio".to_owned());
        }
    }
    for case in &comparison.cases {
        let mut row = vec![case.name.clone()];
        for figure in &comparison.shown {
            row.push(case.spread(figure).map_or_else(|| "-".to_owned(), |it| number(it.median)));
            if comparison.is_compared(figure) {
                row.push(match comparison.ratio(case, figure) {
                    None => String::new(),
                    Some(it) if it.low == it.high => format!("{:.2}", it.median),
                    Some(it) => format!("{:.2} [{:.2} {:.2}]", it.median, it.low, it.high),
                });
            }
        }
        rows.push(row);
    }
    aligned(&rows)
}

/// Aligns the first column to the left, the others to the right.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut widths = vec![0; columns];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, width) in widths.iter().enumerate() {
            let cell = row.get(column).map_or("", String::as_str);
            line += &if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

#[cfg(test)]
mod tests {
    use super::text;
    use crate::bench::comparison::{Comparison, Figures};

    #[test]
    fn a_case_is_a_line_and_a_figure_that_it_lacks_is_a_dash() {
        let mut measured = Comparison::new("pods", &["ns", "KB"], &[]);
        let figure = |name: &str, figure: f64| Figures::from([(name.to_owned(), figure)]);
        measured.add("pods=10", figure("ns", 12.34));
        measured.add("pods=100", figure("ns", 24.68));
        measured.add("pods=1000", figure("KB", 0.0));
        let table = "pods         ns  ratio   KB\npods=10    12.3   1.00    -\npods=100   24.7   2.00    -\n\
                     pods=1000     -         0.0\n";
        assert_eq!(text(&measured), table);
    }
}
