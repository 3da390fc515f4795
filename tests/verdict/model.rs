//! Randomly generated histories: the actions of kubelets, runtimes, people and the kernel on sandboxes, in
//! any possible order. The truth is the content of the IPAM stores at the end, and who did what.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use probe_user::model::{
    change::Finding,
    fact::CniCommand,
    finding::{Kind, OutOfOrder, Stage, TeardownOutOfOrder},
    id::ContainerId,
};
use proptest::{prelude::*, test_runner::TestCaseError};

use crate::{
    delivery::{lossy, reordered},
    drive::Drive,
    sim::{Add, Death, Del, Sim},
};

/// The next action. A number selects one of the sandboxes for which the action is possible.
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
/// Longer than every grace period, and short enough that the engine forgets nothing.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// The facts about one sandbox.
#[derive(Clone, Debug, Default)]
struct Truth {
    pod: String,
    connected: bool,
    lives: bool,
    stopped: bool,
    removed: bool,
    /// A DEL succeeded.
    released: bool,
    running: bool,
    ran: bool,
    /// Its container ended last with another code than 0.
    failed: bool,
    /// It was made before a restart of the runtime or the kubelet and stopped after it, while its container
    /// ran.
    stopped_after_restart: bool,
    restarts_before: u32,
    /// Something other than its runtime ended it, before the runtime began to.
    out_of_order: bool,
}

pub(crate) struct History {
    pub(crate) drive: Drive,
    all: BTreeMap<String, Truth>,
    next: u32,
    restarts: u32,
}

impl History {
    pub(crate) fn new() -> Self {
        let mut sim = Sim::new();
        sim.runtime_starts();
        sim.kubelet_starts();
        Self { drive: Drive::new(sim), all: BTreeMap::new(), next: 0, restarts: 0 }
    }

    pub(crate) fn run(&mut self, turns: &[Turn]) {
        for turn in turns {
            self.turn(*turn);
            let now = self.drive.sim.now();
            self.drive.pass_to(now + Duration::from_millis(250));
        }
    }

    /// Ends the agent, performs the actions, and starts another agent with the first one's state.
    fn run_unseen(&mut self, turns: &[Turn]) {
        let kept = self.drive.agent_ends();
        for turn in turns {
            let mut spent = Duration::from_millis(250);
            match turn {
                Turn::RestartAgent => {}
                Turn::Wait { seconds } => spent = Duration::from_secs(u64::from(*seconds)),
                _ => self.turn(*turn),
            }
            let now = self.drive.sim.now();
            self.drive.sim.pass_to(now + spent);
        }
        self.drive.agent_returns(kept);
    }

