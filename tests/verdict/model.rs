//! Histories by the dice: what kubelets, runtimes, people and the kernel may do to sandboxes, in any order that is
//! possible. The truth is what the IPAM holds in the end, and who did what.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use probe_user::model::{
    change::Finding,
    finding::{Kind, OutOfOrder, Stage, TeardownOutOfOrder},
    id::ContainerId,
};
use proptest::{prelude::*, test_runner::TestCaseError};

use crate::{
    drive::Drive,
    sim::{Add, Death, Del, Sim},
    way::{shaken, torn},
};

/// What may happen next; a number chooses among the sandboxes to which it can happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Turn {
    Begin { pod: u8, network: u8, add: AddTurn },
    Start { which: u8 },
    Exit { which: u8, code: u8 },
    Stop { which: u8, del: DelTurn },
    Remove { which: u8, del: DelTurn },
    Kill { which: u8, by: u8 },
    LoseNetns { which: u8 },
    RestartRuntime,
    RestartKubelet,
    RestartAgent,
    Wait { seconds: u8 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum AddTurn {
    Succeeds,
    Fails,
    FailsHolding,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum DelTurn {
    Succeeds,
    Fails,
    Missing,
}

const NETWORKS: [&str; 2] = ["podnet", "keynet"];
/// Long enough for every grace, and short enough that nothing is forgotten.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// What is true of one sandbox.
#[derive(Clone, Debug, Default)]
struct Truth {
    pod: String,
    connected: bool,
    lives: bool,
    stopped: bool,
    removed: bool,
    running: bool,
    ran: bool,
    /// Something other than its runtime ended it, while the runtime had not begun to.
    out_of_order: bool,
}

pub(crate) struct History {
    pub(crate) drive: Drive,
    all: BTreeMap<String, Truth>,
    next: u32,
}

impl History {
    pub(crate) fn new() -> Self {
        let mut sim = Sim::new();
        sim.runtime_starts();
        sim.kubelet_starts();
        Self { drive: Drive::new(sim), all: BTreeMap::new(), next: 0 }
    }

    pub(crate) fn play(&mut self, turns: &[Turn]) {
        for turn in turns {
            self.turn(*turn);
            let now = self.drive.sim.now();
            self.drive.pass_to(now + Duration::from_millis(250));
        }
    }

    fn turn(&mut self, turn: Turn) {
        let sim = &mut self.drive.sim;
        match turn {
            Turn::Begin { pod, network, add } => {
                self.next += 1;
                let (name, pod) = (format!("s{}", self.next), format!("pod-{}", pod % 6));
                // A kubelet makes a pod's next sandbox when the last is over.
                if self.all.values().any(|it| it.pod == pod && it.lives) {
                    return;
                }
                let network = NETWORKS[usize::from(network) % NETWORKS.len()];
                let address = free(sim, network);
                sim.sandbox_begins(&name, &pod);
                let (add, connected) = match add {
                    AddTurn::Succeeds => (Add::Succeeds, true),
                    AddTurn::Fails => (Add::Fails, false),
                    AddTurn::FailsHolding => (Add::FailsHolding, false),
                };
                sim.add(&name, network, &[address], add);
                if connected {
                    sim.sandbox_runs(&name);
                } else {
                    sim.netns_file_goes(&name);
                }
                let row = Truth { pod, connected, lives: connected, removed: !connected, ..Truth::default() };
                self.all.insert(name, Truth { stopped: !connected, ..row });
            }
            Turn::Start { which } => {
                if let Some((name, row)) = self.pick(which, |it| it.lives && !it.running) {
                    (row.running, row.ran) = (true, true);
                    self.drive.sim.container_starts("main", &name);
                }
            }
            Turn::Exit { which, code } => {
                if let Some((name, row)) = self.pick(which, |it| it.lives && it.running) {
                    row.running = false;
                    self.drive.sim.container_exits("main", &name, u32::from(code % 3));
                }
            }
            Turn::Stop { which, del } => {
                if let Some((name, row)) = self.pick(which, |it| !it.removed && !it.stopped) {
                    (row.lives, row.stopped, row.running) = (false, true, false);
                    self.drive.sim.stop(&name, del_of(del));
                }
            }
            Turn::Remove { which, del } => {
                if let Some((name, row)) = self.pick(which, |it| it.stopped && !it.removed) {
                    row.removed = true;
                    self.drive.sim.remove(&name, del_of(del));
                }
            }
            Turn::Kill { which, by } => {
                if let Some((name, row)) = self.pick(which, |it| it.lives) {
                    (row.lives, row.out_of_order, row.running) = (false, true, false);
                    let by = [Death::Kubelet, Death::Stranger, Death::OutOfMemory][usize::from(by) % 3];
                    self.drive.sim.pause_dies(&name, by);
                }
            }
            Turn::LoseNetns { which } => {
                if let Some((name, row)) = self.pick(which, |it| !it.removed && !it.stopped && !it.lives) {
                    row.out_of_order = true;
                    self.drive.sim.netns_file_goes(&name);
                }
            }
            Turn::RestartRuntime => {
                sim.runtime_dies();
                sim.runtime_starts();
            }
            Turn::RestartKubelet => {
                sim.kubelet_dies();
                sim.kubelet_starts();
            }
            Turn::RestartAgent => {
                let now = self.drive.sim.now();
                self.drive.restart(now);
            }
            Turn::Wait { seconds } => {
                let now = sim.now();
                self.drive.pass_to(now + Duration::from_secs(u64::from(seconds)));
            }
        }
    }

    fn pick(&mut self, which: u8, can: impl Fn(&Truth) -> bool) -> Option<(String, &mut Truth)> {
        let count = self.all.values().filter(|row| can(row)).count();
        let place = usize::from(which) % count.max(1);
        let (name, row) = self.all.iter_mut().filter(|(_, row)| can(row)).nth(place)?;
        Some((name.clone(), row))
    }

    pub(crate) fn end(&mut self) {
        let now = self.drive.sim.now();
        self.drive.pass_to(now + PATIENCE);
    }

    /// What the IPAM holds for sandboxes that their runtime has forgotten and that do not live.
    fn leaks(&self) -> BTreeSet<(IpAddr, ContainerId)> {
        let sim = &self.drive.sim;
        let lives = |id: &ContainerId| sim.name_of(id).is_some_and(|name| self.all[name].lives);
        let held = sim.held.iter().map(|((_, address), (id, _))| (*address, id.clone()));
        held.filter(|(_, id)| !sim.is_kept(id) && !lives(id)).collect()
    }

    fn truth_of(&self, it: &Finding) -> Option<&Truth> {
        self.all.get(self.drive.sim.name_of(it.sandboxes.last()?)?)
    }

    /// Every finding that was confirmed, and is not closed, is true.
    pub(crate) fn nothing_is_invented(&self) -> Result<(), TestCaseError> {
        let leaks = self.leaks();
        for it in self.drive.told.iter().filter(|it| it.stage == Stage::Confirmed) {
            let is_true = match &it.kind {
                Kind::LeakedAddress(leak) => {
                    it.sandboxes.first().is_some_and(|id| leaks.contains(&(leak.address, id.clone())))
                }
                Kind::TeardownOutOfOrder(TeardownOutOfOrder { how, .. }) => {
                    let row = self.truth_of(it);
                    row.is_some_and(|row| row.out_of_order && (*how != OutOfOrder::NetnsGone || !row.lives))
                }
                // What cannot be seen is told, and losses are made here.
                Kind::BlindSpot(_) => true,
                Kind::CniFailing(_) => self.all.values().any(|row| !row.connected),
                // A pod is made again and again here, and some of its sandboxes run nothing.
                Kind::DuplicateSandbox(_) => self.truth_of(it).is_some_and(|row| !row.ran),
                Kind::PoolExhaustion(_) => !leaks.is_empty(),
                // No pod's cgroup is ever removed here.
                Kind::StuckCgroup(_) => {
                    let pod = it.pod.as_ref().and_then(|pod| pod.name.as_deref());
                    self.all.values().filter(|row| Some(row.pod.as_str()) == pod).all(|row| row.removed)
                }
                Kind::OrphanSandbox(_)
                | Kind::OrphanNetns(_)
                | Kind::AbandonedStore(_)
                | Kind::UnverifiedRelease(_)
                | Kind::StuckNetnsTeardown(_)
                | Kind::DuplicateContainer(_)
                | Kind::DuplicateAddress(_)
                | Kind::CniSlow(_)
                | Kind::CniQueue(_) => false,
            };
            prop_assert!(is_true, "invented: {} of {:?}", it.key, self.all);
        }
        Ok(())
    }

    /// Every leak and every teardown out of order was confirmed.
    fn nothing_is_missed(&self) -> Result<(), TestCaseError> {
        let confirmed = || self.drive.told.iter().filter(|it| it.confirmed_at.is_some());
        for (address, id) in self.leaks() {
            let is_this = |it: &Finding| {
                matches!(&it.kind, Kind::LeakedAddress(leak) if leak.address == address)
                    && it.sandboxes.first() == Some(&id)
                    && it.stage == Stage::Confirmed
            };
            prop_assert!(confirmed().any(is_this), "missed the leak of {address} by {id}");
        }
        for (name, _) in self.all.iter().filter(|(_, row)| row.out_of_order && row.connected) {
            let id = &self.drive.sim.sandbox(name).expect("it was made").id;
            let is_this =
                |it: &Finding| matches!(it.kind, Kind::TeardownOutOfOrder(_)) && it.sandboxes.contains(id);
            prop_assert!(confirmed().any(is_this), "missed the end of {name}");
        }
        Ok(())
    }
}

fn del_of(turn: DelTurn) -> Del {
    match turn {
        DelTurn::Succeeds => Del::Succeeds,
        DelTurn::Fails => Del::Fails,
        DelTurn::Missing => Del::Missing,
    }
}

/// The first address that the IPAM does not hold, as host-local would not choose it: the lowest.
fn free(sim: &Sim, network: &str) -> IpAddr {
    let subnet = if network == "podnet" { 88 } else { 99 };
    (2..=254)
        .map(|last| IpAddr::from(Ipv4Addr::new(10, subnet, 0, last)))
        .find(|address| !sim.held.contains_key(&(network.to_owned(), *address)))
        .expect("fewer turns than addresses")
}

pub(crate) fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let add = prop_oneof![
        6 => Just(AddTurn::Succeeds),
        1 => Just(AddTurn::Fails),
        1 => Just(AddTurn::FailsHolding)
    ];
    let del =
        prop_oneof![4 => Just(DelTurn::Succeeds), 1 => Just(DelTurn::Fails), 1 => Just(DelTurn::Missing)];
    let turn = prop_oneof![
        6 => (any::<u8>(), any::<u8>(), add).prop_map(|(pod, network, add)| Turn::Begin { pod, network, add }),
        4 => any::<u8>().prop_map(|which| Turn::Start { which }),
        4 => (any::<u8>(), any::<u8>()).prop_map(|(which, code)| Turn::Exit { which, code }),
        4 => (any::<u8>(), del.clone()).prop_map(|(which, del)| Turn::Stop { which, del }),
        4 => (any::<u8>(), del).prop_map(|(which, del)| Turn::Remove { which, del }),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(which, by)| Turn::Kill { which, by }),
        1 => any::<u8>().prop_map(|which| Turn::LoseNetns { which }),
        1 => Just(Turn::RestartRuntime),
        1 => Just(Turn::RestartKubelet),
        1 => Just(Turn::RestartAgent),
        2 => any::<u8>().prop_map(|seconds| Turn::Wait { seconds }),
    ];
    prop::collection::vec(turn, 1..40)
}

