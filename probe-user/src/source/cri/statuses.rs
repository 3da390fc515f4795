//! The contents of a runtime's list, and what changed since the list before.

use std::collections::BTreeMap;

use super::message::{Container, ContainerMetadata, Metadata, Sandbox};
use crate::{
    model::{
        fact::{Believed, Described, PodName, Role, Stated},
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
    source::cri::name::{NAME, is_word, named},
};

/// A list with more sandboxes, or with more containers, is refused.
pub(super) const MAX_ITEMS: usize = 1 << 14;
/// A longer name of an image is ignored, bytes.
const MAX_IMAGE_BYTES: usize = 1024;

/// The list that was reported last.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    last: Option<BTreeMap<ContainerId, Stated>>,
}

/// What changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Changed {
    /// Nothing was reported before.
    pub(super) whole: bool,
    pub(super) came: Vec<Stated>,
    pub(super) gone: Vec<ContainerId>,
}

impl Statuses {
    /// Returns the containers that have ended since the list before. The list does not have their exit codes.
    pub(super) fn ended<'a>(&self, now: &'a BTreeMap<ContainerId, Stated>) -> Vec<&'a ContainerId> {
        let Some(before) = &self.last else { return Vec::new() };
        let ended = now.values().filter(|it| it.role == Role::Container && it.state == Believed::Exited);
        let new = ended.filter(|it| before.get(&it.id).is_none_or(|before| before.state != Believed::Exited));
        new.map(|it| &it.id).collect()
    }

    /// Replaces the list. Returns what changed.
    pub(super) fn update(&mut self, now: BTreeMap<ContainerId, Stated>) -> Changed {
        let whole = self.last.is_none();
        let before = self.last.take().unwrap_or_default();
        let came = now.values().filter(|it| before.get(&it.id).is_none_or(|before| !is_same(it, before)));
        let came = came.cloned().collect();
        let gone = before.keys().filter(|id| !now.contains_key(*id)).cloned().collect();
        self.last = Some(now);
        Changed { whole, came, gone }
    }
}

/// Compares two entries. No list has the exit code, and the time is computed anew for each list and some
/// nanoseconds off.
fn is_same(it: &Stated, before: &Stated) -> bool {
    Stated { exit_code: before.exit_code, made_at: before.made_at, ..it.clone() } == *before
}

/// Joins the answers to the two questions. `boot_wall_ns`: the wall clock's time at boot. `None` if there are
/// too many entries.
pub(super) fn stated(
    sandboxes: Vec<Sandbox>,
    containers: Vec<Container>,
    boot_wall_ns: i64,
) -> Option<BTreeMap<ContainerId, Stated>> {
    if sandboxes.len() > MAX_ITEMS || containers.len() > MAX_ITEMS {
        return None;
    }
    let sandboxes = sandboxes.into_iter().filter_map(|it| {
        let state = if it.state == 0 { Believed::Running } else { Believed::Exited };
        let id = ContainerId::parse(&it.id)?;
        let made_at = boot_time(it.created_at, boot_wall_ns);
        let described = of_sandbox(it.metadata.unwrap_or_default());
        Some(Stated { id, role: Role::Sandbox, sandbox: None, state, made_at, exit_code: None, described })
    });
    let containers = containers.into_iter().filter_map(|it| {
        let id = ContainerId::parse(&it.id)?;
        let made_at = boot_time(it.created_at, boot_wall_ns);
        let state = container(it.state);
        let sandbox = ContainerId::parse(&it.sandbox);
        let described = of_container(it);
        Some(Stated { id, role: Role::Container, sandbox, state, made_at, exit_code: None, described })
    });
    Some(sandboxes.chain(containers).map(|it| (it.id.clone(), it)).collect())
}

fn boot_time(wall_ns: i64, boot_wall_ns: i64) -> Timestamp {
    Timestamp(wall_ns.checked_sub(boot_wall_ns).and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0))
}

fn of_sandbox(it: Metadata) -> Described {
    let Metadata { name, uid, namespace, attempt } = it;
    let uid = PodUid::parse(&uid);
    let pod = named(PodName { namespace: Some(namespace), name: Some(name), uid });
    Described { attempt: Some(attempt), pod, ..Described::default() }
}

/// Describes a container. The kubelet labels it with its pod.
fn of_container(it: Container) -> Described {
    let Container { metadata, image, mut labels, .. } = it;
    let pod = named(PodName {
        namespace: labels.remove("io.kubernetes.pod.namespace"),
        name: labels.remove("io.kubernetes.pod.name"),
        uid: labels.remove("io.kubernetes.pod.uid").as_deref().and_then(PodUid::parse),
    });
    let ContainerMetadata { name, attempt } = metadata.unwrap_or_default();
    let image = image.map(|it| it.image).filter(|image| is_word(image, MAX_IMAGE_BYTES));
    Described { name: Some(name).filter(|name| is_word(name, NAME)), attempt: Some(attempt), image, pod }
}

