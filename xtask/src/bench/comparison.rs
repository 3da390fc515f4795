//! Cases that differ in one thing, measured in turns.

use super::spread::Spread;
use anyhow::Result;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The figures of one case in one round, by name.
pub(crate) type Figures = BTreeMap<String, f64>;

pub(crate) struct Comparison {
    pub(crate) title: String,
    /// The names of the figures to show, in order.
    pub(crate) shown: Vec<String>,
    pub(crate) cases: Vec<Case>,
}

pub(crate) struct Case {
    pub(crate) name: String,
    rounds: Vec<Figures>,
}

impl Comparison {
    pub(crate) fn new(title: &str, shown: &[&str], names: &[&str]) -> Self {
        let shown = shown.iter().map(|name| (*name).to_owned()).collect();
        let cases = names.iter().map(|name| Case { name: (*name).to_owned(), rounds: Vec::new() });
        Self { title: title.to_owned(), shown, cases: cases.collect() }
    }

    /// Measures every case once in each round.
    pub(crate) fn measure(
        mut self,
        rounds: usize,
        mut measure: impl FnMut(&str) -> Result<Figures>,
    ) -> Result<Self> {
        for _ in 0..rounds {
            for case in &mut self.cases {
                case.rounds.push(measure(&case.name)?);
            }
        }
        Ok(self)
    }

    /// Adds the figures of one more round of a case.
    pub(crate) fn add(&mut self, name: &str, figures: Figures) {
        match self.cases.iter_mut().find(|case| case.name == name) {
            Some(case) => case.rounds.push(figures),
            None => self.cases.push(Case { name: name.to_owned(), rounds: vec![figures] }),
        }
    }

    /// Shows every figure that any case has.
    pub(crate) fn with_all_shown(mut self) -> Self {
        let names: BTreeSet<String> =
            self.cases.iter().flat_map(|case| &case.rounds).flat_map(|round| round.keys().cloned()).collect();
        self.shown = names.into_iter().collect();
        self
    }

    /// Returns the ratio of a figure to that of the first case that has it, round by round.
    pub(crate) fn ratio(&self, case: &Case, figure: &str) -> Option<Spread> {
        let mut cases = self.cases.iter();
        let first = cases.find(|case| case.rounds.iter().any(|round| round.contains_key(figure)))?;
        let mut ratios = Vec::new();
        for (base, it) in first.rounds.iter().zip(&case.rounds) {
            let (Some(base), Some(it)) = (base.get(figure), it.get(figure)) else { continue };
            // A ratio to zero is not a number.
            if (it / base).is_finite() {
                ratios.push(it / base);
            }
        }
        Spread::of(ratios)
    }

    /// Whether more than one case has the figure.
    pub(crate) fn is_compared(&self, figure: &str) -> bool {
        self.cases.iter().filter(|case| case.spread(figure).is_some()).count() > 1
    }

    pub(crate) fn json(&self) -> Value {
        let mut cases = Vec::new();
        for case in &self.cases {
            let mut figures = Map::new();
            for name in &self.shown {
                let Some(spread) = case.spread(name) else { continue };
                let ratio = self.ratio(case, name).map(Spread::json);
                figures.insert(name.clone(), json!({ "value": spread.json(), "ratio_to_first": ratio }));
            }
            cases.push(json!({ "name": case.name, "rounds": case.rounds.len(), "figures": figures }));
        }
        json!({ "title": self.title, "cases": cases })
    }
}

impl Case {
    pub(crate) fn spread(&self, figure: &str) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(|round| round.get(figure).copied()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{Comparison, Figures};

    #[test]
    fn a_ratio_is_between_values_of_one_round() {
        let mut burden = 0.0;
        let measured = Comparison::new("", &["ns"], &["one", "other"]).measure(3, |name| {
            // The machine becomes slower and slower.
            burden += if name == "one" { 1.0 } else { 0.0 };
            Ok(Figures::from([("ns".to_owned(), burden * if name == "one" { 10.0 } else { 15.0 })]))
        });
        let measured = measured.unwrap();
        let ratio = measured.ratio(&measured.cases[1], "ns").unwrap();
        assert_eq!([ratio.low, ratio.median, ratio.high], [1.5; 3]);
        assert_eq!(measured.cases[0].spread("ns").unwrap().median, 20.0);
        assert_eq!(measured.json()["cases"][1]["figures"]["ns"]["ratio_to_first"]["median"], 1.5);
    }
}
