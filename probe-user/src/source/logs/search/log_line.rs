//! Parses the lines of a runtime's or a kubelet's log about the work for a container.
//!
//! The lines are written by containerd (`instrumentedService.PullImage`, `CreateContainer`), by CRI-O
//! (`server/image_pull.go`, `server/container_create.go`) and by the kubelet (`PullImage from image service
//! failed`, and `SyncError` of the action `StartContainer`). Only the message is parsed, whatever is around
//! it: logrus' text or JSON, klog, syslog.

use probe_common::runtime::Kind;

/// A step of the work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// The runtime started, so all its earlier work has ended.
    RuntimeBegan {
        by: Kind,
    },
    PullBegan {
        by: Kind,
        key: String,
        image: String,
    },
    /// containerd has the image. It logs the digest of the manifest just before it logs that the pull is
    /// over.
    Pulled {
        image: String,
        manifest: String,
    },
    /// `image` is empty if the line does not name it.
    PullEnded {
        by: Kind,
        key: String,
        image: String,
        failed: bool,
    },
    /// `of`: CRI-O's name of the container, `NAMESPACE/POD/NAME`. For containerd the key identifies the
    /// container.
    CreateBegan {
        by: Kind,
        key: String,
        of: String,
    },
    CreateEnded {
        by: Kind,
        key: String,
        container: String,
    },
    /// The runtime reported to the kubelet that a pull failed.
    PullFailed {
        image: String,
    },
    /// The kubelet could not start a container.
    NotStarted {
        pod: String,
        container: String,
        why: Why,
    },
}

/// Why the kubelet could not start a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// The kubelet's rate of pulls was exceeded.
    Refused,
    PullFailed,
    CreateFailed,
    /// It had not read the Services yet, which the container's environment names.
    ServicesUnread,
}

/// A longer name is ignored: no image, pod or request has it.
const MAX_NAME_BYTES: usize = 1024;
/// The errors with which the kubelet gives up a pull. In the pauses between two pulls it reports
/// `ImagePullBackOff`.
const PULL_ERRORS: [&str; 3] = ["ErrImagePull", "RegistryUnavailable", "SignatureValidationFailed"];

impl Step {
    /// Returns whether this is a step of a runtime's work for pods. The start of a runtime is not: other
    /// runtimes start too.
    pub(super) fn is_runtimes_work(&self) -> bool {
        !matches!(self, Self::RuntimeBegan { .. } | Self::PullFailed { .. } | Self::NotStarted { .. })
    }
}

/// Parses a line. A line of the kubelet may be about several containers.
pub(super) fn read(line: &str) -> Vec<Step> {
    match containerd(line).or_else(|| crio(line)).or_else(|| pull_failed(line)) {
        Some(said) => vec![said],
        None => not_started(line).unwrap_or_default(),
    }
}

fn containerd(line: &str) -> Option<Step> {
    let by = Kind::Containerd;
    if line.contains("\"starting containerd\"") {
        return Some(Step::RuntimeBegan { by });
    }
    if let Some((image, rest)) = after(line, "PullImage ").and_then(quoted) {
        let key = image.to_owned();
        let image = image.to_owned();
        return if rest.starts_with(" returns image reference ") {
            Some(Step::PullEnded { by, key, image, failed: false })
        } else if rest.starts_with(" failed") {
            Some(Step::PullEnded { by, key, image, failed: true })
        } else if rest.starts_with(" with snapshotter ") {
            // This is logged at the level `debug`, after the line about the begin.
            None
        } else {
            Some(Step::PullBegan { by, key, image })
        };
    }
    if let Some((image, rest)) = after(line, "Pulled image ").and_then(quoted) {
        let (digest, _) = after(rest, "repo digest ").and_then(quoted)?;
        let (_, manifest) = digest.split_once('@')?;
        return Some(Step::Pulled { image: image.to_owned(), manifest: manifest.to_owned() });
    }
    let (sandbox, rest) = after(line, "CreateContainer within sandbox ").and_then(quoted)?;
    let (name, rest) = match after(rest, "ContainerMetadata{Name:") {
        Some(rest) => rest.split_once(',')?,
        // From 2.2 on this is protobuf's text, which leaves out the attempt 0, and has one or two blanks
        // between members.
        None => quoted(after(rest, " name:")?)?,
    };
    let attempt = ["Attempt:", "attempt:"].iter().find_map(|member| rest.trim_start().strip_prefix(member));
    let attempt =
        attempt.map_or("0", |rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or(rest));
    let key = format!("{sandbox} {name} {attempt}");
    if key.len() > MAX_NAME_BYTES {
        return None;
    }
    match after(rest, " returns container id ") {
        Some(rest) => {
            let (container, _) = quoted(rest)?;
            Some(Step::CreateEnded { by, key, container: container.to_owned() })
        }
        None if rest.contains(" failed") => Some(Step::CreateEnded { by, key, container: String::new() }),
        None => Some(Step::CreateBegan { by, key, of: String::new() }),
    }
}

