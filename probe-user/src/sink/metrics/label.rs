//! The optional labels of pods, and the allowed characters of label values.

use super::workload;

/// An optional label that identifies a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodLabel {
    Namespace,
    Pod,
    /// Derived from the pod's name, because no API server is asked.
    Workload,
}

/// The label value for everything that has no series of its own.
pub(crate) const OTHER: &str = "other";

/// The longest value, characters, as for a Kubernetes label.
const MAX_LENGTH: usize = 63;

impl PodLabel {
    pub const ALL: [Self; 3] = [Self::Namespace, Self::Pod, Self::Workload];

    #[must_use]
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Pod => "pod",
            Self::Workload => "workload",
        }
    }

    /// Parses the name of a label.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|label| label.word() == text);
        known.ok_or_else(|| format!("{text:?} is no label of a pod: namespace, pod or workload"))
    }

    /// The label's value for a pod; empty, which means no label, if the value is unknown.
    pub(super) fn of(self, namespace: Option<&str>, name: Option<&str>) -> String {
        match self {
            Self::Namespace => clean(namespace.unwrap_or_default()),
            Self::Pod => clean(name.unwrap_or_default()),
            Self::Workload => clean(workload::of(name.unwrap_or_default())),
        }
    }
}

/// A name from the node as a label value: one line, without characters that break a terminal or a query.
pub(super) fn clean(text: &str) -> String {
    text.chars()
        .take(MAX_LENGTH)
        .map(|c| if c.is_alphanumeric() || "-_.:/@+".contains(c) { c } else { '_' })
        .collect()
}

/// Like `clean`, for a value that must not be empty.
pub(super) fn name(text: &str) -> String {
    if text.is_empty() { "unknown".to_owned() } else { clean(text) }
}

#[cfg(test)]
mod tests {
    use super::{PodLabel, clean, name};

    #[test]
    fn a_value_is_short_and_of_plain_characters() {
        assert_eq!(clean("calico-ipam"), "calico-ipam");
        assert_eq!(clean("a\"b\\c\nd\u{1b}[31m{}"), "a_b_c_d__31m__");
        assert_eq!(clean(&"é".repeat(200)), "é".repeat(63));
        assert_eq!(name(""), "unknown");
    }

    #[test]
    fn labels_are_those_three() {
        for label in PodLabel::ALL {
            assert_eq!(PodLabel::parse(label.word()), Ok(label));
        }
        assert!(PodLabel::parse("Pod").is_err() && PodLabel::parse("").is_err());
    }
}
