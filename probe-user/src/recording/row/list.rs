//! Listings under way and gaps that one must close.

use crate::{
    engine::world::list,
    recording::{id::Time, kind::List, mirror::mirror},
};

mirror! { struct list::Begun { list: List, at: Time } }

mirror! { struct list::Gap { list: List, at: Time, #[serde(default = "lost")] doubt: Doubt } }

mirror! { enum list::Doubt { Lost, Excess, Marked } }

fn lost() -> Doubt {
    Doubt::Lost
}