/// Converts a `ContainerState`.
pub(super) fn container(state: i32) -> Believed {
    match state {
        0 => Believed::Created,
        1 => Believed::Running,
        2 => Believed::Exited,
        _ => Believed::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Believed, Changed, Container, ContainerId, ContainerMetadata, Described, MAX_ITEMS, Metadata,
        PodName, PodUid, Sandbox, Statuses, Timestamp, stated,
    };
    use crate::source::cri::message::ImageSpec;

    fn container(id: &str, state: i32) -> Container {
        Container {
            id: id.to_owned(),
            sandbox: "s1".to_owned(),
            state,
            created_at: 1_500,
            ..Container::default()
        }
    }

    fn sandbox(state: i32) -> Sandbox {
        Sandbox { id: "s1".to_owned(), metadata: None, state, created_at: 400 }
    }

    fn id(text: &str) -> ContainerId {
        ContainerId::parse(text).expect("an id")
    }

    #[test]
    fn a_list_is_told_whole_once_and_then_what_changed() {
        let mut statuses = Statuses::default();
        let list = |containers: &[(&str, i32)]| {
            let containers = containers.iter().map(|(id, state)| container(id, *state)).collect();
            stated(vec![sandbox(0)], containers, 1_000).expect("a short list")
        };
        let first = list(&[("c1", 1), ("c2", 0)]);
        assert!(statuses.ended(&first).is_empty());
        let Changed { whole, came, gone } = statuses.update(first);
        let told: Vec<_> = came.iter().map(|it| (it.id.as_str(), it.state, it.made_at)).collect();
        let [made, before] = [Timestamp(500), Timestamp::ZERO];
        assert_eq!(
            told,
            [
                ("c1", Believed::Running, made),
                ("c2", Believed::Created, made),
                ("s1", Believed::Running, before)
            ]
        );
        assert!(whole && gone.is_empty());

        let mut next = list(&[("c1", 2)]);
        assert_eq!(statuses.ended(&next), [&id("c1")]);
        next.get_mut(&id("c1")).expect("a container").exit_code = Some(137);
        let Changed { whole, came, gone } = statuses.update(next);
        assert_eq!((whole, came.len(), gone), (false, 1, vec![id("c2")]));
        assert_eq!(came.first().and_then(|it| it.exit_code), Some(137));
        // The next list does not have the code, and says nothing new.
        let next = list(&[("c1", 2)]);
        assert!(statuses.ended(&next).is_empty());
        assert_eq!(statuses.update(next), Changed { whole: false, came: vec![], gone: vec![] });
    }

    #[test]
    fn a_clock_that_is_read_anew_changes_nothing() {
        let mut statuses = Statuses::default();
        let of = |boot| stated(vec![sandbox(0)], vec![container("c1", 1)], boot).expect("a short list");
        statuses.update(of(1_000));
        assert_eq!(statuses.update(of(1_003)).came, []);
    }

    #[test]
    fn names_attempts_images_and_labels_are_told() {
        let uid = "00000000-0142-4000-8000-0000000be11e";
        let labels =
            [("pod.name", "web-0"), ("pod.namespace", "default"), ("pod.uid", uid), ("container.name", "x")];
        let labels = labels.map(|(key, value)| (format!("io.kubernetes.{key}"), value.to_owned()));
        let main = Container {
            metadata: Some(ContainerMetadata { name: "main".to_owned(), attempt: 3 }),
            image: Some(ImageSpec { image: "registry.example/web:1".to_owned() }),
            labels: labels.into_iter().collect(),
            ..container("c1", 1)
        };
        let odd = Container {
            metadata: Some(ContainerMetadata { name: "a\u{1b}[2J".to_owned(), attempt: 0 }),
            image: Some(ImageSpec { image: "x".repeat(1025) }),
            ..container("c2", 1)
        };
        let of_pod = Metadata {
            name: "web-0".to_owned(),
            uid: uid.to_owned(),
            namespace: "default".to_owned(),
            attempt: 1,
        };
        let told = stated(vec![Sandbox { metadata: Some(of_pod), ..sandbox(0) }], vec![main, odd], 0);
        let told = told.expect("a short list");
        let pod = Some(PodName {
            namespace: Some("default".to_owned()),
            name: Some("web-0".to_owned()),
            uid: PodUid::parse(uid),
        });
        let described: Vec<_> = told.into_values().map(|it| it.described).collect();
        let [main, odd, sandbox] = &described[..] else { panic!("{described:?}") };
        assert_eq!(*sandbox, Described { attempt: Some(1), pod: pod.clone(), ..Described::default() });
        let [name, image] = ["main", "registry.example/web:1"].map(|text| Some(text.to_owned()));
        assert_eq!(*main, Described { name, attempt: Some(3), image, pod });
        assert_eq!(*odd, Described { attempt: Some(0), ..Described::default() });
    }

    #[test]
    fn strange_lists_are_bounded() {
        let many = (0..=MAX_ITEMS).map(|n| container(&format!("c{n}"), 1)).collect();
        assert_eq!(stated(Vec::new(), many, 0), None);
        let odd = vec![container("", 1), container("../x", 1), container("c1", 77), container("c1", -1)];
        let told = stated(Vec::new(), odd, i64::MIN).expect("a short list");
        assert_eq!(told.values().map(|it| it.state).collect::<Vec<_>>(), [Believed::Unknown]);
    }
}
