//! The whole agent on this machine with real pods of a private containerd: the cost of its start, of its rest
//! and of a pod's life, what it does in storms, and how it compares with other ways to learn what happened.
//!
//! A program of the tests crate makes the pods and the storms, and reads the kernel's figures of the agent.

use super::comparison::{Comparison, Figures};
use super::table;
use crate::arch::Arch;
use crate::build::Profile;
use crate::package::{self, Need};
use crate::setup::{self, Level};
use crate::{program, root, workspace};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::path::Path;

const NEEDS: &[Need] = &[Need::any(&["strace"], "strace")];

/// A part that the program measures.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Lives,
    Storms,
    Deaths,
}

impl Part {
    fn words(self, quick: bool) -> &'static [&'static str] {
        match (self, quick) {
            (Self::Lives, false) => &["lives"],
            (Self::Lives, true) => {
                &["lives", "--standing", "0,2", "--lives", "2", "--rounds", "1", "--rest", "3"]
            }
            (Self::Storms, false) => &["storms"],
            (Self::Storms, true) => &["storms", "--seconds", "1", "--rounds", "1"],
            (Self::Deaths, false) => &["deaths"],
            (Self::Deaths, true) => {
                &["deaths", "--standing", "2", "--deaths", "1", "--rounds", "1", "--rest", "2"]
            }
        }
    }
}

/// `containerd` is the folder of a containerd to use in place of the machine's own.
pub(super) fn compare(part: Part, quick: bool, containerd: Option<&Path>) -> Result<Vec<Comparison>> {
    package::ensure(NEEDS)?;
    setup::ensure(Level::Node)?;
    program::build(Arch::ours()?, Profile::Release)?;
    root::authorize()?;
    let mut churn = program::as_root("churn", &[])?;
    churn.args(part.words(quick));
    if let (Part::Lives | Part::Deaths, Some(folder)) = (part, containerd) {
        churn.arg("--binaries").arg(folder.canonicalize()?);
    }
    let text = workspace::output(&mut churn)?;
    let mut comparisons: Vec<Comparison> = Vec::new();
    for line in text.lines() {
        let told = Line::parse(line).with_context(|| format!("{line} tells no figures"))?;
        told.add_to(&mut comparisons);
    }
    comparisons.iter().for_each(|it| println!("{}", table::text(it)));
    Ok(comparisons)
}

/// The figures of one case in one round.
struct Line {
    table: String,
    case: String,
    /// In their order.
    figures: Vec<(String, f64)>,
}

impl Line {
    fn parse(line: &str) -> Result<Self> {
        let mut told: Value = serde_json::from_str(line)?;
        Ok(Self {
            table: serde_json::from_value(told["table"].take())?,
            case: serde_json::from_value(told["case"].take())?,
            figures: serde_json::from_value(told["figures"].take())?,
        })
    }

    fn add_to(self, comparisons: &mut Vec<Comparison>) {
        let Some(comparison) = comparisons.iter_mut().find(|it| it.title == self.table) else {
            comparisons.push(Comparison::new(&self.table, &[], &[]));
            return self.add_to(comparisons);
        };
        for (name, _) in &self.figures {
            if !comparison.shown.contains(name) {
                comparison.shown.push(name.clone());
            }
        }
        comparison.add(&self.case, Figures::from_iter(self.figures));
    }
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn lines_of_one_table_become_one_comparison() {
        let mut comparisons = Vec::new();
        for figure in [25.0, 27.0] {
            let line = format!(r#"{{"table":"rest","case":"2 pods","figures":[["MB",{figure}],["KB",1]]}}"#);
            Line::parse(&line).unwrap().add_to(&mut comparisons);
        }
        assert!(Line::parse(r#"{"case":"2 pods"}"#).is_err());
        let [rest] = &*comparisons else { panic!("{} comparisons", comparisons.len()) };
        assert_eq!((&*rest.title, &*rest.shown), ("rest", &["MB".to_owned(), "KB".to_owned()][..]));
        assert_eq!(rest.cases[0].spread("MB").unwrap().high, 27.0);
    }
}
