//! Deadlines.

use crate::{engine::timer, recording::mirror::mirror};

mirror! { enum timer::Name { Reap, Relist, Records, Recovery, Starts, Watch } }
