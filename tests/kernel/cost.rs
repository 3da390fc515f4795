//! The cost of the exec hook does not depend on the size of the environment, unless the exec may be a CNI
//! call.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use probe_user::source::live::attach::Probe;
use tests::live::{Setup, load};

use crate::container::{Container, actor};

/// The cheapest of several rounds counts, because other work on the machine can only add to a round.
const ROUNDS: usize = 5;
const EXECS: u32 = 50;
/// A hook that looked at each variable would need fifty times as long for a thousand of them as for none.
const VARIABLES: usize = 1000;
const MOST: u32 = 3;

#[test]
fn an_exec_costs_the_same_whatever_its_environment() -> Result<()> {
    let (probe, hierarchy) = load(Setup { stats: true, ..Setup::default() })?;
    let container = Container::create(&hierarchy)?;
    let (actor, times) = (actor()?, EXECS.to_string());
    let words = [&*actor, "repeat", &times, &actor, "exit", "0"];
    for place in ["on the node", "in a container"] {
        let least = |variables: usize| -> Result<Duration> {
            let mut least = Duration::MAX;
            for _ in 0..ROUNDS {
                let mut command = match place {
                    "in a container" => container.command(&words)?,
                    _ => {
                        let mut command = Command::new(&actor);
                        command.args(&words[1..]);
                        command
                    }
                };
                let all = (0..variables).map(|i| (format!("SERVICE_{i}_PORT"), "tcp://10.96.0.1:443"));
                command.env_clear().envs(all).stdin(Stdio::null());
                least = least.min(mean_of_one(&probe, &mut command)?);
            }
            Ok(least)
        };
        let (empty, full) = (least(0)?, least(VARIABLES)?);
        ensure!(full < empty * MOST, "{place}: {empty:?} with no variables, {full:?} with {VARIABLES}");
    }
    Ok(())
}

/// Returns the mean time of the exec hook during the command. It includes the execs of other processes of the
/// machine.
fn mean_of_one(probe: &Probe, command: &mut Command) -> Result<Duration> {
    let exec = || probe.totals()?.programs().get("exec").copied().context("the program is not attached");
    let before = exec()?;
    let status = command.status()?;
    ensure!(status.success(), "{status}");
    let after = exec()?;
    let count = after.count.saturating_sub(before.count);
    ensure!(count >= u64::from(EXECS), "the kernel counted {count} runs");
    Ok(after.time.saturating_sub(before.time) / u32::try_from(count)?)
}
