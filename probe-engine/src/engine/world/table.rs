//! Tables: one for each kind of thing. The module of a kind holds its row, its states, its table and the
//! table's bounds.
//!
//! **Invariant:** no table knows the world or another table's rows in it. Only reactions change rows: by a
//! table's methods, or, for the tables that give out mutable rows, in the reactions that `cargo xtask tidy`
//! lists.
//!
//! **Invariant:** memory is bounded by what lives. The row of an ended thing stays for a while, so that late
//! records still find its name, and is then forgotten.

pub(crate) mod attachment;
pub(crate) mod balance;
pub(crate) mod belief;
pub mod call;
pub(crate) mod cgroup;
pub mod container;
pub(crate) mod failing;
pub(crate) mod hint;
pub(crate) mod ipam_store;
pub(crate) mod list;
pub(crate) mod loss;
pub(crate) mod netns;
pub(crate) mod pod;
pub(crate) mod presence;
pub(crate) mod process;
pub(crate) mod record;
pub(crate) mod recovery;
pub(crate) mod release;
pub mod sandbox;
pub(crate) mod start;

use std::time::Duration;

/// How long the row of an ended thing is kept, so that late records still find its name.
pub(crate) const GRACE: Duration = Duration::from_secs(60);

/// How long a stopped sandbox is remembered for verdicts.
pub(crate) const MEMORY: Duration = Duration::from_secs(15 * 60);
