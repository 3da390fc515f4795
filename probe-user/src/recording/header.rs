//! The first line: whose recording it is, and what replay must know before the first call.

use serde::{Deserialize, Serialize};

use super::{
    VERSION,
    boot::{Recovered, started},
    id::{Span, Text},
    mirror::Mirror,
};
use crate::engine::{Limits, Settings, boot::Rules};

/// What a recording says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version of sandprobe that made it.
    pub made_by: String,
    pub node: String,
    /// The kernel's random id of the boot: within one, times and sequence numbers are comparable.
    pub boot_id: String,
    /// The kernel's release.
    pub kernel: String,
    /// The wall clock's time at boot, nanoseconds since the epoch, as it was at the start.
    pub boot_wall_ns: i64,
    pub settings: Settings,
}

/// The key by which a recording is known; its value is the version of the format.
#[derive(Deserialize)]
pub(super) struct Mark {
    pub(super) sandprobe_recording: u32,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Line {
    sandprobe_recording: u32,
    made_by: String,
    node: String,
    boot_id: String,
    kernel: String,
    boot_wall_ns: Text<i64>,
    settings: Settled,
}

#[derive(Serialize, Deserialize)]
struct Settled {
    hold_ns: Span,
    first_seq: Text<u64>,
    limits: Limited,
    #[serde(default = "Ruled::usual")]
    boot: Ruled,
}

#[derive(Serialize, Deserialize)]
struct Ruled {
    quiet_ns: Span,
    system: Vec<String>,
    #[serde(default = "started")]
    recovered: Recovered,
}

impl Ruled {
    fn of(rules: &Rules) -> Self {
        let Rules { quiet, system, recovered } = rules;
        Self { quiet_ns: Span::of(quiet), system: system.clone(), recovered: Recovered::of(recovered) }
    }

    fn usual() -> Self {
        Self::of(&Rules::default())
    }

    fn back(self) -> Rules {
        Rules { quiet: self.quiet_ns.back(), system: self.system, recovered: self.recovered.back() }
    }
}

#[derive(Serialize, Deserialize)]
struct Limited {
    leak_grace_ns: Span,
    stuck_after_ns: Span,
    cni_slow_ns: Span,
    cni_queue: u32,
}

impl Limited {
    fn of(limits: &Limits) -> Self {
        let Limits { leak_grace, stuck_after, cni_slow, cni_queue } = limits;
        Self {
            leak_grace_ns: Span::of(leak_grace),
            stuck_after_ns: Span::of(stuck_after),
            cni_slow_ns: Span::of(cni_slow),
            cni_queue: *cni_queue,
        }
    }

    fn back(self) -> Limits {
        Limits {
            leak_grace: self.leak_grace_ns.back(),
            stuck_after: self.stuck_after_ns.back(),
            cni_slow: self.cni_slow_ns.back(),
            cni_queue: self.cni_queue,
        }
    }
}

impl Line {
    pub(super) fn of(header: &Header) -> Self {
        let Header { made_by, node, boot_id, kernel, boot_wall_ns, settings } = header;
        let Settings { hold, first_seq, limits, boot } = settings;
        Self {
            sandprobe_recording: VERSION,
            made_by: made_by.clone(),
            node: node.clone(),
            boot_id: boot_id.clone(),
            kernel: kernel.clone(),
            boot_wall_ns: Text(*boot_wall_ns),
            settings: Settled {
                hold_ns: Span::of(hold),
                first_seq: Text(*first_seq),
                limits: Limited::of(limits),
                boot: Ruled::of(boot),
            },
        }
    }

    pub(super) fn back(self) -> Header {
        let Settled { hold_ns, first_seq, limits, boot } = self.settings;
        Header {
            made_by: self.made_by,
            node: self.node,
            boot_id: self.boot_id,
            kernel: self.kernel,
            boot_wall_ns: self.boot_wall_ns.0,
            settings: Settings {
                hold: hold_ns.back(),
                first_seq: first_seq.0,
                limits: limits.back(),
                boot: boot.back(),
            },
        }
    }
}