    fn turn(&mut self, turn: Turn) {
        let sim = &mut self.drive.sim;
        match turn {
            Turn::Begin { pod, network, add } => {
                self.next += 1;
                let (name, pod) = (format!("s{}", self.next), format!("pod-{}", pod % 6));
                // A kubelet makes a pod's next sandbox when the last has ended.
                if self.all.values().any(|it| it.pod == pod && it.lives) {
                    return;
                }
                let network = NETWORKS[usize::from(network) % NETWORKS.len()];
                let address = sim.next_address(network);
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
                let restarts_before = self.restarts;
                let row = Truth {
                    restarts_before,
                    pod,
                    connected,
                    lives: connected,
                    removed: !connected,
                    ..Truth::default()
                };
                self.all.insert(name, Truth { stopped: !connected, ..row });
            }
            Turn::Start { which } => {
                if let Some((name, row)) = self.pick(which, |it| it.lives && !it.running) {
                    (row.running, row.ran, row.failed) = (true, true, false);
                    self.drive.sim.container_starts("main", &name);
                }
            }
            Turn::Exit { which, code } => {
                if let Some((name, row)) = self.pick(which, |it| it.lives && it.running) {
                    (row.running, row.failed) = (false, code % 3 != 0);
                    self.drive.sim.container_exits("main", &name, u32::from(code % 3));
                }
            }
            Turn::Stop { which, del } => {
                let restarts = self.restarts;
                if let Some((name, row)) = self.pick(which, |it| !it.removed && !it.stopped) {
                    row.stopped_after_restart = row.running && row.restarts_before < restarts;
                    (row.lives, row.stopped, row.running) = (false, true, false);
                    row.released = matches!(del, DelTurn::Succeeds);
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
                self.restarts += 1;
                sim.runtime_dies();
                sim.runtime_starts();
            }
            Turn::RestartKubelet => {
                self.restarts += 1;
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

    /// Returns the addresses in the IPAM stores of sandboxes that do not live and that their runtime has
    /// forgotten.
    fn leaks(&self) -> BTreeSet<(IpAddr, ContainerId)> {
        let sim = &self.drive.sim;
        let lives = |id: &ContainerId| sim.name_of(id).is_some_and(|name| self.all[name].lives);
        let held = sim.held.iter().map(|((_, address), (id, _))| (*address, id.clone()));
        held.filter(|(_, id)| !sim.is_recorded(id) && !lives(id)).collect()
    }

    fn truth_of(&self, it: &Finding) -> Option<&Truth> {
        self.all.get(self.drive.sim.name_of(it.sandboxes.last()?)?)
    }

    /// Checks that every confirmed finding that is still open is true.
    pub(crate) fn check_no_false_finding(&self) -> Result<(), TestCaseError> {
        let leaks = self.leaks();
        for it in self.drive.findings.iter().filter(|it| it.stage == Stage::Confirmed) {
            let is_true = match &it.kind {
                Kind::LeakedAddress(leak) => {
                    it.sandboxes.first().is_some_and(|id| leaks.contains(&(leak.address, id.clone())))
                }
                Kind::TeardownOutOfOrder(TeardownOutOfOrder { how, .. }) => {
                    let row = self.truth_of(it);
                    row.is_some_and(|row| row.out_of_order && (*how != OutOfOrder::NetnsGone || !row.lives))
                }
                // A loss is reported, and these histories have losses.
                Kind::BlindSpot(_) => true,
                Kind::CniFailing(failing) => match failing.command {
                    CniCommand::Add => self.all.values().any(|row| !row.connected),
                    CniCommand::Del => {
                        self.all.values().any(|row| row.stopped && !row.released && !row.removed)
                    }
                },
                // These histories make a pod's sandboxes again and again, and some of them run no container.
                Kind::DuplicateSandbox(_) => self.truth_of(it).is_some_and(|row| !row.ran),
                Kind::PoolExhaustion(_) => !leaks.is_empty(),
                // These histories never remove a pod's cgroup.
                Kind::StuckCgroup(_) => {
                    let pod = it.pod.as_ref().and_then(|pod| pod.name.as_deref());
                    self.all.values().filter(|row| Some(row.pod.as_str()) == pod).all(|row| row.removed)
                }
                Kind::SandboxesReplaced(_) => it.sandboxes.iter().all(|id| {
                    let name = self.drive.sim.name_of(id);
                    name.is_some_and(|name| self.all[name].stopped_after_restart)
                }),
                Kind::AbandonedSandbox(_) => {
                    self.truth_of(it).is_some_and(|row| row.lives && row.ran && !row.running)
                }
                // The runtime has it on record, and no DEL has succeeded.
                Kind::StuckStop(_) => self.truth_of(it).is_some_and(|row| !row.lives && !row.released),
                // Nothing of the pod runs. While no agent ran, a container may have run and ended.
                Kind::StuckStart(_) => {
                    let pod = it.pod.as_ref().and_then(|pod| pod.name.as_deref());
                    self.all.values().filter(|row| Some(row.pod.as_str()) == pod).all(|row| !row.running)
                }
                // These histories have no other problem.
                _ => false,
            };
            prop_assert!(is_true, "false finding: {} of {:?}", it.key, self.all);
        }
        Ok(())
    }

    fn confirmed(&self) -> impl Iterator<Item = &Finding> {
        self.drive.findings.iter().filter(|it| it.confirmed_at.is_some())
    }

    /// Checks that every leak was confirmed.
    fn check_no_missed_leak(&self) -> Result<(), TestCaseError> {
        for (address, id) in self.leaks() {
            let is_this = |it: &Finding| {
                matches!(&it.kind, Kind::LeakedAddress(leak) if leak.address == address)
                    && it.sandboxes.first() == Some(&id)
                    && it.stage == Stage::Confirmed
            };
            prop_assert!(self.confirmed().any(is_this), "missed the leak of {address} by {id}");
        }
        Ok(())
    }

    /// Checks that every leak, every teardown out of order and every abandoned sandbox was confirmed.
    fn check_no_missed_finding(&self) -> Result<(), TestCaseError> {
        self.check_no_missed_leak()?;
        for (name, _) in self.all.iter().filter(|(_, row)| row.out_of_order && row.connected) {
            let id = &self.drive.sim.sandbox(name).expect("a sandbox with this name").id;
            let is_this =
                |it: &Finding| matches!(it.kind, Kind::TeardownOutOfOrder(_)) && it.sandboxes.contains(id);
            prop_assert!(self.confirmed().any(is_this), "missed the end of {name}");
        }
        for (name, _) in self.all.iter().filter(|(_, row)| row.lives && row.failed && !row.running) {
            let id = &self.drive.sim.sandbox(name).expect("a sandbox with this name").id;
            let is_this =
                |it: &Finding| matches!(it.kind, Kind::AbandonedSandbox(_)) && it.sandboxes.contains(id);
            prop_assert!(self.confirmed().any(is_this), "missed that nobody reacts for {name}");
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

/// Returns the actions without restarts of the agent. The time of a restart passes all the same.
pub(crate) fn without_restarts(turns: &[Turn]) -> Vec<Turn> {
    let is_restart = |turn: &Turn| matches!(turn, Turn::RestartAgent);
    turns.iter().map(|turn| if is_restart(turn) { Turn::Wait { seconds: 0 } } else { *turn }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn without_losses_every_problem_is_found_and_nothing_else(turns in turns(), seed: u64) {
        let mut history = History::new();
        history.drive.delivery = Box::new(reordered(seed));
        history.run(&turns);
        history.end();
        history.check_no_false_finding()?;
        history.check_no_missed_finding()?;
    }

    #[test]
    fn neither_order_nor_a_restart_changes_the_findings(turns in turns(), seed: u64) {
        let found = |turns: &[Turn], shake: bool| {
            let mut history = History::new();
            if shake {
                history.drive.delivery = Box::new(reordered(seed));
            }
            history.run(turns);
            history.end();
            let confirmed = history.drive.findings.into_iter().filter(|it| it.confirmed_at.is_some());
            confirmed.map(|it| (it.key, it.since)).collect::<BTreeSet<_>>()
        };
        prop_assert_eq!(found(&turns, true), found(&without_restarts(&turns), false));
    }

    #[test]
    fn changes_of_the_records_give_the_findings_of_complete_readings(turns in turns(), seed: u64, loses: bool) {
        let found = |is_whole: bool| {
            let mut history = History::new();
            history.drive.delivery = if loses { Box::new(lossy(seed)) } else { Box::new(reordered(seed)) };
            if is_whole {
                history.drive.diff = None;
            }
            history.run(&turns);
            history.end();
            (history.drive.findings, history.drive.engine.pools())
        };
        prop_assert_eq!(found(false), found(true));
    }

    #[test]
    fn lost_records_cause_no_false_finding(turns in turns(), seed: u64) {
        let mut history = History::new();
        history.drive.delivery = Box::new(lossy(seed));
        history.run(&turns);
        history.end();
        history.check_no_false_finding()?;
    }
}

proptest! {
    // Judging everything after each action takes long.
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_full_judgement_gives_the_tracked_findings(turns in turns(), seed: u64) {
        let mut history = History::new();
        history.drive.delivery = Box::new(reordered(seed));
        for turn in turns {
            history.run(&[turn]);
            prop_assert_eq!(history.drive.engine.differences(), Vec::<String>::new());
        }
        history.end();
        prop_assert_eq!(history.drive.engine.differences(), Vec::<String>::new());
    }
}

proptest! {
    // Each case plays three histories.
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_happened_without_an_agent_makes_no_finding_and_hides_no_leak(
        before in turns(),
        unseen in turns(),
        after in turns(),
        seed: u64,
    ) {
        let mut history = History::new();
        history.drive.delivery = Box::new(reordered(seed));
        history.run(&before);
        history.run_unseen(&unseen);
        history.run(&after);
        history.end();
        history.check_no_false_finding()?;
        history.check_no_missed_leak()?;
    }

    /// Plays a history twice. At its end the node is listed again, or another agent takes over and lists it.
    #[test]
    fn a_time_without_an_agent_closes_no_finding(turns in turns(), seconds in 1_u64..600, seed: u64) {
        let confirmed = |history: &History| -> BTreeSet<_> {
            let all = history.drive.findings.iter().filter(|it| it.stage == Stage::Confirmed);
            all.map(|it| it.key.clone()).collect()
        };
        let found = |is_away: bool| {
            let mut history = History::new();
            history.drive.delivery = Box::new(reordered(seed));
            history.run(&turns);
            let now = history.drive.sim.now() + Duration::from_secs(seconds);
            history.drive.pass_to(now);
            let before = confirmed(&history);
            if is_away {
                history.run_unseen(&[]);
            } else {
                history.drive.relist();
            }
            history.drive.pass_to(now + Duration::from_secs(2));
            (before, confirmed(&history))
        };
        let (before, after) = found(false);
        let lasting: BTreeSet<_> = before.intersection(&after).cloned().collect();
        let kept = found(true).1;
        prop_assert!(kept.is_superset(&lasting), "{kept:?} are left of {lasting:?}");
    }
}
