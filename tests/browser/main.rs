//! The pages in a real browser: the static pages, their traces in Perfetto's own viewer, and the live page.
//!
//! Screenshots are in `target/screens/*.png` for people to look at.

#[path = "../replay/picture/fixture.rs"]
mod fixture;
mod live;
mod look;
mod perfetto;
mod picture;