/// The same without a restart of the agent; the time that it takes passes all the same.
pub(crate) fn steady(turns: &[Turn]) -> Vec<Turn> {
    let is_restart = |turn: &Turn| matches!(turn, Turn::RestartAgent);
    turns.iter().map(|turn| if is_restart(turn) { Turn::Wait { seconds: 0 } } else { *turn }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_nothing_hid_is_found_and_nothing_else(turns in turns(), seed: u64) {
        let mut history = History::new();
        history.drive.way = Box::new(shaken(seed));
        history.play(&turns);
        history.end();
        history.nothing_is_invented()?;
        history.nothing_is_missed()?;
    }

    #[test]
    fn neither_order_nor_a_restart_changes_what_is_found(turns in turns(), seed: u64) {
        let found = |turns: &[Turn], shake: bool| {
            let mut history = History::new();
            if shake {
                history.drive.way = Box::new(shaken(seed));
            }
            history.play(turns);
            history.end();
            let confirmed = history.drive.told.into_iter().filter(|it| it.confirmed_at.is_some());
            confirmed.map(|it| (it.key, it.since)).collect::<BTreeSet<_>>()
        };
        prop_assert_eq!(found(&turns, true), found(&steady(&turns), false));
    }

    #[test]
    fn changes_of_the_records_lead_to_what_whole_readings_lead_to(turns in turns(), seed: u64, loses: bool) {
        let found = |is_whole: bool| {
            let mut history = History::new();
            history.drive.way = if loses { Box::new(torn(seed)) } else { Box::new(shaken(seed)) };
            if is_whole {
                history.drive.diff = None;
            }
            history.play(&turns);
            history.end();
            (history.drive.told, history.drive.engine.pools())
        };
        prop_assert_eq!(found(false), found(true));
    }

    #[test]
    fn what_was_lost_makes_no_finding(turns in turns(), seed: u64) {
        let mut history = History::new();
        history.drive.way = Box::new(torn(seed));
        history.play(&turns);
        history.end();
        history.nothing_is_invented()?;
    }
}

proptest! {
    // A look at everything after each turn takes its time.
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn judging_everything_anew_finds_what_is_tracked(turns in turns(), seed: u64) {
        let mut history = History::new();
        history.drive.way = Box::new(shaken(seed));
        for turn in turns {
            history.play(&[turn]);
            prop_assert_eq!(history.drive.engine.differences(), Vec::<String>::new());
        }
        history.end();
        prop_assert_eq!(history.drive.engine.differences(), Vec::<String>::new());
    }
}
