//! The calls of each plugin of an attachment, and their results.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_with::serde_as;

use crate::{
    engine::world::table::{attachment::Attachment, call::Looked},
    model::{
        change::End,
        fact::{CniCommand, MessageFound},
        finding::CniWait,
        time::{Nanoseconds, Timestamp},
    },
};

/// The calls of one plugin for one attachment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plugin {
    pub(crate) name: String,
    /// The path of the plugin's executable.
    pub(crate) path: String,
    pub(crate) add: Runs,
    /// The DELs that named a network namespace.
    pub(crate) del: Runs,
    /// The DELs with an empty or no `CNI_NETNS`: the runtime says that the namespace is gone.
    pub(crate) del_without_netns: Runs,
    /// When the engine last asked for the plugin's message about a failed ADD of this attachment.
    #[serde(default)]
    pub(crate) asked_at: Option<Timestamp>,
    /// The DELs that failed since one last succeeded.
    #[serde(default)]
    pub(crate) undeleted: Option<Box<FailedDels>>,
    /// The failures for the same pod and interface in attachments that were dropped.
    #[serde(default)]
    pub(crate) earlier: Option<Earlier>,
    /// Its latest entry in the balance of plugins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) entry: Option<Entry>,
}

/// An ADD succeeded: the entry of an attachment in the balance of plugins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The network by which the ADD was counted.
    pub(crate) network: Option<String>,
    /// A DEL has succeeded since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_closed: bool,
    /// That DEL named no network namespace, and it is not known yet whether anything verifies the release.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_unjudged: bool,
}

/// The DELs that failed since one last succeeded. Whether they named a network namespace does not matter.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FailedDels {
    pub(crate) count: u32,
    /// When the first of them began.
    pub(crate) first_at: Timestamp,
    /// When the latest of them ended, and its exit code.
    pub(crate) last_at: Timestamp,
    pub(crate) code: u32,
    /// How long they ran, added up.
    #[serde_as(as = "Nanoseconds")]
    wasted: Duration,
    /// When the engine last asked for the plugin's message about them, and the message.
    pub(crate) asked_at: Option<Timestamp>,
    pub(crate) said: Option<MessageFound>,
}

/// The calls of a plugin with one command that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failures<'a> {
    pub(crate) count: u32,
    /// When the first of them began.
    pub(crate) first_at: Timestamp,
    /// When the latest call began or ended.
    pub(crate) last_at: Timestamp,
    pub(crate) code: Option<u32>,
    pub(crate) wasted: Duration,
    pub(crate) asked_at: Option<Timestamp>,
    pub(crate) said: Option<&'a MessageFound>,
}

/// The failures for the same pod and interface in attachments that were dropped.
#[serde_as]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Earlier {
    /// How many ADDs failed.
    pub(crate) failed: u32,
    /// When the first of these ADDs began.
    pub(crate) first_at: Timestamp,
    /// How long these ADDs ran, added up.
    #[serde_as(as = "Nanoseconds")]
    pub(crate) wasted: Duration,
}

/// The result of the latest run of a plugin. A retry replaces the result of the run before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Open,
    Succeeded,
    /// It failed, or nobody saw its end.
    Failed,
    /// It did not succeed after its caller, the runtime, had ended or was stopped.
    CutOff,
}

/// The runs of a plugin with one command.
#[serde_as]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Runs {
    pub(crate) begun: u32,
    pub(crate) succeeded: u32,
    pub(crate) failed: u32,
    /// How many runs ended unseen.
    pub(crate) unseen: u32,
    /// How many runs did not succeed after their caller, the runtime, had ended.
    #[serde(default)]
    pub(crate) cut_off: u32,
    /// The result of the latest run.
    #[serde(default)]
    pub(crate) outcome: Option<Outcome>,
    pub(crate) first_at: Timestamp,
    /// When the latest run began or ended.
    pub(crate) last_at: Timestamp,
    /// The exit code of the last run that failed or was cut off.
    pub(crate) code: Option<u32>,
    /// The exit code of the last run that failed. The code of a run that was cut off says nothing about the
    /// plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed_code: Option<u32>,
    /// How long the failed runs took, added up.
    #[serde_as(as = "Nanoseconds")]
    pub(crate) wasted: Duration,
    /// The longest recent run, and when it ended.
    #[serde_as(as = "Nanoseconds")]
    pub(crate) longest: Duration,
    pub(crate) longest_at: Timestamp,
    /// What it waited for, if that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) longest_waits: Option<CniWait>,
}

