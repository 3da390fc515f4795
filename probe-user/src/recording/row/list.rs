//! Listings under way and gaps that one must close.

use crate::{
    engine::world::list,
    recording::{id::Time, kind::List, mirror::mirror},
};

mirror! { struct list::Begun { list: List, at: Time } }

mirror! { struct list::Gap { list: List, at: Time } }
