//! One system call, and with which arguments.

use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// As the kernel and the documentation have it.
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation is held to it by a test"))]
    pub(super) name: &'static str,
    pub(super) number: i64,
    pub(super) only: Only,
}

/// What an argument is to be, for the call to match.
#[derive(Clone, Copy, Debug)]
pub(super) enum Only {
    Any,
    /// These bits of an argument are so.
    Bits {
        argument: u8,
        mask: u64,
        value: u64,
    },
    /// An argument is one of these.
    One {
        argument: u8,
        of: &'static [u64],
    },
    /// The first argument is this process.
    Own,
}

impl Call {
    /// Any of them matches; none at all stands for every call.
    pub(super) fn rules(&self) -> Result<Vec<SeccompRule>, BackendError> {
        let rule = |argument, length, operator, value| {
            SeccompRule::new(vec![SeccompCondition::new(argument, length, operator, value)?])
        };
        match self.only {
            Only::Any => Ok(Vec::new()),
            // The kernel takes all of a word here: a bit beyond an `int` is not to slip through.
            Only::Bits { argument, mask, value } => {
                let masked = SeccompCmpOp::MaskedEq(mask);
                Ok(vec![rule(argument, SeccompCmpArgLen::Qword, masked, value)?])
            }
            Only::One { argument, of } => {
                let equal = |value: &u64| rule(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *value);
                of.iter().map(equal).collect()
            }
            Only::Own => {
                let own = u64::from(std::process::id());
                Ok(vec![rule(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, own)?])
            }
        }
    }
}