fn crio(line: &str) -> Option<Step> {
    let by = Kind::Crio;
    if line.contains("Starting CRI-O, version") {
        return Some(Step::RuntimeBegan { by });
    }
    if let Some(image) = subject(line, "Pulling image: ") {
        return Some(Step::PullBegan { by, key: request(line)?, image: image.to_owned() });
    }
    if subject(line, "Pulled image: ").is_some() {
        return Some(Step::PullEnded { by, key: request(line)?, image: String::new(), failed: false });
    }
    if let Some(of) = subject(line, "Creating container: ") {
        return Some(Step::CreateBegan { by, key: request(line)?, of: of.to_owned() });
    }
    let container = subject(line, "Created container ")?.strip_suffix(':')?.to_owned();
    Some(Step::CreateEnded { by, key: request(line)?, container })
}

/// Returns the id of CRI-O's request.
fn request(line: &str) -> Option<String> {
    after(line, " id=").map(|rest| word(rest).to_owned())
}

/// Returns the word after these words.
fn subject<'a>(line: &'a str, words: &str) -> Option<&'a str> {
    after(line, words).map(word).filter(|it| !it.is_empty())
}

fn pull_failed(line: &str) -> Option<Step> {
    let rest = after(line, "PullImage from image service failed")?;
    let (image, _) = quoted(rest.rsplit_once(" image=")?.1)?;
    Some(Step::PullFailed { image: image.to_owned() })
}

/// Parses the kubelet's line about the containers of a pod that it could not start.
fn not_started(line: &str) -> Option<Vec<Step>> {
    let (errors, pod) = line.rsplit_once(" pod=")?;
    let (pod, _) = quoted(pod)?;
    let each = errors.split("StartContainer").skip(1).filter_map(|error| {
        let (container, rest) = quoted(error.trim_start_matches(['\\', '"']).strip_prefix(" for ")?)?;
        let (kind, message) = rest.strip_prefix(" with ")?.split_once(": ")?;
        let why = match kind {
            "CreateContainerError" => Why::CreateFailed,
            "CreateContainerConfigError" if message.contains("services have not yet been read") => {
                Why::ServicesUnread
            }
            _ if !PULL_ERRORS.contains(&kind) => return None,
            _ if message.contains("pull QPS exceeded") => Why::Refused,
            _ => Why::PullFailed,
        };
        Some(Step::NotStarted { pod: pod.to_owned(), container: container.to_owned(), why })
    });
    Some(each.collect())
}

fn after<'a>(line: &'a str, words: &str) -> Option<&'a str> {
    line.split_once(words).map(|(_, rest)| rest)
}

/// Splits off the quoted text at the beginning, however often it was quoted. Returns it and the rest after
/// the quotes.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let rest = text.trim_start_matches('\\').strip_prefix('"')?;
    let end = rest.find(['\\', '"'])?;
    (0 < end && end <= MAX_NAME_BYTES).then(|| (&rest[..end], rest[end..].trim_start_matches(['\\', '"'])))
}

/// Returns the text up to a blank or the end of a string.
fn word(text: &str) -> &str {
    let end = text.find([' ', '"', '\\']).unwrap_or(text.len());
    &text[..end.min(text.floor_char_boundary(MAX_NAME_BYTES))]
}

#[cfg(test)]
mod tests {
    use probe_common::runtime::Kind;
    use proptest::prelude::*;

    use super::{Step, Why, read};

