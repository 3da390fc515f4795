//! The flags of pictures, and the files they are written to.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;

use super::output;
use crate::sink::{chart::Chart, page, perfetto};

#[derive(Debug, Args)]
pub(super) struct Pictures {
    /// Draw a page for a browser into this file instead, which is replaced; "-" is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    html: Option<PathBuf>,

    /// Write a trace (Chrome's JSON) for ui.perfetto.dev into this file instead; "-" is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    perfetto: Option<PathBuf>,
}

impl Pictures {
    pub(super) fn are_wanted(&self) -> bool {
        self.html.is_some() || self.perfetto.is_some()
    }

    pub(super) fn draw(&self, chart: &Chart) -> anyhow::Result<()> {
        if self.html.is_some() && self.html == self.perfetto {
            return Err(anyhow!("--html and --perfetto cannot both go to the same file"));
        }
        if let Some(file) = &self.html {
            put(file, page::page(chart).into_bytes())?;
        }
        if let Some(file) = &self.perfetto {
            put(file, perfetto::write(chart)?)?;
        }
        Ok(())
    }
}

fn put(file: &Path, mut bytes: Vec<u8>) -> anyhow::Result<()> {
    if file == Path::new("-") {
        output::write(&mut bytes)?;
        return Ok(());
    }
    output::replace(file, &bytes)
}
