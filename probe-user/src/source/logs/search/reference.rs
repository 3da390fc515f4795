//! Compares names of images. Some programs write them in full, others as they were given.

/// Docker Hub. It has its official images below `library`.
const HUB: &str = "docker.io";

/// Returns whether both name one image: a missing registry is Docker Hub, a missing tag is `latest`, and a
/// digest counts more than a tag.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    one == other || parts(one) == parts(other)
}

/// Splits a name into registry, path, and tag or digest.
fn parts(reference: &str) -> (&str, String, &str) {
    let (name, digest) =
        reference.split_once('@').map_or((reference, None), |(name, digest)| (name, Some(digest)));
    let (name, tag) = match name.rsplit_once(':') {
        // A colon before a slash precedes the registry's port.
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        Some(_) | None => (name, "latest"),
    };
    let (registry, path) = match name.split_once('/') {
        // Docker's own name for it.
        Some((registry, path)) if registry.strip_prefix("index.") == Some(HUB) => (HUB, path),
        Some((registry, path)) if registry.contains(['.', ':']) || registry == "localhost" => {
            (registry, path)
        }
        Some(_) | None => (HUB, name),
    };
    let is_official = registry == HUB && !path.contains('/');
    let path = if is_official { format!("library/{path}") } else { path.to_owned() };
    (registry, path, digest.unwrap_or(tag))
}

#[cfg(test)]
mod tests {
    use super::{HUB, is_same};

    #[test]
    fn an_image_has_many_names() {
        for (one, other, same) in [
            ("busybox", "docker.io/library/busybox:latest", true),
            ("busybox:1", "docker.io/library/busybox:1", true),
            ("grafana/grafana", "docker.io/grafana/grafana:latest", true),
            ("registry.k8s.io/pause:3.9", "registry.k8s.io/pause:3.9@sha256:ab", false),
            ("registry.k8s.io/pause@sha256:ab", "registry.k8s.io/pause:3.9@sha256:ab", true),
            ("docker.io/busybox:1", "docker.io/library/busybox:1", true),
            ("quay.io/busybox", "quay.io/library/busybox", false),
            ("localhost:5000/a", "localhost:5000/a:latest", true),
            ("localhost/a", "docker.io/localhost/a", false),
            ("busybox:1", "busybox:2", false),
            ("", "busybox", false),
        ] {
            assert_eq!(is_same(one, other), same, "{one} {other}");
        }
        for name in ["busybox", "grafana/grafana"] {
            assert!(is_same(&format!("index.{HUB}/{name}"), name), "{name}");
        }
    }
}
