//! Values by the dice, for tests of the format. The dice are seeded: a failure is the same each time.

use std::net::IpAddr;

pub(super) struct Dice(u64);

/// What the dice can show of one type.
pub(super) trait Any {
    fn any(dice: &mut Dice) -> Self;
}

impl Dice {
    pub(super) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }

    pub(super) fn any<T: Any>(&mut self) -> T {
        T::any(self)
    }

    /// Of those letters, of that length.
    pub(super) fn text(&mut self, letters: &str, len: usize) -> String {
        let letters: Vec<char> = letters.chars().collect();
        (0..len).map(|_| letters[self.below(letters.len())]).collect()
    }
}

impl Any for u64 {
    /// The edges as often as all between them.
    fn any(dice: &mut Dice) -> Self {
        match dice.below(4) {
            0 => 0,
            1 => Self::MAX,
            _ => dice.next(),
        }
    }
}

impl Any for i64 {
    fn any(dice: &mut Dice) -> Self {
        dice.any::<u64>().cast_signed()
    }
}

impl Any for bool {
    fn any(dice: &mut Dice) -> Self {
        dice.below(2) == 1
    }
}

macro_rules! by_low_bytes {
    ($($type:ty),*) => { $(
        impl Any for $type {
            fn any(dice: &mut Dice) -> Self {
                let bytes = dice.any::<u64>().to_le_bytes();
                Self::from_le_bytes(bytes[..size_of::<Self>()].try_into().expect("fewer than eight bytes"))
            }
        }
    )* };
}

by_low_bytes!(u8, u16, u32, i32);

impl Any for String {
    /// With what outside text may hold: quotes, line ends, control characters, what is not ASCII.
    fn any(dice: &mut Dice) -> Self {
        let len = dice.below(12);
        dice.text("ab/._-\"\\\n\r\t\0\u{1b}\u{7f}é漢\u{a0} ", len)
    }
}

impl Any for IpAddr {
    fn any(dice: &mut Dice) -> Self {
        if dice.any() {
            Self::from(dice.any::<u32>().to_be_bytes())
        } else {
            Self::from((u128::from(dice.next()) << 64 | u128::from(dice.next())).to_be_bytes())
        }
    }
}
