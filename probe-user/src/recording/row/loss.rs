//! What was lost of late.

use crate::{
    engine::world::loss,
    recording::{
        id::{Decimal, Time},
        mirror::mirror,
    },
};

mirror! { struct loss::Losses { count: Decimal, since: Time, last_at: Time, spans: Vec<(Time, Time)> } }
