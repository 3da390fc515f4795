//! Which changes and findings are written: filters, the rate, the order.

pub mod filter;
pub(crate) mod findings;
pub(crate) mod lines;
pub(crate) mod rate;
