//! The words of closed sets in the JSON stream and in the text.

use strum::VariantNames;

use crate::model::{fact::List, phase::Kind};

/// The names of all phases of a start, in their order.
pub(crate) const PHASES: &[&str] = Kind::VARIANTS.split_last().expect("there are phases").1;

/// What a list contains, in the plural.
#[must_use]
pub(crate) fn list(list: List) -> &'static str {
    match list {
        List::Processes => "processes",
        List::Netns => "network namespaces",
        List::Addresses => "addresses",
        List::Cgroups => "cgroups",
        List::Containers => "containers",
        List::Pods => "pods",
        List::CniCache => "attachments in libcni's cache",
        List::Ipam => "stores of addresses",
        List::Runtimes => "runtimes' records",
    }
}

/// The name of a signal that ends processes (`signal(7)`). Their numbers are the same on every architecture.
#[must_use]
pub(crate) fn signal_number(number: u32) -> Option<&'static str> {
    Some(match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        _ => return None,
    })
}
