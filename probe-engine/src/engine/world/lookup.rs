//! Lookups: what follows from several tables together. They read the world and change nothing. Detectors,
//! views and reactions use them.

pub(crate) mod abandoned;
pub(crate) mod balance;
pub(crate) mod belief;
pub(crate) mod call;
pub(crate) mod context;
pub(crate) mod daemons;
pub(crate) mod netns;
pub(crate) mod phase;
pub(crate) mod pod;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod rebuild;
pub(crate) mod record;
pub(crate) mod recovery;
pub(crate) mod restart;
pub(crate) mod sandbox;
pub(crate) mod start;
pub(crate) mod unplaced;
