//! One run of the agent, from its start to its exit status.

use std::{io, path::Path};

use anyhow::Context;
use tokio::runtime;

use super::{
    assemble::{Assembly, Ended},
    banner, open_files,
    opened::{Start, print_stderr},
};
use crate::{
    agent::AgentError,
    cli::{
        ExitStatus,
        output::{self, Reader},
        say,
        stderr::nonblocking,
    },
    confine::refusal,
    source::node::clock,
};

impl Start<'_> {
    pub(super) fn run(&self) -> anyhow::Result<ExitStatus> {
        nonblocking::enable();
        open_files::allow()?;
        let opened = self.open()?;
        let probe = self.load(&opened)?;
        let start = clock::now();
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let ended = runtime.block_on(async { Assembly::new(self, opened, probe).await?.run().await });
        let Ended { session, totals, result } = ended?;
        // Reports system calls that were refused at the very end.
        refusal::log_new();
        if self.banner {
            print_stderr(&banner::end(&session, &totals, clock::now().since(start)));
        }
        self.ended(result)
    }

    fn ended(&self, result: Result<(), AgentError>) -> anyhow::Result<ExitStatus> {
        match result {
            Ok(()) => Ok(ExitStatus::Ok),
            Err(error @ AgentError::Stream { .. }) if self.log.is_some() => Err(error.into()),
            Err(AgentError::Stream { error, .. }) => match output::reader(Err(error))? {
                Reader::Gone if self.outlives_terminal => {
                    say(
                        "nobody reads standard output any more, so the run has ended; redirect it to /dev/null to keep it running",
                    );
                    // A socket belongs to the journal. Its end is a failure, after which a supervisor starts
                    // the agent again.
                    Ok(if output::is_socket(io::stdout()) { ExitStatus::Incomplete } else { ExitStatus::Ok })
                }
                Reader::There | Reader::Gone => Ok(ExitStatus::Ok),
            },
            Err(AgentError::Recording(error)) => {
                let file = self.file.unwrap_or(Path::new("the recording"));
                say(&format!("{}: {error}; what was written until then can be replayed", file.display()));
                Ok(ExitStatus::Incomplete)
            }
            Err(
                error @ (AgentError::Unread { .. }
                | AgentError::Unrecordable(_)
                | AgentError::Sources
                | AgentError::Blind),
            ) => {
                say(&error.to_string());
                Ok(ExitStatus::Incomplete)
            }
        }
    }
}
