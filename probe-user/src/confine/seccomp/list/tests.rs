//! The lists match docs/security.md and do not contradict each other.

use std::fs;

use super::{Call, ENOSYS, Group, KILL, NO_LOCAL, OPEN, Only, REMOVE, TAKE, of};
use crate::confine::role::Role;

/// A group as a row of the documentation: its roles and calls, marked if a call has conditions.
fn row(group: &Group, whose: &str) -> String {
    let call = |call: &Call| {
        let mark = if matches!(call.only, Only::Any) { "" } else { "*" };
        format!("`{}`{mark}", call.name)
    };
    let calls: Vec<String> = group.calls.iter().copied().flatten().map(call).collect();
    format!("| {} | {whose} | {} |", group.purpose, calls.join(" "))
}

/// Newer architectures have fewer calls, so the documentation is compared on x86_64.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_documentation_has_every_call_and_capability() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/security.md");
    let text = fs::read_to_string(path).expect("docs/security.md");
    let mut groups: Vec<&Group> = Vec::new();
    for group in Role::ALL.into_iter().flat_map(of) {
        if !groups.iter().any(|it| it.purpose == group.purpose) {
            groups.push(group);
        }
    }
    let mut rows: Vec<String> = groups
        .into_iter()
        .map(|group| {
            let has = |role: &Role| of(*role).iter().any(|it| it.purpose == group.purpose);
            let roles: Vec<&str> = Role::ALL.into_iter().filter(has).map(Role::as_str).collect();
            let whose = if roles.len() == Role::ALL.len() { "all".to_owned() } else { roles.join(", ") };
            row(group, &whose)
        })
        .collect();
    rows.extend([
        row(&REMOVE, "server"),
        row(&OPEN, "server"),
        row(&TAKE, "server"),
        row(&ENOSYS, "none: `ENOSYS`"),
        row(&NO_LOCAL, "none: `ENOSYS`"),
        row(&KILL, "none: it ends the agent"),
    ]);
    for role in Role::ALL {
        let held: Vec<String> = role.capabilities().iter().map(|it| format!("`{it}`")).collect();
        let held = if held.is_empty() { "none".to_owned() } else { held.join(" ") };
        rows.push(format!("| {} | {held} |", role.as_str()));
    }
    let missing: Vec<&String> = rows
        .iter()
        .filter(|row| !text.lines().any(|line| line.starts_with(row.trim_end_matches('|'))))
        .collect();
    assert!(missing.is_empty(), "not in docs/security.md:\n{missing:#?}");
}

#[test]
fn what_ends_the_process_is_nobodys() {
    let names = |groups: &[&Group]| -> Vec<&str> {
        groups.iter().flat_map(|it| it.calls.iter().copied().flatten()).map(|call| call.name).collect()
    };
    let never = names(&[&KILL]);
    for role in Role::ALL {
        assert!(names(of(role)).iter().all(|name| !never.contains(name)), "{}", role.as_str());
    }
}