/// A longest run is remembered for this long. Then a shorter run takes its place.
pub(crate) const LATELY: Duration = Duration::from_secs(10 * 60);

impl Plugin {
    /// Its entry in the balance of plugins, if no DEL has succeeded since the ADD.
    pub(crate) fn open_entry(&self) -> Option<&Entry> {
        self.entry.as_ref().filter(|it| !it.is_closed)
    }

    /// Its latest entry, if it waits for its judgement.
    pub(crate) fn unjudged_entry(&self) -> Option<&Entry> {
        self.entry.as_ref().filter(|it| it.is_unjudged)
    }

    /// Whether a DEL ended unseen, so that it may have succeeded.
    pub(crate) fn has_unseen_del(&self) -> bool {
        self.del.unseen > 0 || self.del_without_netns.unseen > 0
    }

    /// The runs of each kind of DEL that was called.
    pub(crate) fn dels(&self) -> impl Iterator<Item = &Runs> {
        [&self.del, &self.del_without_netns].into_iter().filter(|runs| runs.begun > 0)
    }

    /// How often DEL was called and has not succeeded.
    #[must_use]
    pub(crate) fn vain_deletions(&self) -> u32 {
        self.dels().map(|runs| runs.begun.saturating_sub(runs.succeeded)).fold(0, u32::saturating_add)
    }

    /// The runs of the DELs of the kind that was called last. None: DEL was never called.
    #[must_use]
    pub(crate) fn last_del(&self) -> Option<&Runs> {
        self.dels().max_by_key(|runs| runs.last_at)
    }

    /// The failures with this command: of ADD all, with those of dropped attachments; of DEL those since a
    /// success.
    #[must_use]
    pub(crate) fn failures_of<'a>(
        &'a self,
        command: CniCommand,
        row: &'a Attachment,
    ) -> Option<Failures<'a>> {
        match command {
            CniCommand::Add => (self.add.failed > 0).then(|| Failures {
                count: self.failures(),
                first_at: self.first_try(),
                last_at: self.add.last_at,
                code: self.add.failed_code.or(self.add.code),
                wasted: self.wasted(),
                asked_at: self.asked_at,
                said: row.message.as_deref(),
            }),
            CniCommand::Del => self.undeleted.as_ref().map(|dels| Failures {
                count: dels.count,
                first_at: dels.first_at,
                last_at: dels.last_at,
                code: Some(dels.code),
                wasted: dels.wasted,
                asked_at: dels.asked_at,
                said: dels.said.as_ref(),
            }),
        }
    }

    /// The exit code of the last DEL that failed. If each was cut off, of the latest of these.
    #[must_use]
    pub(crate) fn del_code(&self) -> Option<u32> {
        self.undeleted.as_ref().map(|dels| dels.code).or_else(|| self.last_del()?.code)
    }

    /// A DEL that began at `begun` has ended. None: nobody saw how.
    pub(in crate::engine::world) fn del_ended(
        &mut self,
        begun: Timestamp,
        at: Timestamp,
        end: Option<&End>,
        took: Duration,
    ) {
        match end {
            None => {}
            Some(end) if end.code == 0 => self.undeleted = None,
            Some(end) => {
                let dels = self.undeleted.get_or_insert_with(|| {
                    Box::new(FailedDels {
                        count: 0,
                        first_at: begun,
                        last_at: at,
                        code: end.code,
                        wasted: Duration::ZERO,
                        asked_at: None,
                        said: None,
                    })
                });
                dels.count = dels.count.saturating_add(1);
                dels.wasted = dels.wasted.saturating_add(took);
                (dels.last_at, dels.code) = (dels.last_at.max(at), end.code);
            }
        }
    }

    /// Sets when the engine last asked for the plugin's message about its failures.
    pub(in crate::engine::world) fn set_asked(&mut self, command: CniCommand, at: Option<Timestamp>) {
        match (command, &mut self.undeleted) {
            (CniCommand::Add, _) => self.asked_at = at,
            (CniCommand::Del, Some(dels)) => dels.asked_at = at,
            (CniCommand::Del, None) => {}
        }
    }

    pub(in crate::engine::world) fn failed_dels(&mut self) -> Option<&mut FailedDels> {
        self.undeleted.as_deref_mut()
    }

    /// How many of the plugin's ADDs failed, with those of dropped attachments.
    #[must_use]
    pub(crate) fn failures(&self) -> u32 {
        self.add.failed.saturating_add(self.earlier.as_ref().map_or(0, |it| it.failed))
    }

    /// When the first of the plugin's ADDs began, with those of dropped attachments.
    #[must_use]
    pub(crate) fn first_try(&self) -> Timestamp {
        self.earlier.as_ref().map_or(self.add.first_at, |it| it.first_at.min(self.add.first_at))
    }

    /// How long the plugin's failed ADDs ran, with those of dropped attachments.
    #[must_use]
    pub(crate) fn wasted(&self) -> Duration {
        self.add.wasted.saturating_add(self.earlier.as_ref().map_or(Duration::ZERO, |it| it.wasted))
    }

    /// Adds the failures of an attachment that is about to be dropped.
    pub(in crate::engine::world) fn count_earlier(&mut self, dropped: &Self) {
        if dropped.failures() == 0 {
            return;
        }
        let before = self.earlier.as_ref();
        self.earlier = Some(Earlier {
            failed: before.map_or(0, |it| it.failed).saturating_add(dropped.failures()),
            first_at: before.map_or(dropped.first_try(), |it| it.first_at.min(dropped.first_try())),
            wasted: before.map_or(Duration::ZERO, |it| it.wasted).saturating_add(dropped.wasted()),
        });
    }
}

