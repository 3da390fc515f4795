//! `CNI_ARGS` names the pod and the sandbox of a CNI call, so no API call is needed.

use crate::model::{
    fact::PodName,
    id::{ContainerId, PodUid},
};

/// The Kubernetes keys of `CNI_ARGS`. The pairs can come in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Args {
    pub(crate) pod: PodName,
    pub(crate) sandbox: Option<ContainerId>,
}

impl Args {
    /// Reads `K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;…`. It ignores other keys.
    #[must_use]
    pub(crate) fn read(text: &str) -> Self {
        Self::of(text.split(';').filter_map(|pair| pair.split_once('=')))
    }

    pub(crate) fn of<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut args = Self::default();
        for (key, value) in pairs {
            let text = (!value.is_empty()).then(|| value.to_owned());
            match key {
                "K8S_POD_NAMESPACE" => args.pod.namespace = text,
                "K8S_POD_NAME" => args.pod.name = text,
                "K8S_POD_UID" => args.pod.uid = PodUid::parse(value),
                "K8S_POD_INFRA_CONTAINER_ID" => args.sandbox = ContainerId::parse(value),
                _ => {}
            }
        }
        args
    }
}

#[cfg(test)]
mod tests {
    use super::Args;

    #[test]
    fn the_order_of_pairs_means_nothing() {
        let uid = "11111111-2222-3333-4444-555555555555";
        let one = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_UID={uid}");
        let two = format!("K8S_POD_UID={uid};K8S_POD_NAME=web-0;IgnoreUnknown=1;K8S_POD_NAMESPACE=default");
        assert_eq!(Args::read(&one), Args::read(&two));
        assert_eq!(Args::read(&one).pod.name.as_deref(), Some("web-0"));
    }

    #[test]
    fn nonsense_names_nothing() {
        for text in ["", ";;;", "K8S_POD_NAME", "K8S_POD_NAME=;K8S_POD_UID=x", "=K8S_POD_NAME=a"] {
            assert_eq!(Args::read(text), Args::default(), "{text}");
        }
    }
}
