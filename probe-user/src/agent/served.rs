//! Those who ask over HTTP: the loop looks for them, and they are served elsewhere.

use crate::session::Session;
#[cfg(feature = "serve")]
use crate::{
    agent::figure::Figures,
    sink::serve::{
        Server,
        ask::{Asks, Sight},
    },
    source::clock,
};

/// The server, if there is one.
#[derive(Debug, Default)]
pub struct Served {
    #[cfg(feature = "serve")]
    at_work: Option<(Server, Asks, Figures)>,
}

#[cfg(feature = "serve")]
impl Served {
    #[must_use]
    pub fn by(server: Server, asks: Asks, figures: Figures) -> Self {
        Self { at_work: Some((server, asks, figures)) }
    }

    /// Looks for the next who asks; never returns where nobody can. May be cancelled.
    pub(super) async fn answer(&mut self, session: &Session) {
        let Some((_, asks, figures)) = &mut self.at_work else { return std::future::pending().await };
        let ask = asks.next().await;
        let now = clock::now();
        ask(&Sight {
            engine: session.engine(),
            label: session.label(),
            now,
            has_listed: session.has_listed(),
            measure: &|| session.look(now, &figures.own()),
            process: &|| figures.process(),
        });
    }

    pub(super) async fn finish(self) {
        let Some((server, asks, _)) = self.at_work else { return };
        // Nobody looks any more.
        drop(asks);
        server.finish().await;
    }
}

#[cfg(not(feature = "serve"))]
impl Served {
    pub(super) async fn answer(&mut self, _session: &Session) {
        std::future::pending().await
    }

    #[expect(clippy::unused_async, reason = "the form of the other one")]
    pub(super) async fn finish(self) {}
}
