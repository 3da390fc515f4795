//! Prints the whole report, as text or JSON.

use crate::sink::render::doctor::{Grade, Report};

pub(super) fn json(report: &Report) -> serde_json::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(&report.object())?;
    text.push(b'\n');
    Ok(text)
}

pub(super) fn text(report: &Report) -> Vec<u8> {
    let mut text = String::new();
    for check in &report.checks {
        text += &line(check.grade, check.name, &check.found);
        if let Some(advice) = &check.advice {
            text += &more(advice);
        }
    }
    for row in &report.signals {
        let found = match (row.mechanism, row.note.as_str()) {
            (Some(mechanism), "") => mechanism.to_owned(),
            (Some(mechanism), note) => format!("{mechanism}: {note}"),
            (None, note) => note.to_owned(),
        };
        text += &line(row.grade, row.signal, &found);
        for missed in &row.missed {
            text += &more(&format!("not {}: {}", missed.mechanism, missed.why));
        }
        if !row.lacks.is_empty() {
            text += &more(&format!("it needs {}", row.lacks));
        }
    }
    text += match report.grade() {
        Grade::Full => "\nEverything can be seen here.\n",
        Grade::Degraded => "\nsandprobe runs here and sees less than it could.\n",
        Grade::Cannot => "\nsandprobe cannot run here.\n",
    };
    if let Some(cure) = &report.cure {
        text += &format!("To see more: {cure}\n");
    }
    text.into_bytes()
}

fn line(grade: Grade, name: &str, found: &str) -> String {
    let mark = match grade {
        Grade::Full => "ok",
        Grade::Degraded => "less",
        Grade::Cannot => "no",
    };
    format!("{mark:4}  {name:14}  {found}\n")
}

fn more(text: &str) -> String {
    format!("{:22}{text}\n", "")
}

#[cfg(test)]
mod tests {
    use super::{json, text};
    use crate::sink::render::doctor::{Check, Grade, Missed, Report, Row};

    #[test]
    fn the_worst_check_is_the_report_s_grade() {
        let row = Row {
            signal: "netns created",
            grade: Grade::Degraded,
            mechanism: Some("tracepoint"),
            programs: vec!["netns_fork"],
            note: "slower".to_owned(),
            lacks: "CAP_SYSLOG".to_owned(),
            missed: vec![Missed { mechanism: "fexit", why: "no BTF".to_owned() }],
        };
        let mut report = Report {
            checks: vec![Check::full("lockdown", "none")],
            signals: vec![row],
            cure: Some("ask for it".to_owned()),
        };
        assert_eq!(report.grade(), Grade::Degraded);
        assert_eq!(
            String::from_utf8(text(&report)).expect("text"),
            "\
ok    lockdown        none
less  netns created   tracepoint: slower
                      not fexit: no BTF
                      it needs CAP_SYSLOG

sandprobe runs here and sees less than it could.
To see more: ask for it
"
        );
        report.checks.push(Check::cannot("privilege", "x").advised("y"));
        assert_eq!(report.grade(), Grade::Cannot);
        let json: serde_json::Value = serde_json::from_slice(&json(&report).expect("JSON")).expect("JSON");
        assert_eq!(json["grade"], "cannot");
        assert_eq!(json["signals"][0]["missed"][0]["mechanism"], "fexit");
    }
}
