//! Cases that differ in one thing, measured in turns.

use super::spread::Spread;
use anyhow::Result;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What was measured of one case in one round, by the figure's name.
pub(crate) type Figures = BTreeMap<&'static str, f64>;

pub(crate) struct Comparison {
    pub(crate) title: String,
    /// The names of the figures to be shown, in their order.
    pub(crate) shown: &'static [&'static str],
    pub(crate) cases: Vec<Case>,
}

pub(crate) struct Case {
    pub(crate) name: String,
    rounds: Vec<Figures>,
}

impl Comparison {
    /// Measures every case once in each round.
    pub(crate) fn measure(
        title: &str,
        shown: &'static [&'static str],
        names: &[String],
        rounds: usize,
        mut measure: impl FnMut(&str) -> Result<Figures>,
    ) -> Result<Self> {
        let case = |name: &String| Case { name: name.clone(), rounds: Vec::new() };
        let mut cases: Vec<Case> = names.iter().map(case).collect();
        for _ in 0..rounds {
            for case in &mut cases {
                case.rounds.push(measure(&case.name)?);
            }
        }
        Ok(Self { title: title.to_owned(), shown, cases })
    }

    /// How many times that of the first case a figure is, round by round.
    pub(crate) fn ratio(&self, case: &Case, figure: &str) -> Option<Spread> {
        let pairs = self.cases.first()?.rounds.iter().zip(&case.rounds);
        let ratio = |(base, it): (&Figures, &Figures)| Some(it.get(figure)? / base.get(figure)?);
        Spread::of(pairs.filter_map(ratio).collect())
    }

    pub(crate) fn json(&self) -> Value {
        let case = |case: &Case| {
            let figure = |name: &&'static str| {
                let (spread, ratio) = (case.spread(name)?, self.ratio(case, name)?);
                Some(((*name).to_owned(), json!({ "value": spread.json(), "ratio_to_first": ratio.json() })))
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
        let names = ["one".to_owned(), "other".to_owned()];
        let mut burden = 0.0;
        let measured = Comparison::measure("", &["ns"], &names, 3, |name| {
            // The machine becomes slower and slower.
            burden += if name == "one" { 1.0 } else { 0.0 };
            Ok(Figures::from([("ns", burden * if name == "one" { 10.0 } else { 15.0 })]))
        });
        let measured = measured.unwrap();
        let ratio = measured.ratio(&measured.cases[1], "ns").unwrap();
        assert_eq!([ratio.low, ratio.median, ratio.high], [1.5; 3]);
        assert_eq!(measured.cases[0].spread("ns").unwrap().median, 20.0);
        assert_eq!(measured.json()["cases"][1]["figures"]["ns"]["ratio_to_first"]["median"], 1.5);
    }
}
