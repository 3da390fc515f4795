//! Identities, times and numbers of 64 bits, as they stand in the file.

use std::{borrow::Cow, fmt::Display, net::IpAddr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::mirror::Mirror;
#[cfg(test)]
use super::sample::Dice;
use crate::engine::{
    finding::Key,
    id,
    id::{ContainerId, PodUid, Subnet},
    time::Timestamp,
};

/// What stands in the file as a string.
pub(super) struct Text<T>(pub(super) T);

pub(super) type Decimal = Text<u64>;

/// How such a thing is spelled; what `Display` writes, `parse` takes.
pub(super) trait Spelled: Display + Clone + Sized {
    const WHAT: &'static str;

    fn parse(text: &str) -> Option<Self>;

    #[cfg(test)]
    fn any(dice: &mut Dice) -> Self;
}

impl<T: Spelled> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de, T: Spelled> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(from)?;
        T::parse(&text)
            .map(Self)
            .ok_or_else(|| de::Error::invalid_value(de::Unexpected::Str(&text), &T::WHAT))
    }
}

impl<T: Spelled> Mirror for Text<T> {
    type Of = T;

    fn of(of: &T) -> Self {
        Self(of.clone())
    }

    fn back(self) -> T {
        self.0
    }

    #[cfg(test)]
    fn sample(dice: &mut Dice) -> T {
        T::any(dice)
    }
}

macro_rules! spelled {
    ($($type:ty: $what:literal),*) => { $(
        impl Spelled for $type {
            const WHAT: &'static str = $what;

            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            #[cfg(test)]
            fn any(dice: &mut Dice) -> Self {
                dice.any()
            }
        }
    )* };
}

spelled!(u64: "a decimal number", i64: "a decimal number", IpAddr: "an IP address");

impl Spelled for ContainerId {
    const WHAT: &'static str = "a container's id";

    fn parse(text: &str) -> Option<Self> {
        Self::parse(text)
    }

    #[cfg(test)]
    fn any(dice: &mut Dice) -> Self {
        let text = dice.text("0123456789abcdef", 64);
        Self::parse(&text).expect("letters and digits")
    }
}

impl Spelled for PodUid {
    const WHAT: &'static str = "a pod's UID";

    fn parse(text: &str) -> Option<Self> {
        Self::parse(text)
    }

    #[cfg(test)]
    fn any(dice: &mut Dice) -> Self {
        let hex = dice.text("0123456789abcdef", 32);
        let dashed = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
        Self::parse(if dice.any() { &hex } else { &dashed }).expect("either spelling")
    }
}

impl Spelled for Key {
    const WHAT: &'static str = "a finding's key";

    fn parse(text: &str) -> Option<Self> {
        Self::parse(text)
    }

    #[cfg(test)]
    fn any(dice: &mut Dice) -> Self {
        let name = dice.text("abc:_", 8);
        Self::parse(&format!("kind/{name}")).expect("a kind and a name")
    }
}

impl Spelled for Subnet {
    const WHAT: &'static str = "an address with its prefix length";

    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        Some(Self { address: address.parse().ok()?, prefix: prefix.parse().ok()? })
    }

    #[cfg(test)]
    fn any(dice: &mut Dice) -> Self {
        Self { address: dice.any(), prefix: dice.any() }
    }
}

/// Nanoseconds of boot time.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Time(Decimal);

/// What the clock showed when a call was made, nanoseconds of boot time. The engine goes by it, so what no clock can show
/// is refused; a time that a fact tells of may be any.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct Clock(Decimal);

impl<'de> Deserialize<'de> for Clock {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Text(at) = Decimal::deserialize(from)?;
        if at > Timestamp::LATEST.0 {
            return Err(de::Error::custom(format_args!(
                "{at} is no time: a clock shows {} nanoseconds at most",
                Timestamp::LATEST.0
            )));
        }
        Ok(Self(Text(at)))
    }
}

impl Mirror for Clock {
    type Of = Timestamp;

    fn of(of: &Timestamp) -> Self {
        Self(Text(of.0.min(Timestamp::LATEST.0)))
    }

    fn back(self) -> Timestamp {
        Timestamp(self.0.0)
    }

    #[cfg(test)]
    fn sample(dice: &mut Dice) -> Timestamp {
        Timestamp(dice.any::<u64>() >> 1)
    }
}

/// Nanoseconds.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Span(Decimal);

impl Mirror for Time {
    type Of = Timestamp;

    fn of(of: &Timestamp) -> Self {
        Self(Text(of.0))
    }

    fn back(self) -> Timestamp {
        Timestamp(self.0.0)
    }

    #[cfg(test)]
    fn sample(dice: &mut Dice) -> Timestamp {
        Timestamp(dice.any())
    }
}

impl Mirror for Span {
    type Of = Duration;

    fn of(of: &Duration) -> Self {
        // 584 years.
        Self(Text(u64::try_from(of.as_nanos()).unwrap_or(u64::MAX)))
    }

    fn back(self) -> Duration {
        Duration::from_nanos(self.0.0)
    }

    #[cfg(test)]
    fn sample(dice: &mut Dice) -> Duration {
        Duration::from_nanos(dice.any())
    }
}

/// The keys of kernel things have padding, and so no mirror by the macro.
macro_rules! key {
    ($(#[$meta:meta])* $name:ident { $first:ident: $first_type:ty, $second:ident: $second_type:ty }) => {
        $(#[$meta])*
        #[derive(Serialize, Deserialize)]
        pub(super) struct $name { $first: $first_type, $second: $second_type }

        impl Mirror for $name {
            type Of = id::$name;

            fn of(of: &id::$name) -> Self {
                Self { $first: <$first_type>::of(&of.$first), $second: <$second_type>::of(&of.$second) }
            }

            fn back(self) -> id::$name {
                id::$name::new(self.$first.back(), self.$second.back())
            }

            #[cfg(test)]
            fn sample(dice: &mut Dice) -> id::$name {
                id::$name::new(<$first_type>::sample(dice), <$second_type>::sample(dice))
            }
        }
    };
}

key!(TaskKey { pid: u32, start: Decimal });
key!(NetnsKey { inode: u32, cookie: Decimal });
key!(CgroupKey { hierarchy: u32, id: Decimal });
