//! The findings of a node and the starts of its pods, as a running agent keeps them in a file for other
//! commands: one JSON object, replaced as a whole.
//!
//! **Invariant:** it holds all that an explanation needs: a reader needs neither the node nor the agent.

use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};

use crate::{
    engine::share::Share,
    model::{change::Finding, phase::Start, time::Timestamp},
};

/// The version of the format. Members may be added within one version; removing or changing a member raises
/// it.
pub(crate) const SCHEMA: u32 = 3;

/// Which agent wrote the findings, and when.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The version of the agent.
    pub made_by: String,
    pub node: String,
    /// The kernel's random id of the boot: times count from it.
    pub boot_id: String,
    #[serde_as(as = "DisplayFromStr")]
    pub boot_wall_ns: i64,
    /// The agent's pid, in its own namespace.
    pub pid: u32,
    pub written_at: Timestamp,
    /// The agent ended in order, so it will write nothing newer.
    pub ended: bool,
}

/// What an agent knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Snapshot<'a> {
    pub findings: Vec<&'a Finding>,
    pub starts: Vec<Start>,
    pub shares: Vec<Share>,
}

/// What an agent knew, read back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct SavedState {
    pub findings: Vec<Finding>,
    pub starts: Vec<Start>,
    pub shares: Vec<Share>,
}

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("not a file of sandprobe's findings: {0}")]
    Foreign(serde_json::Error),
    #[error("written in format {0} by a newer sandprobe; this one reads format {SCHEMA}: use that newer one")]
    Newer(u32),
    #[error(
        "written in format {0} by an older sandprobe; this one reads format {SCHEMA}: an agent of this version writes it anew"
    )]
    Older(u32),
}

/// The member with the format's version.
#[derive(Deserialize)]
struct Mark {
    schema: u32,
}

/// The whole file; its parts are borrowed when it is written.
#[derive(Serialize, Deserialize)]
struct File<A, K> {
    schema: u32,
    #[serde(flatten)]
    about: A,
    #[serde(flatten)]
    known: K,
}

/// Makes the file's contents.
pub fn write(about: &About, known: &Snapshot<'_>) -> serde_json::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(&File { schema: SCHEMA, about, known })?;
    bytes.push(b'\n');
    Ok(bytes)
}

pub fn read(bytes: &[u8]) -> Result<(About, SavedState), StateError> {
    let Mark { schema } = serde_json::from_slice(bytes).map_err(StateError::Foreign)?;
    if schema > SCHEMA {
        return Err(StateError::Newer(schema));
    }
    if schema < SCHEMA {
        return Err(StateError::Older(schema));
    }
    let file: File<About, SavedState> = serde_json::from_slice(bytes).map_err(StateError::Foreign)?;
    Ok((file.about, file.known))
}

#[cfg(test)]
mod tests {
    use super::{StateError, read};

    #[test]
    fn what_is_no_state_is_refused() {
        let newer = br#"{"schema":4,"anything":"else"}"#;
        assert!(matches!(read(newer), Err(StateError::Newer(4))));
        assert!(matches!(read(br#"{"schema":2,"findings":[]}"#), Err(StateError::Older(2))));
        for bad in [&b""[..], b"{}", b"[]", b"\x00\xff", br#"{"schema":3}"#] {
            assert!(matches!(read(bad), Err(StateError::Foreign(_))), "{bad:?}");
        }
    }
}
