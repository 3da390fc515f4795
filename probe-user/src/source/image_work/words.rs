//! What a line of a runtime's or a kubelet's log says of the work for a container.
//!
//! The words are those of containerd (`instrumentedService.PullImage`, `CreateContainer`), of CRI-O (`server/image_pull.go`,
//! `server/container_create.go`) and of the kubelet (`ErrImagePull` with `pull QPS exceeded`). They stand in the message,
//! whatever is around it: logrus' text or JSON, klog, syslog.

/// A step of the work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Said {
    PullBegan {
        key: String,
        image: String,
    },
    /// containerd has the image, and says the digest of its manifest just before it says that the pull is over.
    Pulled {
        image: String,
        manifest: String,
    },
    /// `image` is empty where the line does not name it.
    PullEnded {
        key: String,
        image: String,
        failed: bool,
    },
    CreateBegan {
        key: String,
    },
    CreateEnded {
        key: String,
        container: String,
    },
    /// The kubelet's rate of pulls was exceeded.
    Refused {
        pod: String,
        container: String,
    },
}

/// The longest name that is taken: more is no image's, pod's or request's.
const LONGEST: usize = 1024;

pub(super) fn read(line: &str) -> Option<Said> {
    containerd(line).or_else(|| crio(line)).or_else(|| kubelet(line))
}

fn containerd(line: &str) -> Option<Said> {
    if let Some((image, rest)) = after(line, "PullImage ").and_then(quoted) {
        let (key, image) = (image.to_owned(), image.to_owned());
        return Some(if rest.contains(" returns image reference ") {
            Said::PullEnded { key, image, failed: false }
        } else if rest.contains(" failed") {
            Said::PullEnded { key, image, failed: true }
        } else {
            Said::PullBegan { key, image }
        });
    }
    if let Some((image, rest)) = after(line, "Pulled image ").and_then(quoted) {
        let (digest, _) = after(rest, "repo digest ").and_then(quoted)?;
        let (_, manifest) = digest.split_once('@')?;
        return Some(Said::Pulled { image: image.to_owned(), manifest: manifest.to_owned() });
    }
    let (sandbox, rest) = after(line, "CreateContainer within sandbox ").and_then(quoted)?;
    let (named, rest) = after(rest, "ContainerMetadata{")?.split_once('}')?;
    let key = format!("{sandbox} {named}");
    if key.len() > LONGEST {
        return None;
    }
    match after(rest, " returns container id ") {
        Some(rest) => {
            let (container, _) = quoted(rest)?;
            Some(Said::CreateEnded { key, container: container.to_owned() })
        }
        None if rest.contains(" failed") => Some(Said::CreateEnded { key, container: String::new() }),
        None => Some(Said::CreateBegan { key }),
    }
}

fn crio(line: &str) -> Option<Said> {
    let id = || after(line, " id=").map(|rest| word(rest).to_owned());
    let subject = |words| after(line, words).map(word).filter(|it| !it.is_empty());
    if let Some(image) = subject("Pulling image: ") {
        return Some(Said::PullBegan { key: id()?, image: image.to_owned() });
    }
    if subject("Pulled image: ").is_some() {
        return Some(Said::PullEnded { key: id()?, image: String::new(), failed: false });
    }
    if subject("Creating container: ").is_some() {
        return Some(Said::CreateBegan { key: id()? });
    }
    let container = subject("Created container ")?.strip_suffix(':')?.to_owned();
    Some(Said::CreateEnded { key: id()?, container })
}

fn kubelet(line: &str) -> Option<Said> {
    if !line.contains("pull QPS exceeded") {
        return None;
    }
    let container = after(line, "StartContainer").and_then(|rest| quoted(after(rest, " for ")?));
    let (pod, _) = after(line, " pod=").and_then(quoted)?;
    Some(Said::Refused { pod: pod.to_owned(), container: container?.0.to_owned() })
}

fn after<'a>(line: &'a str, words: &str) -> Option<&'a str> {
    line.split_once(words).map(|(_, rest)| rest)
}

/// The text in quotes at the beginning, however often the line quoted it, and what follows.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let rest = text.trim_start_matches('\\').strip_prefix('"')?;
    let end = rest.find(['\\', '"'])?;
    (0 < end && end <= LONGEST).then(|| (&rest[..end], &rest[end..]))
}

