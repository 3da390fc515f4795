//! What a runtime's list says, and what changed since the list before.

use std::collections::BTreeMap;

use super::message::{Container, ContainerMetadata, Metadata, Sandbox};
use crate::{
    model::{
        fact::{Believed, Described, PodName, Role, Stated},
        id::{ContainerId, PodUid},
        time::Timestamp,
    },
    source::name::{NAME, is_word, named},
};

/// The most sandboxes, and the most containers, that are taken of a list.
pub(super) const MOST: usize = 1 << 14;
/// The longest name of an image that is taken, bytes.
const IMAGE: usize = 1024;

/// The list that was told last.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    told: Option<BTreeMap<ContainerId, Stated>>,
}

/// What changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Changed {
    /// Nothing was told before.
    pub(super) whole: bool,
    pub(super) came: Vec<Stated>,
    pub(super) gone: Vec<ContainerId>,
}

impl Statuses {
    /// The containers that have ended since the list before. How they ended is not in the list.
    pub(super) fn ended<'a>(&self, now: &'a BTreeMap<ContainerId, Stated>) -> Vec<&'a ContainerId> {
        let Some(told) = &self.told else { return Vec::new() };
        let is_over = |it: &Stated| it.state == Believed::Exited;
        let is_new = |it: &Stated| told.get(&it.id).is_none_or(|before| !is_over(before));
        let all = now.values().filter(|it| it.role == Role::Container && is_over(it) && is_new(it));
        all.map(|it| &it.id).collect()
    }

    pub(super) fn tell(&mut self, now: BTreeMap<ContainerId, Stated>) -> Changed {
        let whole = self.told.is_none();
        let before = self.told.take().unwrap_or_default();
        // The code is in no list. The time is measured anew for each one, and is some nanoseconds off.
        let is_same = |it: &Stated, before: &Stated| {
            Stated { exit_code: before.exit_code, made_at: before.made_at, ..it.clone() } == *before
        };
        let is_told = |it: &&Stated| before.get(&it.id).is_some_and(|before| is_same(it, before));
        let came = now.values().filter(|it| !is_told(it)).cloned().collect();
        let gone = before.keys().filter(|id| !now.contains_key(*id)).cloned().collect();
        self.told = Some(now);
        Changed { whole, came, gone }
    }
}

/// What the answers to the two questions say. `boot_wall_ns`: the wall clock's time at boot. None: there are too many.
pub(super) fn stated(
    sandboxes: Vec<Sandbox>,
    containers: Vec<Container>,
    boot_wall_ns: i64,
) -> Option<BTreeMap<ContainerId, Stated>> {
    if sandboxes.len() > MOST || containers.len() > MOST {
        return None;
    }
    let made_at = |wall_ns: i64| {
        Timestamp(wall_ns.checked_sub(boot_wall_ns).and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0))
    };
    let sandboxes = sandboxes.into_iter().filter_map(|it| {
        let state = if it.state == 0 { Believed::Running } else { Believed::Exited };
        let (id, made_at) = (ContainerId::parse(&it.id)?, made_at(it.created_at));
        let described = of_sandbox(it.metadata.unwrap_or_default());
        Some(Stated { id, role: Role::Sandbox, sandbox: None, state, made_at, exit_code: None, described })
    });
    let containers = containers.into_iter().filter_map(|it| {
        let (id, made_at) = (ContainerId::parse(&it.id)?, made_at(it.created_at));
        let (state, sandbox) = (container(it.state), ContainerId::parse(&it.sandbox));
        let described = of_container(it);
        Some(Stated { id, role: Role::Container, sandbox, state, made_at, exit_code: None, described })
    });
    Some(sandboxes.chain(containers).map(|it| (it.id.clone(), it)).collect())
}

fn of_sandbox(it: Metadata) -> Described {
    let Metadata { name, uid, namespace, attempt } = it;
    let uid = PodUid::parse(&uid);
    let pod = named(PodName { namespace: Some(namespace), name: Some(name), uid });
    Described { attempt: Some(attempt), pod, ..Described::default() }
}

/// The labels of a container are those of its pod, which the kubelet gives it.
fn of_container(it: Container) -> Described {
    let Container { metadata, image, mut labels, .. } = it;
    let mut label = |name: &str| labels.remove(&format!("io.kubernetes.pod.{name}"));
    let (namespace, name) = (label("namespace"), label("name"));
    let pod = named(PodName { namespace, name, uid: label("uid").as_deref().and_then(PodUid::parse) });
    let ContainerMetadata { name, attempt } = metadata.unwrap_or_default();
    let image = image.map(|it| it.image).filter(|image| is_word(image, IMAGE));
    Described { name: Some(name).filter(|name| is_word(name, NAME)), attempt: Some(attempt), image, pod }
}

/// `ContainerState`.
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
        Believed, Changed, Container, ContainerId, ContainerMetadata, Described, MOST, Metadata, PodName,
        PodUid, Sandbox, Statuses, Timestamp, stated,
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
        let Changed { whole, came, gone } = statuses.tell(first);
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
        let Changed { whole, came, gone } = statuses.tell(next);
        assert_eq!((whole, came.len(), gone), (false, 1, vec![id("c2")]));
        assert_eq!(came.first().and_then(|it| it.exit_code), Some(137));
        // The next list does not have the code, and says nothing new.
        let next = list(&[("c1", 2)]);
        assert!(statuses.ended(&next).is_empty());
        assert_eq!(statuses.tell(next), Changed { whole: false, came: vec![], gone: vec![] });
    }

    #[test]
    fn a_clock_that_is_read_anew_changes_nothing() {
        let mut statuses = Statuses::default();
        let of = |boot| stated(vec![sandbox(0)], vec![container("c1", 1)], boot).expect("a short list");
        statuses.tell(of(1_000));
        assert_eq!(statuses.tell(of(1_003)).came, []);
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
        let many = (0..=MOST).map(|n| container(&format!("c{n}"), 1)).collect();
        assert_eq!(stated(Vec::new(), many, 0), None);
        let odd = vec![container("", 1), container("../x", 1), container("c1", 77), container("c1", -1)];
        let told = stated(Vec::new(), odd, i64::MIN).expect("a short list");
        assert_eq!(told.values().map(|it| it.state).collect::<Vec<_>>(), [Believed::Unknown]);
    }
}