impl Runs {
    #[must_use]
    pub(crate) fn is_open(&self) -> bool {
        let over = [self.succeeded, self.failed, self.unseen, self.cut_off];
        self.begun > over.into_iter().fold(0, u32::saturating_add)
    }

    /// Whether the latest run did not succeed because its caller ended.
    #[must_use]
    pub(crate) fn was_cut_off(&self) -> bool {
        self.outcome == Some(Outcome::CutOff)
    }

    /// Whether a run did not do its work, by its own failure or because its caller ended.
    #[must_use]
    pub(crate) fn has_broken_off(&self) -> bool {
        self.failed > 0 || self.cut_off > 0
    }

    pub(in crate::engine::world) fn begin(&mut self, at: Timestamp) {
        if self.begun == 0 {
            self.first_at = at;
        }
        self.begun = self.begun.saturating_add(1);
        self.outcome = Some(Outcome::Open);
        self.last_at = self.last_at.max(at);
    }

    pub(in crate::engine::world) fn end(
        &mut self,
        at: Timestamp,
        end: Option<&End>,
        took: Duration,
        is_cut_off: bool,
    ) {
        self.last_at = self.last_at.max(at);
        let outcome = if end.is_some_and(|end| end.code == 0) {
            Outcome::Succeeded
        } else if is_cut_off {
            Outcome::CutOff
        } else {
            Outcome::Failed
        };
        self.outcome = Some(outcome);
        match end {
            None => self.unseen = self.unseen.saturating_add(1),
            Some(end) if end.code == 0 => self.succeeded = self.succeeded.saturating_add(1),
            Some(end) if is_cut_off => {
                self.cut_off = self.cut_off.saturating_add(1);
                self.code = Some(end.code);
            }
            Some(end) => {
                self.failed = self.failed.saturating_add(1);
                (self.code, self.failed_code) = (Some(end.code), Some(end.code));
                self.wasted = self.wasted.saturating_add(took);
            }
        }
    }

    pub(in crate::engine::world) fn lasted(
        &mut self,
        at: Timestamp,
        took: Duration,
        looked: Option<&Looked>,
    ) {
        if took >= self.longest || at.since(self.longest_at) > LATELY {
            self.longest = took;
            self.longest_at = at;
            self.longest_waits = looked.and_then(|it| it.waits.clone());
        }
    }
}
