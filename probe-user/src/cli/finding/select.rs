//! Which findings are selected, and in which order they are listed.

use clap::{Args, builder::PossibleValuesParser};
use strum::VariantNames;

use crate::{
    cli::args::pod,
    model::{
        change::Finding,
        finding::{Kind, Stage},
    },
    sink::select::findings::is_of,
};

#[derive(Debug, Args)]
pub(super) struct Select {
    /// List what is wrong now (the default)
    #[arg(long, conflicts_with = "all")]
    open: bool,

    /// Also list closed findings
    #[arg(long)]
    all: bool,

    /// List incidents instead: findings of one cause as one row or object
    #[arg(long)]
    pub(super) incidents: bool,

    /// List only findings of this kind; may be repeated
    #[arg(long, value_name = "KIND", value_parser = PossibleValuesParser::new(Kind::VARIANTS))]
    kind: Vec<String>,

    /// List only findings of this pod (NAME or NAMESPACE/NAME); may be repeated
    #[arg(long, value_name = "POD", value_parser = pod)]
    pod: Vec<String>,
}

impl Select {
    pub(super) fn keeps(&self, finding: &Finding) -> bool {
        let kind = finding.kind.into_str();
        (self.all || finding.stage != Stage::Closed)
            && (self.kind.is_empty() || self.kind.iter().any(|name| name == kind))
            && (self.pod.is_empty() || self.pod.iter().any(|asked| is_of(finding, asked)))
    }
}
