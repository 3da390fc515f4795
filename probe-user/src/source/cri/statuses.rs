//! What a runtime's list says, and what changed since the list before.

use std::collections::BTreeMap;

use super::message::{Container, Sandbox};
use crate::model::{
    fact::{Believed, Role, Stated},
    id::ContainerId,
    time::Timestamp,
};

/// The most sandboxes, and the most containers, that are taken of a list.
pub(super) const MOST: usize = 1 << 14;

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
        Some(Stated { id, role: Role::Sandbox, sandbox: None, state, made_at, exit_code: None })
    });
    let containers = containers.into_iter().filter_map(|it| {
        let (id, made_at) = (ContainerId::parse(&it.id)?, made_at(it.created_at));
        let (state, sandbox) = (container(it.state), ContainerId::parse(&it.sandbox));
        Some(Stated { id, role: Role::Container, sandbox, state, made_at, exit_code: None })
    });
    Some(sandboxes.chain(containers).map(|it| (it.id.clone(), it)).collect())
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
    use super::{Believed, Changed, Container, ContainerId, MOST, Sandbox, Statuses, Timestamp, stated};

    fn container(id: &str, state: i32) -> Container {
        Container { id: id.to_owned(), sandbox: "s1".to_owned(), state, created_at: 1_500 }
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
    fn strange_lists_are_bounded() {
        let many = (0..=MOST).map(|n| container(&format!("c{n}"), 1)).collect();
        assert_eq!(stated(Vec::new(), many, 0), None);
        let odd = vec![container("", 1), container("../x", 1), container("c1", 77), container("c1", -1)];
        let told = stated(Vec::new(), odd, i64::MIN).expect("a short list");
        assert_eq!(told.values().map(|it| it.state).collect::<Vec<_>>(), [Believed::Unknown]);
    }
}
