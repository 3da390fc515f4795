//! Identifiers. Sources parse strings into these once.
//!
//! Kernel objects have the keys of `probe_common::id`: (pid, start), (inode, cookie), (hierarchy, id).

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    net::IpAddr,
    str::FromStr,
    sync::Arc,
};

use schemars::JsonSchema;
use serde_with::{DeserializeFromStr, SerializeDisplay};

pub use probe_common::id::{CgroupKey, NetnsKey, TaskKey};

/// A container's or a sandbox's id, as the runtime and `CNI_CONTAINERID` give it: 64 hex digits with every
/// runtime met, but any text of the CNI specification's alphabet is taken.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr, JsonSchema)]
pub struct ContainerId(#[schemars(with = "String")] Shared);

/// A pod's UID: a UUID with dashes, or 32 hex digits for static pods (the kubelet's hash of the manifest).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr, JsonSchema)]
pub struct PodUid(#[schemars(with = "String")] Shared);

/// A text that many rows share. A copy of it allocates nothing. The first eight bytes are stored beside the
/// pointer: they decide nearly every comparison of two ids, without a read of either text's memory.
#[derive(Clone)]
struct Shared {
    /// The text's first eight bytes, big-endian. A shorter text is padded with zeros.
    head: u64,
    text: Arc<Text>,
}

/// The text is boxed, so that an `Arc` of it is one word (an `Arc<str>` is two): there are many pointers to
/// each text.
#[derive(PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Text(Box<str>);

/// An address with the length of its prefix: `10.0.0.1/24`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr, JsonSchema,
)]
#[schemars(with = "String", inline, description = "", extend("pattern" = "^[0-9a-f.:]+/[0-9]+$"))]
pub struct Subnet {
    pub address: IpAddr,
    pub prefix: u8,
}

/// The unit of process start times, ns: the resolution of `/proc/PID/stat` (`USER_HZ` is 100 on every
/// architecture that has eBPF).
pub const TICK: u64 = 10_000_000;

/// The longest id that is accepted, bytes.
const MAX_ID: usize = 256;

impl From<&str> for Shared {
    fn from(text: &str) -> Self {
        let mut head = [0; 8];
        head.iter_mut().zip(text.bytes()).for_each(|(to, byte)| *to = byte);
        Self { head: u64::from_be_bytes(head), text: Arc::new(Text(text.into())) }
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        self.head == other.head && (Arc::ptr_eq(&self.text, &other.text) || self.text == other.text)
    }
}

impl Eq for Shared {}

impl PartialOrd for Shared {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Orders by text.
impl Ord for Shared {
    fn cmp(&self, other: &Self) -> Ordering {
        self.head.cmp(&other.head).then_with(|| {
            if Arc::ptr_eq(&self.text, &other.text) { Ordering::Equal } else { self.text.cmp(&other.text) }
        })
    }
}

impl Hash for Shared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl ContainerId {
    /// Accepts letters, digits, `_`, `.` and `-`, beginning with a letter or digit (CNI specification,
    /// parameters).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = text.bytes();
        let first = bytes.next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        let rest = bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'));
        (first && rest && text.len() <= MAX_ID).then(|| Self(text.into()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.text.0
    }

    /// Whether it has the form that every pod runtime uses: 64 hex digits.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.as_str().len() == 64 && self.as_str().bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// Returns the first twelve characters, by which people know it.
    #[must_use]
    pub fn short(&self) -> &str {
        self.as_str().get(..12).unwrap_or(self.as_str())
    }
}

impl PodUid {
    /// Accepts a UUID with dashes, or with underscores as the systemd cgroup driver writes it, or 32 hex
    /// digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.bytes().filter(u8::is_ascii_hexdigit).count();
        let text = match text.len() {
            32 if hex == 32 => text.into(),
            36 if hex == 32 && is_uuid(text.as_bytes()) && !text.contains('_') => text.into(),
            36 if hex == 32 && is_uuid(text.as_bytes()) => text.replace('_', "-").as_str().into(),
            _ => return None,
        };
        Some(Self(text))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.text.0
    }
}

fn is_uuid(text: &[u8]) -> bool {
    [8, 13, 18, 23].iter().all(|at| matches!(text.get(*at), Some(b'-' | b'_')))
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// The error of a text that is not such an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not {0}")]
pub struct NotThat(&'static str);

impl NotThat {
    pub(super) const KEY: Self = Self("the key of a finding");
}

impl FromStr for ContainerId {
    type Err = NotThat;

    fn from_str(text: &str) -> Result<Self, NotThat> {
        Self::parse(text).ok_or(NotThat("the id of a container"))
    }
}

impl FromStr for PodUid {
    type Err = NotThat;

    fn from_str(text: &str) -> Result<Self, NotThat> {
        Self::parse(text).ok_or(NotThat("the UID of a pod"))
    }
}

impl FromStr for Subnet {
    type Err = NotThat;

    fn from_str(text: &str) -> Result<Self, NotThat> {
        let not = NotThat("an address with the length of its prefix");
        let (address, prefix) = text.split_once('/').ok_or(not)?;
        let address = address.parse().ok().ok_or(not)?;
        let prefix = prefix.parse().ok().ok_or(not)?;
        Ok(Self { address, prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::{ContainerId, PodUid};

    #[test]
    fn a_uid_is_the_same_pod_in_every_spelling() {
        let dashes = PodUid::parse("11111111-2222-3333-4444-555555555555").expect("a UUID");
        assert_eq!(PodUid::parse("11111111_2222_3333_4444_555555555555"), Some(dashes));
        assert!(PodUid::parse("0123456789abcdef0123456789abcdef").is_some());
        assert_eq!(PodUid::parse("11111111-2222-3333-4444-55555555555x"), None);
        assert_eq!(PodUid::parse("111111112222-3333-4444-555555555555--"), None);
    }

    #[test]
    fn ids_are_in_the_order_of_their_texts() {
        let id = |text: &str| ContainerId::parse(text).expect("an id");
        let sorted = ["a", "a-", "a.b", "abcdefg", "abcdefgh", "abcdefgh0", "abcdefgh1", "abcdefghi", "b"];
        for (place, one) in sorted.iter().enumerate() {
            for (other_place, other) in sorted.iter().enumerate() {
                assert_eq!(id(one).cmp(&id(other)), place.cmp(&other_place), "{one} {other}");
                assert_eq!(id(one) == id(other), one == other);
            }
        }
    }

    #[test]
    fn an_id_is_never_a_path() {
        assert!(ContainerId::parse(&"a".repeat(64)).is_some());
        for bad in ["", "../x", "a/b", ".hidden", "a b", &"a".repeat(257)] {
            assert_eq!(ContainerId::parse(bad), None, "{bad}");
        }
    }
}
