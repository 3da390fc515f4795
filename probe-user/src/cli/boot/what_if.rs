//! `--what-if`: when pods would have been back if one thing had been otherwise.

use anyhow::anyhow;

use super::{Row, boots, table};
use crate::{
    cli::{
        args::{self, Form},
        say,
        table::aligned,
    },
    duration::positive_duration,
    engine::boot::{
        report::{NodeBoot, RecoveryReport, Zero},
        what_if::{Change, Saving, WhatIf},
    },
    model::recovery::RecoveredPod,
    sink::render::{
        jsonl::boot::{WhatIfLine, what_if_lines},
        recovery::{close, name, names, seconds},
    },
};

type OfReport = fn(&RecoveryReport) -> Option<&RecoveredPod>;

/// How many pods are listed.
const MAX_LISTED: usize = 20;

/// A change, as it was given.
#[derive(Clone, Debug)]
pub(super) struct Question {
    text: String,
    change: Change,
}

/// Parses a change.
pub(super) fn question(text: &str) -> Result<Question, String> {
    let change = match text.split_once('=') {
        None if text == "image-present" => Change::ImagePresent,
        Some(("host-network", pod)) => Change::HostNetwork(args::pod(pod)?),
        Some(("cni-ready", earlier)) => match earlier.strip_prefix('-') {
            Some(span) => Change::CniReady(positive_duration(span)?),
            None => return Err("say how much earlier, such as cni-ready=-6s".to_owned()),
        },
        None | Some(_) => {
            return Err("give host-network=[NAMESPACE/]NAME, image-present or cni-ready=-TIME".to_owned());
        }
    };
    Ok(Question { text: text.to_owned(), change })
}

impl Question {
    /// Answers for each boot of which enough is known. `Err`: it is of none.
    pub(super) fn answer(&self, rows: &[Row], form: Form) -> anyhow::Result<Vec<u8>> {
        let mut answers = Vec::new();
        let mut unknown = Vec::new();
        for (row, boot) in rows.iter().zip(boots(rows)) {
            let now = row.now.max(row.recovery.seen_until);
            let answer = WhatIf::of(&row.recovery, &row.starts, &self.change, now);
            let is_empty = boot.report.numbers.columns.iter().skip(1).all(Option::is_none);
            let why = match answer {
                Ok(it) if it.savings.is_empty() && is_empty => "no pod is back in it".to_owned(),
                Ok(it) => {
                    answers.push((boot, it));
                    continue;
                }
                Err(why) => why.to_string(),
            };
            unknown.push(format!("--what-if {}: {}: {why}", self.text, table::title(&boot)));
        }
        if answers.is_empty() {
            return Err(anyhow!("{}", unknown.join("; ")));
        }
        unknown.iter().for_each(|why| say(why));
        Ok(match form {
            Form::Text => {
                let each = answers.iter().map(|(boot, it)| text(boot, &self.text, it));
                each.collect::<Vec<_>>().join("\n").into_bytes()
            }
            Form::Json => {
                what_if_lines(answers.iter().map(|(boot, it)| WhatIfLine::of(boot, &self.text, it)))?
            }
        })
    }
}

fn text(boot: &NodeBoot<'_>, change: &str, it: &WhatIf) -> String {
    let report = boot.report;
    let from = match report.zero {
        Zero::Order { .. } => "the order of the restart",
        Zero::Kernel(_) => "the kernel's start",
    };
    let pods: [(&str, OfReport); 3] = [
        ("first static pod", |report| report.first_static.as_ref()),
        ("first service pod", |report| report.first_service.as_ref()),
        ("last service pod", |report| report.last_service.as_ref()),
    ];
    let columns = report.numbers.columns.iter().enumerate().skip(1).zip(pods);
    let columns = columns.filter_map(|((n, was), (title, pod))| {
        let with = [&it.most, &it.least].map(|with| with.numbers.columns.get(n).copied().flatten());
        let mut named: Vec<String> = Vec::new();
        for with in [report, &it.least, &it.most] {
            named.extend(pod(with).map(|it| name(&it.pod)).filter(|name| !named.contains(name)));
        }
        let [earliest, latest] = with;
        Some(row(title, [(*was)?, earliest?, latest?].map(|it| it.ns), named.join(", then ")))
    });
    let each = it.savings.iter().take(MAX_LISTED).map(|Saving { pod, back, saves }| {
        let times = [*back, back.saturating_sub(saves.most), back.saturating_sub(saves.least)];
        row("pod", times.map(|at| report.since_zero(at)), name(pod))
    });
    let rows: Vec<_> = columns.chain(each).collect();
    let mut text = format!("{}\nwith {change}, from {from}; {}\n", table::title(boot), close(&report.close));
    text += &aligned(["BACK", "WAS", "WOULD BE", "SAVES", "POD"], &rows);
    if let Some(more) = it.savings.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
        text += &format!("and {more} more pods\n");
    }
    if it.savings.is_empty() {
        text += "it would change nothing\n";
    }
    if !it.unknown.is_empty() {
        text += &format!("as they were, since their starts are not known: {}\n", names(&it.unknown));
    }
    text
}

