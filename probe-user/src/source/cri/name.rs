//! The names that records and runtimes give: pods, containers, images.

use crate::model::fact::PodName;

/// The longest name of a pod, a namespace or a container, bytes (DNS subdomain).
pub(crate) const NAME: usize = 253;

/// Removes the parts of a pod's name that cannot be names; `None` if nothing is left.
pub(crate) fn named(mut pod: PodName) -> Option<PodName> {
    pod.namespace = pod.namespace.filter(|name| is_word(name, NAME));
    pod.name = pod.name.filter(|name| is_word(name, NAME));
    (pod != PodName::default()).then_some(pod)
}

/// Returns whether the text is a word of printable ASCII, of at most `longest` bytes.
pub(crate) fn is_word(text: &str, longest: usize) -> bool {
    !text.is_empty() && text.len() <= longest && text.bytes().all(|byte| byte.is_ascii_graphic())
}
