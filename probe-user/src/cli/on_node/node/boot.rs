//! What the agent learns about the boot at its start: which one it is, and how the one before ended.

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use tracing::warn;

use crate::{
    model::recovery::{BootRead, PreviousBoot, Recovery},
    recording::Header,
    sink::state::history::{self, SavedHistory},
    source::{
        host::{HostRoot, watch::Reader},
        logs::boot::{self, unseen::unseen},
    },
};

/// The facts about this boot before the agent reads the node.
pub(in crate::cli) struct Beginning {
    /// The recovery as an earlier agent of the same boot saw it, if there was one.
    pub(in crate::cli) earlier: Option<Recovery>,
    pub(in crate::cli) boot: BootRead,
}

/// How long to wait for the history, and then for the node's journals: the agent serves nobody until then.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads the history in the directory `past`, and the facts about this boot. Each read has a thread of its
/// own. If it hangs, the agent starts without its result.
pub(in crate::cli) fn read_with_timeout(
    header: &Header,
    root: &HostRoot,
    past: Option<&Path>,
    labels: &BTreeMap<String, String>,
) -> io::Result<(SavedHistory, Beginning)> {
    let reader = Arc::new(Reader::new(Arc::default()));
    let root = root.watched(Arc::clone(&reader)).map_err(io::Error::other)?;
    let (past_sender, past_receiver) = mpsc::channel();
    let (before_sender, before_receiver) = mpsc::channel();
    let own = header.clone();
    let dir = past.map(Path::to_owned);
    thread::Builder::new().name("past".to_owned()).spawn(move || {
        let past = dir.as_deref().map(history::read).unwrap_or_default();
        past_sender.send(past.clone()).ok();
        before_sender.send(before(&own, &root, &past)).ok();
    })?;
    let seconds = PATIENCE.as_secs();
    let Ok(past) = past_receiver.recv_timeout(PATIENCE) else {
        warn!(dir = ?past, seconds, "reading the history of boots hangs: going on without it and without the journal");
        return Ok((
            SavedHistory::default(),
            beginning(header, &SavedHistory::default(), PreviousBoot::default(), labels),
        ));
    };
    let before = before_receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let path = reader.at().map(|(path, _)| path);
        warn!(?path, seconds, "reading how the last boot ended hangs: going on with what is kept of it");
        past.before(&header.boot_id)
    });
    let beginning = beginning(header, &past, before, labels);
    Ok((past, beginning))
}

/// Reads the facts about this boot; may block.
pub(in crate::cli) fn read(
    header: &Header,
    root: &HostRoot,
    past: &SavedHistory,
    labels: &BTreeMap<String, String>,
) -> BootRead {
    beginning(header, past, before(header, root, past), labels).boot
}

/// Returns how the boot before this one ended, from the history and the node's journals.
fn before(header: &Header, root: &HostRoot, past: &SavedHistory) -> PreviousBoot {
    let known = past.history.of(&header.boot_id).and_then(|record| record.recovery.boot.as_ref());
    let before = known.map(|it| it.before.clone()).unwrap_or_else(|| {
        let others = past.last(&header.boot_id).and_then(|last| unseen(root, &last, header.boot_wall_ns));
        past.before(&header.boot_id).followed_by(others)
    });
    before.or_ordered(|| boot::ordered(root, header.boot_wall_ns))
}

fn beginning(
    header: &Header,
    past: &SavedHistory,
    before: PreviousBoot,
    given: &BTreeMap<String, String>,
) -> Beginning {
    let earlier = past.history.of(&header.boot_id).map(|record| record.recovery.clone());
    // The labels that an earlier agent of this boot was given still count.
    let known = earlier.as_ref().and_then(|earlier| earlier.boot.as_ref());
    let mut labels = known.map(|boot| boot.labels.clone()).unwrap_or_default();
    labels.extend(given.iter().map(|(key, value)| (key.clone(), value.clone())));
    let boot = BootRead {
        boot_id: header.boot_id.clone(),
        kernel: header.kernel.clone(),
        boot_wall_ns: header.boot_wall_ns,
        before,
        labels,
    };
    Beginning { earlier, boot }
}
