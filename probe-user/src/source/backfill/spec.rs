//! Reads `config.json` of an OCI bundle: the annotations of containerd's CRI plugin or of CRI-O.

use std::path::Path;

use serde::Deserialize;

use crate::{
    model::{
        fact::{ContainerFound, NameSource, PodName, Role},
        id::{ContainerId, PodUid},
    },
    source::backfill::log,
};

#[derive(Debug, Default, Deserialize)]
struct Spec {
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Debug, Default, Deserialize)]
struct Annotations {
    // containerd
    #[serde(rename = "io.kubernetes.cri.container-type")]
    kind: Option<String>,
    #[serde(rename = "io.kubernetes.cri.sandbox-id")]
    sandbox: Option<String>,
    #[serde(rename = "io.kubernetes.cri.sandbox-name")]
    pod: Option<String>,
    #[serde(rename = "io.kubernetes.cri.sandbox-namespace")]
    namespace: Option<String>,
    /// From containerd 1.6 on.
    #[serde(rename = "io.kubernetes.cri.sandbox-uid")]
    uid: Option<String>,
    #[serde(rename = "io.kubernetes.cri.container-name")]
    container: Option<String>,
    /// For a sandbox: `/var/log/pods/NAMESPACE_NAME_UID`.
    #[serde(rename = "io.kubernetes.cri.sandbox-log-directory")]
    logs: Option<String>,

    // CRI-O; its annotations hold the kubelet's labels too
    #[serde(rename = "io.kubernetes.cri-o.ContainerType")]
    crio_kind: Option<String>,
    #[serde(rename = "io.kubernetes.cri-o.SandboxID")]
    crio_sandbox: Option<String>,
    #[serde(rename = "io.kubernetes.cri-o.KubeName")]
    crio_pod: Option<String>,
    #[serde(rename = "io.kubernetes.cri-o.Namespace")]
    crio_namespace: Option<String>,
    #[serde(rename = "io.kubernetes.pod.name")]
    label_pod: Option<String>,
    #[serde(rename = "io.kubernetes.pod.namespace")]
    label_namespace: Option<String>,
    #[serde(rename = "io.kubernetes.pod.uid")]
    label_uid: Option<String>,
    #[serde(rename = "io.kubernetes.container.name")]
    label_container: Option<String>,
}

/// Returns the names of a container's image, as far as the annotations have them.
pub(super) fn images(config: &[u8]) -> Vec<String> {
    #[derive(Default, Deserialize)]
    struct Spec {
        #[serde(default)]
        annotations: Names,
    }
    #[derive(Default, Deserialize)]
    struct Names {
        #[serde(rename = "io.kubernetes.cri.image-name")]
        containerd: Option<String>,
        /// The image's id or digest.
        #[serde(rename = "io.kubernetes.cri-o.Image")]
        crio: Option<String>,
        #[serde(rename = "io.kubernetes.cri-o.ImageName")]
        crio_name: Option<String>,
    }
    let Spec { annotations: of } = serde_json::from_slice(config).unwrap_or_default();
    [of.containerd, of.crio, of.crio_name].into_iter().flatten().collect()
}

