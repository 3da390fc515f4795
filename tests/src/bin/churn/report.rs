//! Prints the results: a line of JSON for each case in each round.

use serde_json::json;

/// Prints the results of one case. They keep their order.
#[expect(clippy::print_stdout, reason = "the program's output")]
pub(crate) fn tell<N: AsRef<str>>(table: &str, case: &str, figures: impl IntoIterator<Item = (N, f64)>) {
    let figures: Vec<_> = figures.into_iter().map(|(name, figure)| json!([name.as_ref(), figure])).collect();
    println!("{}", json!({ "table": table, "case": case, "figures": figures }));
}
