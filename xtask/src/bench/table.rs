//! Comparisons as people read them.

use super::comparison::Comparison;

/// A line for each case. A figure's median is a column; where several cases have it, the ratio to the first of them is
/// another, with the quartiles.
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
            let (spread, ratio) = (case.spread(figure), comparison.ratio(case, figure));
            row.push(spread.map_or_else(|| "-".to_owned(), |it| number(it.median)));
            if comparison.is_compared(figure) {
                row.push(ratio.map_or_else(String::new, |it| {
                    if it.low == it.high {
                        format!("{:.2}", it.median)
                    } else {
                        format!("{:.2} [{:.2} {:.2}]", it.median, it.low, it.high)
                    }
                }));
            }
        }
        rows.push(row);
    }
    aligned(&rows)
}

/// The first column to the left, the others to the right.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
    let width = |column| rows.iter().map(|row| cell(row, column).chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, width) in widths.iter().enumerate() {
            let cell = cell(row, column);
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
