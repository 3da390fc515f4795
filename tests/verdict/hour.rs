//! An hour of a healthy node: everything that looks like a problem and is none, while pods come and go. No
//! finding may be opened, not even as a candidate. The same hour with one leak has that finding and no other.

use std::{collections::BTreeMap, time::Duration};

use tests::machine;

use crate::{
    delivery::Random,
    drive::Drive,
    script,
    sim::{BEGIN, Sim},
};

/// Events of one pod or of a few, in the language of stories, with times from their own beginning. `$` is a
/// unique number, and `ADDR` the next free address of the network named before it.
type Turn = &'static str;

const JOB: Turn = "
    0s   pod job-$
    1s   sandbox a$ of job-$ on podnet ADDR
    2s   container main in a$ starts
    20s  container main in a$ exits 0
    22s  stop a$
    23s  pod job-$ goes
    53s  remove a$";

/// A service is scaled up, and down again.
const SERVICE: Turn = "
    0s   sandbox a$ of web-$ on keynet ADDR
    2s   container main in a$ starts
    2s   container side in a$ starts
    18m  container main in a$ is stopped
    18m  container side in a$ is stopped
    18m  stop a$
    18m  pod web-$ goes
    19m  remove a$";

/// The sandbox waits for its image.
const SLOW_IMAGE: Turn = "
    0s   sandbox a$ of img-$ on podnet ADDR
    120s container main in a$ starts
    8m   container main in a$ is stopped
    8m   stop a$
    9m   remove a$";

/// The pod waits for its volume.
const SLOW_VOLUME: Turn = "
    0s   pod vol-$
    4m   sandbox a$ of vol-$ on podnet ADDR
    4m   container main in a$ starts
    9m   container main in a$ is stopped
    9m   stop a$
    10m  remove a$";

/// The back-off grows to five minutes, and the kubelet notices up to half a minute late.
const CRASH_LOOP: Turn = "
    0s    sandbox a$ of loop-$ on podnet ADDR
    1s    container main in a$ starts
    2s    container main in a$ exits 1
    12s   container main in a$ starts
    13s   container main in a$ exits 1
    33s   container main in a$ starts
    34s   container main in a$ exits 137
    74s   container main in a$ starts
    75s   container main in a$ exits 1
    155s  container main in a$ starts
    156s  container main in a$ exits 1
    316s  container main in a$ starts
    317s  container main in a$ exits 1
    645s  container main in a$ starts
    646s  container main in a$ exits 1
    975s  container main in a$ starts
    976s  container main in a$ exits 1
    1300s stop a$
    1301s remove a$";

/// The plugin's executable is absent for a moment, so that the chain stops there, and the kubelet tries
/// again.
const PLUGIN_REPLACED: Turn = "
    0s   pod cni-$
    1s   sandbox a$ of cni-$ begins
    1s   add a$ podnet ADDR stops
    12s  del a$
    12s  netns of a$ lost
    13s  sandbox b$ of cni-$ on podnet ADDR
    14s  container main in b$ starts
    6m   container main in b$ is stopped
    6m   stop b$
    7m   remove b$";

/// libcni writes in place, so the agent may read half a file.
const CACHE_WRITTEN: Turn = "
    0s     sandbox a$ of new-$ on podnet ADDR
    10ms   cache of a$ torn
    2s     cache of a$ written
    2s     container main in a$ starts
    7m     container main in a$ is stopped
    7m     stop a$
    8m     remove a$";

const KUBELET_RESTARTS: Turn = "
    0s   kubelet dies
    4s   kubelet starts";

/// The pods run on. The runtime's events of that time are never sent.
const RUNTIME_RESTARTS: Turn = "
    0s   runtime dies
    7s   runtime starts";

/// The leak: the pod is removed, and nobody calls DEL.
const LEAK: Turn = "
    0s   sandbox a$ of leaks-$ on podnet ADDR
    1s   container main in a$ starts
    60s  container main in a$ is stopped
    60s  stop a$ no-del
    61s  pod leaks-$ goes
    62s  remove a$ no-del";

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// After this time every verdict on the hour is known.
const AFTERWARDS: Duration = Duration::from_secs(12 * 60);
const KUBELET_DOWN: [Duration; 2] = [Duration::from_secs(15 * 60), Duration::from_secs(15 * 60 + 5)];
const RUNTIME_DOWN: [Duration; 2] = [Duration::from_secs(30 * 60), Duration::from_secs(30 * 60 + 8)];
const DRAIN: Duration = Duration::from_secs(50 * 60);

/// The lines to play.
struct Agenda {
    lines: BTreeMap<(Duration, usize), String>,
    turns: usize,
    random: Random,
}