/// Parses a bundle's configuration; `None` if it is not one. A container without a pod has none of the
/// annotations.
pub(super) fn parse(config: &[u8], id: &ContainerId) -> Option<ContainerFound> {
    let of = serde_json::from_slice::<Spec>(config).ok()?.annotations;
    let role = match of.kind.or(of.crio_kind).as_deref() {
        Some("sandbox") => Role::Sandbox,
        _ => Role::Container,
    };
    let mut pod = PodName {
        namespace: of.namespace.or(of.label_namespace).or(of.crio_namespace),
        name: of.pod.or(of.label_pod).or(of.crio_pod),
        uid: of.uid.or(of.label_uid).as_deref().and_then(PodUid::parse),
    };
    let folder = of.logs.as_deref().and_then(|path| Path::new(path).file_name()?.to_str());
    if let Some((namespace, name, uid)) = folder.and_then(log::pod) {
        pod.namespace.get_or_insert_with(|| namespace.to_owned());
        pod.name.get_or_insert_with(|| name.to_owned());
        pod.uid.get_or_insert(uid);
    }
    let sandbox = of.sandbox.or(of.crio_sandbox).as_deref().and_then(ContainerId::parse);
    let (sandbox, name) = match role {
        Role::Sandbox => (Some(id.clone()), None),
        Role::Container => (sandbox, of.container.or(of.label_container)),
    };
    let pod = (pod != PodName::default()).then_some(pod);
    Some(ContainerFound {
        id: id.clone(),
        role,
        sandbox,
        name,
        pod,
        source: NameSource::Bundle,
        started: None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ContainerId, Role, images, parse};

    const UID: &str = "11111111-2222-3333-4444-555555555555";

    fn told(config: &str) -> Option<String> {
        let found = parse(config.as_bytes(), &ContainerId::parse("c1").expect("an id"))?;
        let pod = found.pod.unwrap_or_default();
        let or = |text: Option<String>| text.unwrap_or("-".to_owned());
        Some(format!(
            "{} of {} named {} in {}/{} {}",
            if found.role == Role::Sandbox { "sandbox" } else { "container" },
            or(found.sandbox.map(|id| id.to_string())),
            or(found.name),
            or(pod.namespace),
            or(pod.name),
            or(pod.uid.map(|uid| uid.to_string())),
        ))
    }

    #[test]
    fn containerd_says_what_it_made() {
        let sandbox = format!(
            r#"{{"ociVersion":"1.1.0","annotations":{{"io.kubernetes.cri.container-type":"sandbox",
            "io.kubernetes.cri.sandbox-id":"c1","io.kubernetes.cri.sandbox-log-directory":"/var/log/pods/default_web-0_{UID}",
            "io.kubernetes.cri.sandbox-name":"web-0","io.kubernetes.cri.sandbox-namespace":"default"}}}}"#
        );
        assert_eq!(
            told(&sandbox).as_deref(),
            Some(&*format!("sandbox of c1 named - in default/web-0 {UID}"))
        );
        let container = r#"{"annotations":{"io.kubernetes.cri.container-name":"main",
            "io.kubernetes.cri.container-type":"container","io.kubernetes.cri.sandbox-id":"s1",
            "io.kubernetes.cri.sandbox-name":"web-0","io.kubernetes.cri.sandbox-namespace":"default"}}"#;
        assert_eq!(told(container).as_deref(), Some("container of s1 named main in default/web-0 -"));
    }

    #[test]
    fn cri_o_says_what_it_made() {
        let sandbox = format!(
            r#"{{"annotations":{{"io.kubernetes.cri-o.ContainerType":"sandbox","io.kubernetes.cri-o.SandboxID":"c1",
            "io.kubernetes.container.name":"POD","io.kubernetes.cri-o.KubeName":"web-0",
            "io.kubernetes.cri-o.Namespace":"default","io.kubernetes.pod.uid":"{UID}"}}}}"#
        );
        assert_eq!(
            told(&sandbox).as_deref(),
            Some(&*format!("sandbox of c1 named - in default/web-0 {UID}"))
        );
        let container = format!(
            r#"{{"annotations":{{"io.kubernetes.cri-o.ContainerType":"container","io.kubernetes.cri-o.SandboxID":"s1",
            "io.kubernetes.container.name":"main","io.kubernetes.pod.name":"web-0",
            "io.kubernetes.pod.namespace":"default","io.kubernetes.pod.uid":"{UID}"}}}}"#
        );
        assert_eq!(
            told(&container).as_deref(),
            Some(&*format!("container of s1 named main in default/web-0 {UID}"))
        );
    }

    #[test]
    fn the_image_is_named_as_the_runtime_knows_it() {
        let containerd = br#"{"annotations":{"io.kubernetes.cri.image-name":"docker.io/library/busybox:1"}}"#;
        assert_eq!(images(containerd), ["docker.io/library/busybox:1"]);
        let crio = br#"{"annotations":{"io.kubernetes.cri-o.Image":"busybox:1","io.kubernetes.cri-o.ImageName":"docker.io/library/busybox:1"}}"#;
        assert_eq!(images(crio), ["busybox:1", "docker.io/library/busybox:1"]);
        assert_eq!(images(b"{}"), Vec::<String>::new());
        assert_eq!(images(b"7"), Vec::<String>::new());
    }

    #[test]
    fn a_container_of_no_pod_is_just_that() {
        assert_eq!(told(r#"{"ociVersion":"1.1.0"}"#).as_deref(), Some("container of - named - in -/- -"));
        for bad in ["", "{", "7", r#"{"annotations":{"io.kubernetes.cri.container-type":7}}"#] {
            assert_eq!(told(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>) {
            parse(&bytes, &ContainerId::parse("c1").expect("an id"));
        }
    }
}
