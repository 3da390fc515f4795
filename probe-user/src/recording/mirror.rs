//! How the types in the file and those of the engine are kept in step.
//!
//! `mirror!` declares the type in the file, with the same shape as the engine's type of the same name, and both
//! conversions. They name every field and variant on both sides, so that a change in the engine does not compile
//! until it is decided what it means to the format; a rename is kept out of the file with `#[serde(rename)]`.

/// The form in the file of something of the engine's. What is not of its kind is refused when it is read from JSON,
/// so the way back cannot fail.
pub(super) trait Mirror: Sized {
    type Of;

    fn of(of: &Self::Of) -> Self;

    fn back(self) -> Self::Of;

    /// Any value, for the property that what is written is read back the same.
    #[cfg(test)]
    fn sample(dice: &mut super::sample::Dice) -> Self::Of;
}

macro_rules! mirror {
    (
        $(#[$meta:meta])*
        struct $module:ident::$name:ident { $($(#[$at:meta])* $field:ident: $type:ty),* $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(serde::Serialize, serde::Deserialize)]
        pub(in crate::recording) struct $name { $($(#[$at])* $field: $type),* }

        impl $crate::recording::mirror::Mirror for $name {
            type Of = $module::$name;

            fn of(of: &Self::Of) -> Self {
                let $module::$name { $($field),* } = of;
                Self { $($field: <$type>::of($field)),* }
            }

            fn back(self) -> Self::Of {
                let Self { $($field),* } = self;
                $module::$name { $($field: $field.back()),* }
            }

            #[cfg(test)]
            fn sample(dice: &mut $crate::recording::sample::Dice) -> Self::Of {
                $module::$name { $($field: <$type>::sample(dice)),* }
            }
        }
    };
    (
        $(#[$meta:meta])*
        enum $module:ident::$name:ident {
            $(
                $(#[$at:meta])*
                $variant:ident
                $( ($inner:ident: $inner_type:ty) )?
                $( { $($(#[$field_at:meta])* $field:ident: $type:ty),* $(,)? } )?
            ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub(in crate::recording) enum $name {
            $( $(#[$at])* $variant $( ($inner_type) )? $( { $($(#[$field_at])* $field: $type),* } )? ),*
        }

        impl $crate::recording::mirror::Mirror for $name {
            type Of = $module::$name;

            fn of(of: &Self::Of) -> Self {
                match of {
                    $( $module::$name::$variant $( ($inner) )? $( { $($field),* } )? =>
                        Self::$variant $( (<$inner_type>::of($inner)) )? $( { $($field: <$type>::of($field)),* } )?, )*
                }
            }

            fn back(self) -> Self::Of {
                match self {
                    $( Self::$variant $( ($inner) )? $( { $($field),* } )? =>
                        $module::$name::$variant $( ($inner.back()) )? $( { $($field: $field.back()),* } )?, )*
                }
            }

            #[cfg(test)]
            fn sample(dice: &mut $crate::recording::sample::Dice) -> Self::Of {
                let all: &[fn(&mut $crate::recording::sample::Dice) -> Self::Of] = &[
                    $( |_dice| $module::$name::$variant
                        $( (<$inner_type>::sample(_dice)) )?
                        $( { $($field: <$type>::sample(_dice)),* } )? ),*
                ];
                all[dice.below(all.len())](dice)
            }
        }
    };
}

pub(super) use mirror;

/// Things that stand in the file as they are.
macro_rules! plain {
    ($($type:ty),*) => { $(
        impl Mirror for $type {
            type Of = Self;

            fn of(of: &Self) -> Self {
                of.clone()
            }

            fn back(self) -> Self {
                self
            }

            #[cfg(test)]
            fn sample(dice: &mut super::sample::Dice) -> Self {
                dice.any()
            }
        }
    )* };
}

plain!(bool, u8, u16, u32, i32, String);

impl<T: Mirror> Mirror for Option<T> {
    type Of = Option<T::Of>;

    fn of(of: &Self::Of) -> Self {
        of.as_ref().map(T::of)
    }

    fn back(self) -> Self::Of {
        self.map(T::back)
    }

    #[cfg(test)]
    fn sample(dice: &mut super::sample::Dice) -> Self::Of {
        (dice.below(2) == 1).then(|| T::sample(dice))
    }
}

impl<T: Mirror> Mirror for Vec<T> {
    type Of = Vec<T::Of>;

    fn of(of: &Self::Of) -> Self {
        of.iter().map(T::of).collect()
    }

    fn back(self) -> Self::Of {
        self.into_iter().map(T::back).collect()
    }

    #[cfg(test)]
    fn sample(dice: &mut super::sample::Dice) -> Self::Of {
        (0..dice.below(4)).map(|_| T::sample(dice)).collect()
    }
}

impl<T: Mirror> Mirror for Box<T> {
    type Of = Box<T::Of>;

    fn of(of: &Self::Of) -> Self {
        Self::new(T::of(of))
    }

    fn back(self) -> Self::Of {
        Box::new((*self).back())
    }

    #[cfg(test)]
    fn sample(dice: &mut super::sample::Dice) -> Self::Of {
        Box::new(T::sample(dice))
    }
}

impl<A: Mirror, B: Mirror> Mirror for (A, B) {
    type Of = (A::Of, B::Of);

    fn of((a, b): &Self::Of) -> Self {
        (A::of(a), B::of(b))
    }

    fn back(self) -> Self::Of {
        (self.0.back(), self.1.back())
    }

    #[cfg(test)]
    fn sample(dice: &mut super::sample::Dice) -> Self::Of {
        (A::sample(dice), B::sample(dice))
    }
}
