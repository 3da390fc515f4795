//! The maps that one set of hooks shares with its reader: rings, counters, and the page of the reader.

use std::os::fd::AsFd as _;

use aya::{
    Ebpf,
    maps::{Array, Map, MapData, PerCpuArray},
};
use probe_common::{reader_page::REPORT, tally::Tally};

use super::{Rings, reader_page::ReaderPage, ring_map::RingMap};
use crate::{
    model::{
        fact::{RingRead, RingsRead},
        time::Timestamp,
    },
    source::{
        live::{error::Error, pin::Folder},
        node::clock,
    },
};

/// The maps' names in the object.
const LIFECYCLE: &str = "LIFECYCLE";
const BULK: &str = "BULK";
const TALLY: &str = "TALLY";
const READER: &str = "READER";
const REPORT_NAME: &str = "REPORT";

/// aya copies map values only as types with its own marker trait.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct PodTally(Tally);

// SAFETY: `Tally` is `repr(C)` and made of `u64` alone (zerocopy has it `FromBytes`): any bytes are a valid
// value.
unsafe impl aya::Pod for PodTally {}

pub(crate) struct HookMaps {
    /// The kernel's id of the lifecycle ring, which identifies the hooks.
    pub(crate) hooks: u32,
    pub(crate) page: ReaderPage,
    /// When the last agent read, which is recorded every five minutes.
    pub(crate) read_at: Timestamp,
    pub(crate) rings: Option<Rings>,
    tally: PerCpuArray<MapData, PodTally>,
    report: Array<MapData, [u8; REPORT]>,
}

impl HookMaps {
    /// Takes the maps of an object that was just loaded.
    pub(super) fn take(ebpf: &mut Ebpf) -> Result<Self, Error> {
        Self::with(|name| match ebpf.take_map(name) {
            Some(Map::RingBuf(map) | Map::PerCpuArray(map) | Map::Array(map)) => Ok(map),
            _ => Err(Error::Foreign(name)),
        })
    }

    /// Opens the maps that another agent has pinned.
    pub(super) fn open(folder: &Folder) -> Result<Self, Error> {
        Self::with(|name| MapData::from_pin(folder.map(name)).map_err(|source| Error::Map { name, source }))
    }

    fn with(mut find: impl FnMut(&'static str) -> Result<MapData, Error>) -> Result<Self, Error> {
        let (lifecycle, hooks) = ring(LIFECYCLE, &find(LIFECYCLE)?)?;
        let (bulk, _) = ring(BULK, &find(BULK)?)?;
        let tally = PerCpuArray::try_from(Map::PerCpuArray(find(TALLY)?));
        let tally = tally.map_err(|source| Error::Map { name: TALLY, source })?;
        let report = Array::try_from(Map::Array(find(REPORT_NAME)?));
        let report = report.map_err(|source| Error::Map { name: REPORT_NAME, source })?;
        let page = ReaderPage::new(find(READER)?.fd().as_fd())
            .map_err(|source| Error::Ring { name: READER, source })?;
        let read_at = clock::now().saturating_sub(page.unread_for());
        Ok(Self { hooks, page, read_at, rings: Some(Rings { lifecycle, bulk }), tally, report })
    }

    /// Returns how far the rings were read before.
    pub(crate) fn begins(&self) -> RingsRead {
        let [lifecycle, bulk] =
            self.rings.as_ref().map_or([0; 2], |rings| [rings.lifecycle.position(), rings.bulk.position()]);
        RingsRead {
            hooks: self.hooks,
            since: self.page.since(),
            lifecycle: RingRead { position: lifecycle, lost: 0 },
            bulk: RingRead { position: bulk, lost: 0 },
            ..RingsRead::default()
        }
    }

    /// Returns the counters of each CPU.
    pub(crate) fn tally(&self) -> Result<Vec<Tally>, Error> {
        let values = self.tally.get(&0, 0).map_err(|source| Error::Map { name: TALLY, source })?;
        Ok(values.iter().map(|value| value.0).collect())
    }

    /// Reads the report of the agent that loaded the hooks.
    pub(super) fn report(&self) -> Result<Vec<u8>, Error> {
        let whole = self.report.get(&0, 0).map_err(|source| Error::Map { name: REPORT_NAME, source })?;
        Ok(whole.into_iter().take_while(|byte| *byte != 0).collect())
    }
}

/// Returns the page of the reader, before the maps are taken.
pub(super) fn page(ebpf: &Ebpf) -> Result<ReaderPage, Error> {
    let Some(Map::Array(map)) = ebpf.map(READER) else { return Err(Error::Foreign(READER)) };
    ReaderPage::new(map.fd().as_fd()).map_err(|source| Error::Ring { name: READER, source })
}

/// Leaves a report to the next agent, before the maps are taken. A report that is too long is not left.
pub(super) fn leave_report(ebpf: &mut Ebpf, text: &[u8]) -> Result<(), Error> {
    let mut whole = [0; REPORT];
    if let Some(begin) = whole.get_mut(..text.len()) {
        begin.copy_from_slice(text);
    }
    let map = ebpf.map_mut(REPORT_NAME).ok_or(Error::Foreign(REPORT_NAME))?;
    let done = Array::<_, [u8; REPORT]>::try_from(map).and_then(|mut map| map.set(0, whole, 0));
    done.map_err(|source| Error::Map { name: REPORT_NAME, source })
}

fn ring(name: &'static str, map: &MapData) -> Result<(RingMap, u32), Error> {
    let info = map.info().map_err(|source| Error::Map { name, source })?;
    let ring = RingMap::new(map.fd().as_fd(), info.max_entries());
    Ok((ring.map_err(|source| Error::Ring { name, source })?, info.id()))
}
