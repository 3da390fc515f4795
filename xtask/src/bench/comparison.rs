//! Cases that differ in one thing, measured in turns.

use super::spread::Spread;
use anyhow::Result;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What was measured of one case in one round, by the figure's name.
pub(crate) type Figures = BTreeMap<String, f64>;

pub(crate) struct Comparison {
    pub(crate) title: String,
    /// The names of the figures to be shown, in their order.
    pub(crate) shown: Vec<String>,
    pub(crate) cases: Vec<Case>,
}

pub(crate) struct Case {
    pub(crate) name: String,
    rounds: Vec<Figures>,
}

impl Comparison {
    pub(crate) fn new(title: &str, shown: &[&str], names: &[&str]) -> Self {
        let case = |name: &&str| Case { name: (*name).to_owned(), rounds: Vec::new() };
        let shown = shown.iter().map(|name| (*name).to_owned()).collect();
        Self { title: title.to_owned(), shown, cases: names.iter().map(case).collect() }
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

    /// What was measured of a case in one more round.
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

    /// How many times that of the first case that has it a figure is, round by round.
    pub(crate) fn ratio(&self, case: &Case, figure: &str) -> Option<Spread> {
        let has = |case: &&Case| case.rounds.iter().any(|round| round.contains_key(figure));
        let pairs = self.cases.iter().find(has)?.rounds.iter().zip(&case.rounds);
        // Nothing is a number of times nothing.
        let ratio = |(base, it): (&Figures, &Figures)| {
            Some(it.get(figure)? / base.get(figure)?).filter(|it| it.is_finite())
        };
        Spread::of(pairs.filter_map(ratio).collect())
    }

    /// Whether more than one case has the figure.
    pub(crate) fn is_compared(&self, figure: &str) -> bool {
        self.cases.iter().filter(|case| case.spread(figure).is_some()).count() > 1
    }

    pub(crate) fn json(&self) -> Value {
        let case = |case: &Case| {
            let figure = |name: &String| {
                let (spread, ratio) = (case.spread(name)?, self.ratio(case, name));
                let ratio = ratio.map(Spread::json);
                Some((name.clone(), json!({ "value": spread.json(), "ratio_to_first": ratio })))
            };
            let figures: Map<String, Value> = self.shown.iter().filter_map(figure).collect();
            json!({ "name": case.name, "rounds": case.rounds.len(), "figures": figures })
        };
        json!({ "title": self.title, "cases": self.cases.iter().map(case).collect::<Vec<_>>() })
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
