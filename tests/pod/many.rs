//! Many pods at once are reported apart from each other.

use std::{sync::Mutex, thread};

use anyhow::{Context as _, Result, ensure};
use tests::{
    kubelet::{Container, Kubelet, Pod, PodLife},
    node::Node,
    skipped::SKIPPED,
    stream::Stream,
};

use crate::{
    LIMIT,
    events::{name_containers, names_in},
    life::{ONE_CONTAINER, check_life, freed},
};

/// On this machine fifty pods, four at a time. Under emulation each pod takes seconds. Hooks are slow there
/// too, so that kernel 7.2, where a hook can be preempted, skips runs. Then that many pods may not be
/// reported completely.
#[test]
fn many_pods_at_once_are_reported_apart() -> Result<()> {
    let node = Node::start()?;
    let (count, concurrency) = if node.is_private() { (50, 4) } else { (4, 2) };
    let mut stream = Stream::start(&["watch"])?;
    let lives = live_many(&node.kubelet()?, count, concurrency)?;
    until_gone(&mut stream, &lives)?;
    let held = stream.held()?.memory;
    let (mut received, stderr) = stream.end()?;
    let named = name_containers(&mut received.events, &names_in(&lives));
    ensure!(named <= count, "{named} events of {count} pods do not name their container");
    check_many(&lives, received.lost().context(stderr)?, |life| check_life(&received, life, ONE_CONTAINER))?;
    ensure!(held < 18 << 20, "the agent holds {held} bytes");
    node.stop()
}

/// Waits for the last event of each pod, unless the kernel may have skipped it.
pub(crate) fn until_gone(stream: &mut Stream, lives: &[PodLife]) -> Result<()> {
    for life in lives {
        let ended = stream.until("the end of a pod's netns", freed(life));
        if !stream.received.losses()?.contains_key(SKIPPED) {
            ended?;
        }
    }
    Ok(())
}

/// Checks the lives of pods. Each hook run that the kernel skipped may have lost an event of one pod.
pub(crate) fn check_many(
    lives: &[PodLife],
    skipped: u64,
    check: impl Fn(&PodLife) -> Result<()>,
) -> Result<()> {
    let check = |life: &PodLife| check(life).with_context(|| format!("pod {}", life.name));
    let not_whole: Vec<_> = lives.iter().filter_map(|life| check(life).err()).collect();
    ensure!(
        u64::try_from(not_whole.len())? <= skipped,
        "the kernel skipped {skipped} runs, and these pods are incomplete: {not_whole:#?}"
    );
    Ok(())
}

/// Runs `count` pods, `concurrency` at a time, each with one container that exits 0.
pub(crate) fn live_many(kubelet: &Kubelet, count: usize, concurrency: usize) -> Result<Vec<PodLife>> {
    let lives = Mutex::new(Vec::new());
    let next = Mutex::new(0..count);
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..concurrency)
            .map(|_| -> Result<_> {
                let mut kubelet = kubelet.another()?;
                let (lives, next) = (&lives, &next);
                Ok(scope.spawn(move || -> Result<()> {
                    loop {
                        let Some(i) = next.lock().expect("no worker panics with it").next() else {
                            return Ok(());
                        };
                        let pod = Pod::new(&format!("many-{i}"), &format!("7a1cb95b-0000-4000-9000-{i:012}"))
                            .with(Container::shell("main", "true"));
                        let life = kubelet.live(&pod, LIMIT)?;
                        lives.lock().expect("no worker panics with it").push(life);
                    }
                }))
            })
            .collect::<Result<_>>()?;
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    Ok(lives.into_inner()?)
}
