//! Calico's IPAM: a handle for each sandbox, which names the blocks of its addresses, and the blocks, which
//! say which handle has each address (`libcalico-go/lib/apis/internalapi` of projectcalico/calico).
//!
//! The handle of a sandbox is named by its container id (`GetHandleID`). Addresses of tunnels, of load
//! balancers and of KubeVirt's virtual machines have handles of other names. So they are held by somebody
//! else than the sandbox, and are never its leak.

use std::{collections::BTreeMap, net::IpAddr};

use serde::Deserialize;

use super::{Asked, Asker, Group, Kind, Unanswered};
use crate::{
    api_server::text::cut,
    model::{fact::StoreKind, id::Subnet},
};

/// Calico uses projectcalico.org/v3 only where crd.projectcalico.org is missing (`UsingV3CRDs`).
pub(crate) const CALICO: Kind = Kind {
    store: StoreKind::Calico,
    name: "Calico's addresses",
    groups: &[("crd.projectcalico.org", "v1"), ("projectcalico.org", "v3")],
    resources: &[HANDLES, BLOCKS],
};

const HANDLES: &str = "ipamhandles";
const BLOCKS: &str = "ipamblocks";

/// The longest name of an object, bytes.
const MAX_NAME_BYTES: usize = 253;
/// The longest text of an object that is logged, bytes.
const MAX_TEXT: usize = 64;

#[derive(Debug, Deserialize)]
struct Handle {
    spec: HandleSpec,
}

#[derive(Debug, Deserialize)]
struct HandleSpec {
    /// How many addresses it has of each block.
    #[serde(default)]
    block: Option<BTreeMap<String, i64>>,
    /// It is about to be removed.
    #[serde(default)]
    deleted: bool,
}

#[derive(Debug, Deserialize)]
struct Block {
    spec: BlockSpec,
}

#[derive(Debug, Deserialize)]
struct BlockSpec {
    cidr: String,
    /// The place in `attributes` of each address that is allocated.
    allocations: Vec<Option<usize>>,
    attributes: Vec<Attributes>,
    /// It is about to be removed, with no address in it.
    #[serde(default)]
    deleted: bool,
}

#[derive(Debug, Deserialize)]
struct Attributes {
    handle_id: Option<String>,
    /// The address is free, and is not given out again for a while.
    #[serde(rename = "releasedAt")]
    released_at: Option<String>,
}

/// Whether the address is allocated to this sandbox.
pub(super) async fn is_held(asker: &mut Asker, group: Group, asked: &Asked) -> Result<bool, Unanswered> {
    let id = handle(asked).ok_or_else(|| {
        let network = cut(&asked.network, MAX_TEXT);
        Unanswered::Unclear(format!("no handle can have the name of the network {network:?}"))
    })?;
    let Some(handle) = asker.object::<Handle>(group, HANDLES, &id).await? else { return Ok(false) };
    let blocks = handle.spec.block.unwrap_or_default();
    if handle.spec.deleted || blocks.is_empty() {
        return Ok(false);
    }
    // A handle may be left over, so the block decides.
    let subnets: Option<Vec<(&String, Subnet)>> =
        blocks.keys().map(|cidr| Some((cidr, subnet(cidr)?))).collect();
    let Some(subnets) = subnets else {
        return Err(Unanswered::Unclear(format!("the handle {id} names a block that is no subnet")));
    };
    let places = subnets.into_iter().map(|(cidr, subnet)| (cidr, place_in(subnet, asked.address)));
    let Some((cidr, place)) = places.filter_map(|(cidr, place)| Some((cidr, place?))).next() else {
        return Ok(false);
    };
    let name = block_name(cidr);
    let Some(block) = asker.object::<Block>(group, BLOCKS, &name).await? else { return Ok(false) };
    let is_held = if block.spec.cidr == *cidr { block.spec.has(&id, place) } else { None };
    is_held.ok_or_else(|| Unanswered::Unclear(format!("the block {name} does not fit together")))
}

impl BlockSpec {
    /// Whether the address at this place is allocated to this handle. None: the block is damaged.
    fn has(&self, id: &str, place: usize) -> Option<bool> {
        if self.deleted {
            return Some(false);
        }
        let Some(place) = self.allocations.get(place)? else { return Some(false) };
        let it = self.attributes.get(*place)?;
        let is_own = it.handle_id.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(id));
        Some(is_own && it.released_at.is_none())
    }
}

/// Returns the name of the handle of a sandbox. None: no object can have that name.
fn handle(asked: &Asked) -> Option<String> {
    let name = format!("{}.{}", asked.network, asked.holder.container).to_ascii_lowercase();
    let is_name = name.len() <= MAX_NAME_BYTES
        && !name.starts_with(['.', '-'])
        && !name.contains("..")
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    is_name.then_some(name)
}

/// Returns the name of a block (`CIDRToName`). The text was parsed, so it has only digits and a few marks.
fn block_name(cidr: &str) -> String {
    cidr.replace(['.', ':', '/'], "-")
}

fn subnet(cidr: &str) -> Option<Subnet> {
    let subnet: Subnet = cidr.parse().ok()?;
    let bits = if subnet.address.is_ipv4() { 32 } else { 128 };
    (subnet.prefix <= bits).then_some(subnet)
}

/// Returns the place of an address in its block. None: the address is not in it.
fn place_in(subnet: Subnet, address: IpAddr) -> Option<usize> {
    let bits = if subnet.address.is_ipv4() { 32 } else { 128 };
    let offset = match (subnet.address, address) {
        (IpAddr::V4(base), IpAddr::V4(address)) => u128::from(address.to_bits().checked_sub(base.to_bits())?),
        (IpAddr::V6(base), IpAddr::V6(address)) => address.to_bits().checked_sub(base.to_bits())?,
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return None,
    };
    let is_within = offset.checked_shr(bits - u32::from(subnet.prefix)).unwrap_or(0) == 0;
    if is_within { usize::try_from(offset).ok() } else { None }
}
