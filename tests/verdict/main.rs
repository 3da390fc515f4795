//! Tests of the findings: stories in a small language with their expected findings, and randomly generated
//! histories.

mod delivery;
mod drive;
mod hour;
mod known;
mod load;
mod lost;
mod many;
mod model;
mod outage;
mod page;
mod promise;
mod recorded;
mod replay;
mod schema;
mod script;
mod sim;
mod start;
mod story;
mod torn;
