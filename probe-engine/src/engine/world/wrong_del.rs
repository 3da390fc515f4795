//! Notices DELs that cannot be right when the runtime begins them: later nothing shows which ADD was open by then.

use crate::{
    engine::world::{
        EventContext, World,
        attachment::{Outcome, Runs},
        call::Call,
        netns_path::plain,
        sandbox::{Group, run::SIGNALLED},
    },
    model::{
        finding::{CniWrongDel, WrongDelForm},
        id::ContainerId,
    },
};

impl World {
    /// Keeps a DEL that cannot be right with its sandbox. It begins now, and the attachment does not count it yet.
    pub(super) fn note_wrong_del(&mut self, ctx: EventContext, call: &Call, id: &ContainerId, ifname: &str) {
        if call.call.command != "DEL" {
            return;
        }
        let netns = call.call.netns.as_ref().filter(|path| self.is_netns_of_another(path, id));
        let row = self.attachments.get(&(id.clone(), ifname.to_owned()));
        let adds = || row.into_iter().flat_map(|row| row.adds());
        let how = if netns.is_some() {
            WrongDelForm::ForeignNetns
        } else if adds().any(Runs::is_open) {
            WrongDelForm::AddOpen
        } else if adds().any(was_killed) {
            WrongDelForm::AddKilled
        } else {
            return;
        };
        let plugin = call.call.plugin.clone();
        let it = CniWrongDel { how, plugin, ifname: ifname.to_owned(), netns: netns.cloned() };
        self.sandbox_wrongly_deleted(ctx, id, it);
    }

    /// Whether this path is that of another sandbox that lives, and not of this one.
    fn is_netns_of_another(&self, path: &str, id: &ContainerId) -> bool {
        let at_path = || self.sandboxes.group(Group::NetnsPath(plain(path).into_owned()));
        at_path().all(|row| row.id != *id) && at_path().any(|row| !row.is_stopped())
    }
}

/// Whether a signal ended the latest of these runs.
fn was_killed(runs: &Runs) -> bool {
    runs.outcome == Some(Outcome::Failed) && runs.code.is_some_and(|code| code >= SIGNALLED)
}
