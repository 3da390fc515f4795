//! Releases that nothing verifies.

use crate::{
    engine::world::release,
    recording::{id::Time, mirror::mirror},
};

mirror! { struct release::Release { plugin: String, count: u32, since: Time, last_at: Time } }
