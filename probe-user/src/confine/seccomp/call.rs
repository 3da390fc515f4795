//! A system call with conditions on its arguments.

use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// The name in the kernel and in the documentation.
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation is held to it by a test"))]
    pub(super) name: &'static str,
    pub(super) number: i64,
    pub(super) only: Only,
}

/// The condition on an argument.
#[derive(Clone, Copy, Debug)]
pub(super) enum Only {
    Any,
    /// These bits of an argument have this value.
    Bits {
        argument: u8,
        mask: u64,
        value: u64,
    },
    /// An argument is one of these values.
    One {
        argument: u8,
        of: &'static [u64],
    },
    /// The first argument is this process's id.
    Own,
}

impl Call {
    /// A call matches if any rule does; without rules every call matches.
    pub(super) fn rules(&self) -> Result<Vec<SeccompRule>, BackendError> {
        match self.only {
            Only::Any => Ok(Vec::new()),
            // The kernel compares the whole word here, so bits above an `int` are checked too.
            Only::Bits { argument, mask, value } => {
                let masked = SeccompCmpOp::MaskedEq(mask);
                Ok(vec![rule(argument, SeccompCmpArgLen::Qword, masked, value)?])
            }
            Only::One { argument, of } => {
                let each =
                    of.iter().map(|value| rule(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *value));
                each.collect()
            }
            Only::Own => {
                let own = u64::from(std::process::id());
                Ok(vec![rule(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, own)?])
            }
        }
    }
}

fn rule(
    argument: u8,
    length: SeccompCmpArgLen,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, length, operator, value)?])
}
