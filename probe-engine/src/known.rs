//! Known problems: what each looks like, what causes it and how to repair it. They are data
//! (`probe-engine/known/`, one file each; docs/known.md), so that knowledge grows without code.
//!
//! A problem is found by the members of a finding, and by the words that a program of the node said about it.
//! It is looked for when somebody reads the finding, so it changes no verdict, and a recording that is
//! replayed later says what is known by then.

mod file;
mod matching;
mod pattern;
mod release;
mod repair;
mod template;

use std::{
    collections::BTreeMap,
    sync::{LazyLock, OnceLock},
};

use schemars::JsonSchema;
use serde::Serialize;

pub use crate::model::fact::Speaker;
pub use file::{Condition, FileError, Problem};
pub use pattern::{Pattern, PatternError};
pub use release::{Fix, FixedIn, Line, NotAVersion, Release};
pub use template::plain;

use crate::model::change::Finding;
use matching::Matches;

/// More problems that are known by members alone are left out.
const MAX_POSSIBLE: usize = 4;

/// All known problems, by id.
#[derive(Clone, Debug, Default)]
pub struct Catalogue(BTreeMap<String, Problem>);

static BUILT_IN: LazyLock<Catalogue> = LazyLock::new(|| {
    let mut all = Catalogue::default();
    for problem in file::built_in() {
        all.0.insert(problem.id.clone(), problem);
    }
    all
});

/// The problems that the program's start added to.
static INSTALLED: OnceLock<Catalogue> = OnceLock::new();

/// What is known about a finding.
#[derive(Debug)]
pub struct Explanation<'a> {
    /// Why it happened, in one or a few sentences.
    pub cause: &'a str,
    /// The problem that a program named, then those that are known by the finding's members.
    pub known: Vec<Known<'a>>,
    /// Commands, one each; lines that begin with `#` say what to check.
    pub repair: Vec<String>,
    /// The programs that took part and whose later versions do not have this problem.
    pub fixed_in: Vec<FixedIn<'a>>,
}

/// A known problem that a finding is, or may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "KnownProblem")]
pub struct Known<'a> {
    /// The name of its page, `docs/known/ID.md`.
    pub id: &'a str,
    pub title: &'a str,
    /// Pages where others report the same problem.
    pub links: &'a [String],
}

impl Catalogue {
    /// Returns the problems that this program brings.
    #[must_use]
    pub fn built_in() -> &'static Self {
        &BUILT_IN
    }

    /// Returns the problems that this process knows: those that were installed, or the built-in ones.
    #[must_use]
    pub fn current() -> &'static Self {
        INSTALLED.get().unwrap_or(&BUILT_IN)
    }

    /// Makes these the problems that this process knows. Only the first call counts.
    pub fn install(self) {
        _ = INSTALLED.set(self);
    }

    /// Adds a problem. Returns the one that it replaces.
    pub fn add(&mut self, problem: Problem) -> Option<Problem> {
        self.0.insert(problem.id.clone(), problem)
    }

    /// Returns the problems in the order of their ids.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.0.values()
    }

    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Problem> {
        self.0.get(id)
    }

    /// Explains a finding of a node. What a program said outweighs what holds for every finding of the kind.
    #[must_use]
    pub fn explain<'a>(&'a self, finding: &'a Finding, node: &str) -> Explanation<'a> {
        let matches = Matches::of(self, finding);
        let mut repair = repair::lines(&matches, finding, node);
        repair.extend(finding.kind.explain().repair(&finding.sandboxes, &finding.runtimes));
        Explanation {
            cause: cause(&matches, finding),
            known: matches.problems().take(1 + MAX_POSSIBLE).map(Known::of).collect(),
            repair,
            fixed_in: fixed_in(&matches, finding),
        }
    }

    /// Returns why a finding happened.
    #[must_use]
    pub fn cause<'a>(&'a self, finding: &'a Finding) -> &'a str {
        cause(&Matches::of(self, finding), finding)
    }

    /// Returns the programs of a finding whose later versions do not have its problems.
    #[must_use]
    pub fn fixed_in<'a>(&'a self, finding: &'a Finding) -> Vec<FixedIn<'a>> {
        fixed_in(&Matches::of(self, finding), finding)
    }
}

fn cause<'a>(matches: &Matches<'a>, finding: &'a Finding) -> &'a str {
    matches.named.as_ref().map_or(finding.kind.explain().cause(), |named| &named.problem.cause)
}

fn fixed_in<'a>(matches: &Matches<'a>, finding: &'a Finding) -> Vec<FixedIn<'a>> {
    release::fixed_in(matches.problems().flat_map(|problem| &problem.fixes), finding)
}

impl<'a> Known<'a> {
    fn of(it: &'a Problem) -> Self {
        Self { id: &it.id, title: &it.title, links: &it.links }
    }
}
