//! What is drawn for a browser, in a real one: the pictures, their traces in Perfetto's own viewer, and the live page.
//!
//! What a screen shows is kept as `target/screens/*.png`, to be looked at.

#[path = "../replay/picture/given.rs"]
mod given;
mod live;
mod look;
mod perfetto;
mod picture;