impl Agenda {
    fn of_an_hour(seed: u64) -> Self {
        let mut agenda = Self { lines: BTreeMap::new(), turns: 0, random: Random(seed) };
        agenda.add(Duration::ZERO, "0s runtime starts\n 0s kubelet starts\n 1s runtime is followed");
        agenda.add(KUBELET_DOWN[0], KUBELET_RESTARTS);
        agenda.add(RUNTIME_DOWN[0], RUNTIME_RESTARTS);
        for minute in 1..(HOUR + AFTERWARDS).as_secs() / 60 {
            agenda.add(MINUTE * u32::try_from(minute).expect("few"), "0s runtime lists");
        }
        // These pods stay for the whole hour.
        for _ in 0..8 {
            let begin = agenda.within(10, 40);
            agenda.add(begin, "0s sandbox a$ of stays-$ on podnet ADDR\n 1s container main in a$ starts");
        }
        for second in (60..HOUR.as_secs() - 90).step_by(15) {
            let begin = agenda.within(second, second + 15);
            agenda.add(begin, JOB);
        }
        for scaled_up in [5, 28, 33] {
            for _ in 0..10 {
                let begin = agenda.within(scaled_up * 60, scaled_up * 60 + 4);
                agenda.add(begin, SERVICE);
            }
        }
        for turn in [SLOW_IMAGE, SLOW_VOLUME, CACHE_WRITTEN, PLUGIN_REPLACED] {
            for from in [2, 10, 13, 25, 29, 40] {
                let begin = agenda.within(from * 60, (from + 3) * 60);
                agenda.add(begin, turn);
            }
        }
        for from in [1, 9, 20, 36] {
            let begin = agenda.within(from * 60, (from + 2) * 60);
            agenda.add(begin, CRASH_LOOP);
        }
        agenda.drain();
        agenda
    }

    /// Drains the node: all pods leave it together, and it accepts others afterwards.
    fn drain(&mut self) {
        for _ in 0..12 {
            let begin = self.within(20 * 60, 48 * 60);
            let (stop, remove) = (self.within(0, 5), self.within(20, 60));
            self.add(begin, "0s sandbox a$ of moves-$ on podnet ADDR\n 1s container main in a$ starts");
            let number = self.turns;
            self.add(
                DRAIN + stop,
                &format!(
                    "0s container main in a{number} is stopped\n 1s stop a{number}\n 2s pod moves-{number} goes"
                ),
            );
            self.add(DRAIN + remove, &format!("0s remove a{number}"));
        }
    }

    /// Returns a time between these seconds.
    fn within(&mut self, from: u64, to: u64) -> Duration {
        let span = usize::try_from((to - from) * 1000).expect("small");
        Duration::from_secs(from) + Duration::from_millis(self.random.below(span) as u64)
    }

    fn add(&mut self, begin: Duration, turn: &str) {
        self.turns += 1;
        let number = self.turns.to_string();
        for line in turn.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (time, words) = line.split_once(' ').expect("a time and what happens then");
            let at = begin + script::span(time).expect("a time");
            let place = self.lines.len();
            self.lines.insert((while_they_run(at, words), place), words.trim().replace('$', &number));
        }
    }
}

/// Delays actions of the kubelet and the runtime until both are up.
fn while_they_run(at: Duration, words: &str) -> Duration {
    let needs_nobody =
        ["runtime", "kubelet"].iter().any(|name| words.trim().starts_with(name)) || words.contains(" exits ");
    let down = [KUBELET_DOWN, RUNTIME_DOWN].into_iter().find(|[from, to]| (*from..*to).contains(&at));
    match down {
        Some([_, back]) if !needs_nobody => back,
        Some(_) | None => at,
    }
}

/// Plays the hour. Returns the findings in the form of stories.
fn play(agenda: Agenda) -> Vec<String> {
    let mut drive = Drive::new(Sim::new());
    for ((at, _), words) in agenda.lines {
        drive.pass_to(BEGIN + at);
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let words = with_addresses(words, &drive.sim);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        script::step(&mut drive.sim, &words).unwrap_or_else(|why| panic!("{why}: {words:?}"));
        drive.settle();
    }
    drive.pass_to(BEGIN + HOUR + AFTERWARDS);
    drive.findings.iter().map(|it| script::line(it, &drive)).collect()
}

/// Puts an address in place of each `ADDR`.
fn with_addresses(mut words: Vec<String>, sim: &Sim) -> Vec<String> {
    for place in 1..words.len() {
        if words[place] == "ADDR" {
            words[place] = sim.next_address(&words[place - 1]).to_string();
        }
    }
    words
}

/// Returns seeds, each for a different hour. A long run has more of them.
fn seeds() -> std::ops::Range<u64> {
    if machine::is_soak() { 1..25 } else { 1..2 }
}

#[test]
fn an_hour_of_healthy_churn_has_no_finding() {
    for seed in seeds() {
        let agenda = Agenda::of_an_hour(seed);
        assert!(agenda.turns > 300, "{} turns are no churn", agenda.turns);
        assert_eq!(play(agenda), [""; 0], "seed {seed}");
    }
}

#[test]
fn one_leak_in_that_hour_is_the_only_finding() {
    for seed in seeds() {
        let mut agenda = Agenda::of_an_hour(seed);
        // This may be while the runtime is away, or while the node is drained.
        let begin = agenda.within(20 * 60, 50 * 60);
        agenda.add(begin, LEAK);
        let name = format!("leaks-{}", agenda.turns);
        let found = play(agenda);
        let [found] = found.as_slice() else { panic!("seed {seed}: {found:#?}") };
        assert!(found.starts_with("confirmed leaked_address/del_missing "), "seed {seed}: {found}");
        assert!(found.contains(&format!(" {name} ")), "seed {seed}: {found}");
    }
}
