//! The reference of all families, which `docs/metrics.md` contains between its markers.

use std::fmt::Write as _;

use super::{
    family::{ALL, Family, Pods},
    label::PodLabel,
};

/// Makes the reference: a section for each group, and a row for each family.
#[must_use]
pub fn reference() -> String {
    let mut page = String::new();
    for (heading, families) in ALL {
        page += &format!(
            "### {heading}\n\n| metric | type | labels | unit | meaning | source |\n|---|---|---|---|---|---|\n"
        );
        for family in *families {
            row(family, &mut page);
        }
        page.push('\n');
    }
    page
}

fn row(family: &Family, page: &mut String) {
    let pods = match family.pods {
        Pods::None => &[][..],
        Pods::Workloads => &[PodLabel::Namespace, PodLabel::Workload],
        Pods::All => &PodLabel::ALL,
    };
    let own = family.labels.iter().map(|label| format!("`{label}`"));
    let pods = pods.iter().map(|label| format!("(`{}`)", label.word()));
    let labels = own.chain(pods).collect::<Vec<_>>().join(", ");
    let cells = [family.kind.word(), &labels, family.unit, family.help, family.source];
    let cells =
        cells.map(|cell| if cell.is_empty() { " |".to_owned() } else { format!(" {cell} |") }).concat();
    // Writing to a string cannot fail.
    writeln!(page, "| `{}` |{cells}", family.name).ok();
}
