//! The types that the whole agent shares: what sources report, what the engine reports, and what is kept of
//! it. Methods here depend on one value only; the engine keeps the state and judges.
//!
//! **Invariant:** the format of recordings, state files, the history, the stream and the API comes from the
//! derives of these types.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::wildcard_enum_match_arm)]

/// A closed set of names: each variant is its name in snake case, in files, in the API, in text and in
/// `VARIANTS`.
macro_rules! closed_set {
    ($($set:tt)*) => {
        #[derive(
            Clone,
            Copy,
            Debug,
            PartialEq,
            Eq,
            PartialOrd,
            Ord,
            Hash,
            serde::Serialize,
            serde::Deserialize,
            strum::IntoStaticStr,
            strum::VariantNames,
            schemars::JsonSchema,
        )]
        #[serde(rename_all = "snake_case")]
        #[strum(serialize_all = "snake_case", const_into_str)]
        $($set)*
    };
}

pub mod change;
pub mod fact;
pub mod finding;
pub mod hash;
pub mod id;
pub mod json;
pub mod phase;
pub mod process;
pub mod recovery;
pub mod reference;
pub mod scalar;
pub mod time;
pub mod trace;
