//! What the agent is told of the boot at its start: which one this is, and how the one before ended.

use crate::{
    engine::{boot::BootRead, fact::Fact, world::Row},
    recording::Header,
    sink::history::Past,
    source::{
        boot::{self, unseen::unseen},
        host::HostRoot,
    },
};

/// First what an agent of this boot had seen already, if there was one.
pub(in crate::cli) fn facts(header: &Header, root: &HostRoot, past: &Past) -> Vec<Fact> {
    let known = past.history.of(&header.boot_id).map(|record| record.recovery.clone());
    let known_before = known.as_ref().and_then(|it| it.boot.as_ref()).map(|it| it.before.clone());
    let before = known_before.unwrap_or_else(|| {
        let others = past.last(&header.boot_id).and_then(|last| unseen(root, &last, header.boot_wall_ns));
        past.before(&header.boot_id).followed_by(others)
    });
    let before = before.or_ordered(|| boot::ordered(root, header.boot_wall_ns));
    let boot = BootRead {
        boot_id: header.boot_id.clone(),
        kernel: header.kernel.clone(),
        boot_wall_ns: header.boot_wall_ns,
        before,
    };
    let remembered = known.map(|it| Fact::Remembered(Row::Recovery(Box::new(it))));
    remembered.into_iter().chain([Fact::BootRead(Box::new(boot))]).collect()
}
