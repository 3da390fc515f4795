//! A DEL of an attachment that cannot be right.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::model::{
    finding::{CniWrongDel, WrongDelForm},
    id::ContainerId,
    time::Timestamp,
};

/// A DEL that cannot be right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WrongDel {
    pub(crate) at: Timestamp,
    pub(crate) finding: CniWrongDel,
    /// The sandbox whose network namespace the DEL was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) other: Option<ContainerId>,
    /// The ADD was killed because its runtime ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) by_restart: bool,
}

/// A DEL, and the path of the network namespace that it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DelIn {
    pub(crate) at: Timestamp,
    pub(crate) plugin: String,
    pub(crate) path: String,
}

/// At most this many addresses are named that the DEL may have freed.
pub(crate) const ADDRESSES: usize = 16;

impl WrongDel {
    /// The sandbox was given an address after the DEL. Only an ADD that the DEL did not end gives one.
    pub(in crate::engine::world) fn address_given(&mut self, address: IpAddr) {
        let all = &mut self.finding.addresses;
        if self.finding.how == WrongDelForm::AddOpen && !all.contains(&address) && all.len() < ADDRESSES {
            all.push(address);
        }
    }
}