    fn text(value: &str) -> String {
        value.to_owned()
    }

    #[test]
    fn containerd_says_when_a_pull_and_a_creation_begin_and_end() {
        let by = Kind::Containerd;
        let key = || text("docker.io/library/busybox:1");
        let image = key;
        let began = [Step::PullBegan { by, key: key(), image: image() }];
        for line in [
            r#"time="2026-11-21T08:15:03.1Z" level=info msg="PullImage \"docker.io/library/busybox:1\"""#,
            r#"{"level":"info","msg":"PullImage \"docker.io/library/busybox:1\"","time":"2026-11-21T08:15:03.1Z"}"#,
        ] {
            assert_eq!(read(line), began, "{line}");
        }
        let digest = format!("sha256:{}", "ab".repeat(32));
        let pulled = format!(
            r#"level=info msg="Pulled image \"docker.io/library/busybox:1\" with image id \"sha256:cd\", repo tag \"docker.io/library/busybox:1\", repo digest \"docker.io/library/busybox@{digest}\", size \"2166802\" in 1.5s""#
        );
        assert_eq!(read(&pulled), [Step::Pulled { image: image(), manifest: digest }]);
        for (line, failed) in [
            (
                r#"msg="PullImage \"docker.io/library/busybox:1\" returns image reference \"sha256:cd\"""#,
                false,
            ),
            (
                r#"level=error msg="PullImage \"docker.io/library/busybox:1\" failed" error="failed to pull""#,
                true,
            ),
            (r#"{"error":"no","msg":"PullImage \"docker.io/library/busybox:1\" failed"}"#, true),
        ] {
            assert_eq!(read(line), [Step::PullEnded { by, key: key(), image: image(), failed }], "{line}");
        }
    }

    #[test]
    fn each_containerd_names_the_container_in_its_own_way() {
        let by = Kind::Containerd;
        for (attempt, metadata) in [
            ("0", "&ContainerMetadata{Name:main,Attempt:0,}"),
            ("20", r"\u0026ContainerMetadata{Name:main,Attempt:20,}"),
            ("0", r#"name:\"main\""#),
            ("20", r#"name:\"main\" attempt:20"#),
            ("20", r#"name:\"main\"  attempt:20"#),
        ] {
            let key = || format!("aa11 main {attempt}");
            let line = |words: &str, end: &str| {
                format!(r#"msg="CreateContainer within sandbox \"aa11\" for {words}{metadata}{end}"#)
            };
            let began = Step::CreateBegan { by, key: key(), of: String::new() };
            assert_eq!(read(&line("container ", "\"")), [began], "{metadata}");
            let ended = |container| [Step::CreateEnded { by, key: key(), container: text(container) }];
            let line = |end| line("", end);
            assert_eq!(read(&line(r#" returns container id \"bb22\"""#)), ended("bb22"), "{metadata}");
            assert_eq!(read(&line(r#" failed" error="attempt:3""#)), ended(""), "{metadata}");
        }
    }

    #[test]
    fn cri_o_names_the_request() {
        let by = Kind::Crio;
        let line = |words: &str, call| {
            format!(
                r#"time="2026-11-21 09:15:03.98+01:00" level=info msg="{words}" id=7e-1 name=/runtime.v1.{call}"#
            )
        };
        let key = || text("7e-1");
        for (words, said) in [
            (
                "Pulling image: quay.io/a/b:1",
                Step::PullBegan { by, key: key(), image: text("quay.io/a/b:1") },
            ),
            (
                "Pulled image: quay.io/a/b@sha256:ab",
                Step::PullEnded { by, key: key(), image: String::new(), failed: false },
            ),
            (
                "Creating container: default/web-0/main",
                Step::CreateBegan { by, key: key(), of: text("default/web-0/main") },
            ),
            (
                "Created container bb22: default/web-0/main",
                Step::CreateEnded { by, key: key(), container: text("bb22") },
            ),
        ] {
            assert_eq!(read(&line(words, "RuntimeService/X")), [said], "{words}");
        }
        assert_eq!(read("msg=\"Pulling image: quay.io/a/b:1\""), [], "no request is named");
    }

    #[test]
    fn a_runtime_says_that_it_begins() {
        for (by, line) in [
            (Kind::Containerd, r#"level=info msg="starting containerd" revision=ab version=2.1.4"#),
            (Kind::Containerd, r#"{"level":"info","msg":"starting containerd","version":"2.1.4"}"#),
            (Kind::Crio, r#"level=info msg="Starting CRI-O, version: 1.33.2, git: ab(clean)""#),
        ] {
            assert_eq!(read(line), [Step::RuntimeBegan { by }], "{line}");
        }
    }

    /// Returns the kubelet's line of these errors.
    fn sync(errors: &str) -> String {
        let pod = r#"pod="default/web-0" podUID="u""#;
        format!(
            r#"E1125 09:29:07.1 1234 pod_workers.go:1301] "Error syncing pod, skipping" err="{errors}" {pod}"#
        )
    }

    fn not_started(container: &str, why: Why) -> Step {
        Step::NotStarted { pod: text("default/web-0"), container: text(container), why }
    }

    #[test]
    fn the_kubelet_says_which_container_it_could_not_start() {
        let refused = r#"failed to \"StartContainer\" for \"main\" with ErrImagePull: \"pull QPS exceeded\""#;
        assert_eq!(read(&sync(refused)), [not_started("main", Why::Refused)]);
        let several = r#"[failed to \"StartContainer\" for \"a\" with CrashLoopBackOff: \"back-off 10s restarting failed container=a pod=web-0_default(u)\", failed to \"StartContainer\" for \"b\" with ErrImagePull: \"pull QPS exceeded\", failed to \"StartContainer\" for \"c\" with ErrImagePull: \"rpc error: code = NotFound\", failed to \"StartContainer\" for \"d\" with RegistryUnavailable: \"no route\", failed to \"StartContainer\" for \"e\" with CreateContainerError: \"no\"]"#;
        let said = [
            not_started("b", Why::Refused),
            not_started("c", Why::PullFailed),
            not_started("d", Why::PullFailed),
            not_started("e", Why::CreateFailed),
        ];
        assert_eq!(read(&sync(several)), said);
        let config = |why| {
            sync(&format!(
                r#"failed to \"StartContainer\" for \"main\" with CreateContainerConfigError: \"{why}\""#
            ))
        };
        let unread = config("services have not yet been read at least once, cannot construct envvars");
        assert_eq!(read(&unread), [not_started("main", Why::ServicesUnread)]);
        assert_eq!(read(&config(r#"secret \\\"db\\\" not found"#)), []);
        // In the pause after it, since Kubernetes 1.32.
        let paused = r#"failed to \"StartContainer\" for \"main\" with ImagePullBackOff: \"Back-off pulling image \\\"x\\\": ErrImagePull: pull QPS exceeded\""#;
        assert_eq!(read(&sync(paused)), []);
    }

    #[test]
    fn the_kubelet_says_that_the_runtime_could_not_pull() {
        let line = r#"E1125 09:29:07.1 1234 log.go:32] "PullImage from image service failed" err="rpc error: code = Unknown desc = reading manifest image=\"x\"" image="quay.io/bad:1""#;
        assert_eq!(read(line), [Step::PullFailed { image: text("quay.io/bad:1") }]);
    }

    #[test]
    fn what_only_looks_like_it_says_nothing() {
        for line in [
            r#"level=debug msg="PullImage \"busybox\" with snapshotter overlayfs using transfer service""#,
            r#""Successfully pulled image \"busybox\" in 2s (5s including waiting)""#,
            "PullImage \"\"",
            "PullImage from image service failed",
            "CreateContainer within sandbox \"aa\" for",
            "pull QPS exceeded",
            "StartContainer pod=\"default/web-0\"",
            "",
        ] {
            assert_eq!(read(line), [], "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_line_is_too_strange(any: String, tail: String) {
            read(&any);
            for words in [
                "PullImage \"", "Pulled image \"x\"", "CreateContainer within sandbox \"a\" for name:\"b\"",
                "Pulling image: ", "PullImage from image service failed image=", "\"StartContainer\" for \"a\" with ",
            ] {
                read(&format!("{words}{tail}"));
                read(&format!("{words}{tail} pod=\"a/b\""));
            }
        }
    }
}
