//! Verdicts: stories told in words with what is to be found in each, and histories by the dice.

mod again;
mod drive;
mod load;
mod lost;
mod many;
mod model;
mod outage;
mod page;
mod schema;
mod script;
mod sim;
mod start;
mod story;
mod torn;
mod way;
