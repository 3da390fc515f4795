//! The header of a recording: the node and the boot.

use std::{env, fs};

use crate::{
    cli::say,
    engine::Settings,
    recording::Header,
    source::{
        cri::name::{NAME, is_word},
        node::clock,
    },
};

/// The name of a node that has none.
const NAMELESS: &str = "unknown";

/// Parses a node's name, which is in every event: a printable word.
pub(in crate::cli) fn node_name(text: &str) -> Result<String, String> {
    if is_word(text, NAME) {
        Ok(text.to_owned())
    } else {
        Err(format!("not a valid node name: give 1 to {NAME} printable ASCII characters without spaces"))
    }
}

/// Returns the first of these names that can be a node's. Each has its origin, for the warning about a name
/// that cannot.
fn first_name(
    names: impl IntoIterator<Item = (&'static str, Option<String>)>,
    warn: impl Fn(&str),
) -> String {
    for (from, name) in names {
        let Some(name) = name else { continue };
        match node_name(&name) {
            Ok(name) => return name,
            Err(why) => warn(&format!("{from} is {name:?}, {why}; set NODE_NAME to another")),
        }
    }
    NAMELESS.to_owned()
}

/// `node` is the name that was typed, if any.
pub(in crate::cli) fn header(node: Option<String>, settings: Settings) -> Header {
    // A DaemonSet's pod gets it from the downward API.
    let variable = env::var_os("NODE_NAME").filter(|name| !name.is_empty());
    let host = fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let names = [
        ("--node", node),
        ("NODE_NAME", variable.map(|name| name.to_string_lossy().into_owned())),
        // The kubelet changes the host's name in the same way.
        ("the host's name", Some(String::from_utf8_lossy(&host).trim().to_lowercase())),
    ];
    let node = first_name(names, say);
    Header {
        made_by: env!("CARGO_PKG_VERSION").to_owned(),
        node,
        boot_id: kernel_value("random/boot_id"),
        kernel: kernel_value("osrelease"),
        boot_wall_ns: clock::boot_wall_ns(),
        settings,
    }
}

fn kernel_value(name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::{NAMELESS, first_name, node_name};

    #[test]
    fn a_node_has_a_name_that_can_be_printed() {
        for name in ["node-1", "ip-10-0-0-1.eu.example", "Edge_1", &"n".repeat(253)] {
            assert_eq!(node_name(name).as_deref(), Ok(name));
        }
        for name in ["", "a b", "a\nb", "\u{1b}[31m", "n\u{f6}de", &"n".repeat(254)] {
            assert!(node_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn what_is_no_name_is_passed_over_and_told() {
        let of = |variable: Option<&str>, host: &str| {
            let told = RefCell::new(Vec::new());
            let names =
                [("NODE_NAME", variable.map(str::to_owned)), ("the host's name", Some(host.to_owned()))];
            let name = first_name(names, |line| told.borrow_mut().push(line.to_owned()));
            (name, told.into_inner())
        };
        assert_eq!(of(Some("n"), "\u{fffd}"), ("n".to_owned(), vec![]));
        assert_eq!(of(None, "h"), ("h".to_owned(), vec![]));
        let (name, told) = of(Some("a b"), "h");
        assert_eq!(name, "h");
        assert_eq!(
            told,
            [
                "NODE_NAME is \"a b\", not a valid node name: give 1 to 253 printable ASCII characters without spaces; set \
                 NODE_NAME to another"
            ]
        );
        let (name, told) = of(None, "");
        assert_eq!((&*name, told.len()), (NAMELESS, 1), "{told:?}");
        assert!(told.iter().all(|line| line.starts_with("the host's name is \"\", not a valid")), "{told:?}");
    }
}