/// Up to a blank or the end of a string.
fn word(text: &str) -> &str {
    let end = text.find([' ', '"', '\\']).unwrap_or(text.len());
    &text[..end.min(text.floor_char_boundary(LONGEST))]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Said, read};

    fn text(value: &str) -> String {
        value.to_owned()
    }

    #[test]
    fn containerd_says_when_a_pull_and_a_creation_begin_and_end() {
        let key = || text("docker.io/library/busybox:1");
        let image = key;
        let began = Said::PullBegan { key: key(), image: image() };
        for line in [
            r#"time="2026-11-21T08:15:03.1Z" level=info msg="PullImage \"docker.io/library/busybox:1\"""#,
            r#"{"level":"info","msg":"PullImage \"docker.io/library/busybox:1\"","time":"2026-11-21T08:15:03.1Z"}"#,
        ] {
            assert_eq!(read(line), Some(began.clone()), "{line}");
        }
        let digest = format!("sha256:{}", "ab".repeat(32));
        let pulled = format!(
            r#"level=info msg="Pulled image \"docker.io/library/busybox:1\" with image id \"sha256:cd\", repo tag \"docker.io/library/busybox:1\", repo digest \"docker.io/library/busybox@{digest}\", size \"2166802\" in 1.5s""#
        );
        assert_eq!(read(&pulled), Some(Said::Pulled { image: image(), manifest: digest }));
        for (line, failed) in [
            (
                r#"msg="PullImage \"docker.io/library/busybox:1\" returns image reference \"sha256:cd\"""#,
                false,
            ),
            (
                r#"level=error msg="PullImage \"docker.io/library/busybox:1\" failed" error="failed to pull""#,
                true,
            ),
        ] {
            assert_eq!(read(line), Some(Said::PullEnded { key: key(), image: image(), failed }), "{line}");
        }
        let key = || text("aa11 Name:main,Attempt:0,");
        let begin = r#"msg="CreateContainer within sandbox \"aa11\" for container &ContainerMetadata{Name:main,Attempt:0,}""#;
        assert_eq!(read(begin), Some(Said::CreateBegan { key: key() }));
        let escaped = r#"{"msg":"CreateContainer within sandbox \"aa11\" for \u0026ContainerMetadata{Name:main,Attempt:0,} returns container id \"bb22\""}"#;
        assert_eq!(read(escaped), Some(Said::CreateEnded { key: key(), container: text("bb22") }));
        let failed = r#"msg="CreateContainer within sandbox \"aa11\" for &ContainerMetadata{Name:main,Attempt:0,} failed" error="no""#;
        assert_eq!(read(failed), Some(Said::CreateEnded { key: key(), container: String::new() }));
    }

    #[test]
    fn cri_o_names_the_request() {
        let line = |words: &str, call| {
            format!(
                r#"time="2026-11-21 09:15:03.98+01:00" level=info msg="{words}" id=7e-1 name=/runtime.v1.{call}"#
            )
        };
        let key = || text("7e-1");
        for (words, said) in [
            ("Pulling image: quay.io/a/b:1", Said::PullBegan { key: key(), image: text("quay.io/a/b:1") }),
            (
                "Pulled image: quay.io/a/b@sha256:ab",
                Said::PullEnded { key: key(), image: String::new(), failed: false },
            ),
            ("Creating container: default/web-0/main", Said::CreateBegan { key: key() }),
            (
                "Created container bb22: default/web-0/main",
                Said::CreateEnded { key: key(), container: text("bb22") },
            ),
        ] {
            assert_eq!(read(&line(words, "RuntimeService/X")), Some(said), "{words}");
        }
        assert_eq!(read("msg=\"Pulling image: quay.io/a/b:1\""), None, "no request is named");
    }

    #[test]
    fn the_kubelet_says_that_it_refused() {
        let line = r#"E1125 09:29:07.1 1234 pod_workers.go:1301] "Error syncing pod, skipping" err="failed to \"StartContainer\" for \"main\" with ErrImagePull: \"pull QPS exceeded\"" pod="default/web-0" podUID="u""#;
        let said = Said::Refused { pod: text("default/web-0"), container: text("main") };
        assert_eq!(read(line), Some(said));
    }

    #[test]
    fn what_only_looks_like_it_says_nothing() {
        for line in [
            r#""PullImage from image service failed" err="rpc error" image="busybox""#,
            r#""Successfully pulled image \"busybox\" in 2s (5s including waiting)""#,
            "PullImage \"\"",
            "CreateContainer within sandbox \"aa\" for",
            "pull QPS exceeded",
            "",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_line_is_too_strange(any: String, tail: String) {
            read(&any);
            for words in ["PullImage \"", "Pulled image \"x\"", "CreateContainer within sandbox \"a\"", "Pulling image: "] {
                read(&format!("{words}{tail}"));
            }
        }
    }
}