fn row(title: &str, [was, earliest, latest]: [i64; 3], pod: String) -> [String; 5] {
    let saves = between(was - latest, was - earliest);
    [title.to_owned(), seconds(was), between(earliest, latest), saves, pod]
}

/// Formats two bounds, or one time if both are the same.
fn between(least: i64, most: i64) -> String {
    let [least, most] = [seconds(least), seconds(most)];
    if least == most { least } else { format!("{least} to {most}") }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{super::replayed, Form, question};

    fn recording(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/recordings").join(name)
    }

    fn answer(text: &str, name: &str, form: Form) -> anyhow::Result<String> {
        let (rows, _) = replayed::rows(&[recording(name)])?;
        let asked = question(text).map_err(anyhow::Error::msg)?;
        Ok(String::from_utf8(asked.answer(&rows, form)?)?)
    }

    /// The advice of the study of recoveries: a pod on the node's network is back 8 to 9 s earlier, and one
    /// whose image is there 10 to 20 s earlier.
    #[test]
    fn the_advice_of_the_study_has_its_numbers() {
        let told = |change| answer(change, "studies/what-if.jsonl", Form::Text).expect("an answer");
        assert_eq!(
            told("host-network=web"),
            "\
2026-11-18 11:06:40 edge-1 what-if
with host-network=web, from the order of the restart; all 2 service pods of before are back
BACK               WAS       WOULD BE  SAVES    POD
first static pod   31.318 s  31.318 s  0.000 s  default/yurthub
first service pod  41.000 s  32.798 s  8.202 s  default/web
last service pod   57.000 s  57.000 s  0.000 s  default/report
pod                41.000 s  32.798 s  8.202 s  default/web
"
        );
        let image = told("image-present");
        assert_eq!(
            image,
            "\
2026-11-18 11:06:40 edge-1 what-if
with image-present, from the order of the restart; all 2 service pods of before are back
BACK               WAS       WOULD BE              SAVES                 POD
first static pod   31.318 s  30.823 s to 31.318 s  0.000 s to 0.495 s    default/yurthub
first service pod  41.000 s  34.515 s to 41.000 s  0.000 s to 6.485 s    default/web
last service pod   57.000 s  40.505 s to 43.000 s  14.000 s to 16.495 s  default/report
pod                57.000 s  40.505 s to 43.000 s  14.000 s to 16.495 s  default/report
pod                41.000 s  34.515 s to 41.000 s  0.000 s to 6.485 s    default/web
pod                38.500 s  36.005 s to 38.500 s  0.000 s to 2.495 s    default/flannel
pod                31.318 s  30.823 s to 31.318 s  0.000 s to 0.495 s    default/yurthub
"
        );
        assert!(include_str!("../../../../docs/boot.md").contains(&image), "the page shows it");
        // The first of three ADDs that failed would have succeeded.
        let earlier = "pod                41.000 s  32.801 s              8.199 s             default/web\n";
        assert!(told("cni-ready=-9s").contains(earlier));
    }

    #[test]
    fn json_has_the_same_and_the_page_its_members() {
        let json =
            answer("host-network=default/web", "studies/what-if.jsonl", Form::Json).expect("an answer");
        let line: serde_json::Value = serde_json::from_str(&json).expect("a line");
        crate::cli::boot::table::tests::check(&line, include_str!("../../../../docs/boot.md"));
        let [saving] = line["what_if"]["savings"].as_array().expect("savings").as_slice() else {
            panic!("{line:#}")
        };
        assert_eq!((&saving["pod"], &saving["least_ns"]), (&"default/web".into(), &"8202000000".into()));
    }

    #[test]
    fn what_cannot_be_computed_is_refused() {
        for bad in ["", "image-present=no", "cni-ready=6s", "cni-ready=-0s", "cni-ready=-x", "host-network="]
        {
            assert!(question(bad).is_err(), "{bad}");
        }
        let why = answer("host-network=other", "studies/what-if.jsonl", Form::Text).expect_err("no such pod");
        assert!(why.to_string().ends_with("no start of this pod is known"), "{why}");
        let why =
            answer("image-present", "boots/runtime-restart.jsonl", Form::Text).expect_err("no pod is back");
        assert!(why.to_string().ends_with("no pod is back in it"), "{why}");
    }
}
