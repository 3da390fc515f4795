//! A new agent goes on with the state of the last one.

use crate::{
    engine::world::{EventContext, World},
    model::time::Timestamp,
};

impl World {
    /// Ends what was so only of the last agent: the files at which its readers hung, and the namespaces that its netlink
    /// socket watched.
    pub(super) fn begin_agent(&mut self, ctx: EventContext, unheard_since: Option<Timestamp>) {
        // The readers of the new agent tell at which files they hang.
        self.coverage.hanging.clear();
        if let Some(since) = unheard_since.filter(|_| self.hears_netlink()) {
            self.netlink_unheard(ctx, since);
        }
        self.watch_again();
    }
}
