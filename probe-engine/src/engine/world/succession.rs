//! A new agent goes on with the state of the last one.

use crate::{
    engine::world::{EventContext, World},
    model::time::Timestamp,
};

impl World {
    /// Ends what was so only of the last agent: the files at which its readers hung, the namespaces that its netlink socket
    /// watched, and the questions that its sources took and never answered.
    ///
    /// The names of pods need no question: the new agent lists them. Nor do the runtimes' lists, which it reads when it
    /// reaches a runtime, and the counters of a cgroup, which are of the time when they are read.
    pub(super) fn begin_agent(&mut self, ctx: EventContext, unheard_since: Option<Timestamp>) {
        // The readers of the new agent tell at which files they hang.
        self.coverage.hanging.clear();
        if let Some(since) = unheard_since.filter(|_| self.hears_netlink()) {
            self.netlink_unheard(ctx, since);
        }
        self.watch_again(ctx.at);
        self.ask_roles_again();
        self.ask_about_starts_again(ctx.at);
        self.ask_versions_again();
        self.ask_messages_again(ctx.at);
    }
}
