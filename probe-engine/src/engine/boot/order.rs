//! Recognizes programs that order a restart of the node, by their arguments.

/// What the arguments of a program say about the node's shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// The node goes down, now or soon.
    Down,
    /// An earlier order is cancelled.
    Cancelled,
}

/// Verbs of systemctl that end the boot. `soft-reboot` keeps the kernel, and so the boot.
const VERBS: [&str; 5] = ["reboot", "poweroff", "halt", "kexec", "default-reboot"];

/// Reads the argv of `reboot`, `poweroff`, `halt`, `shutdown`, `telinit`, `init`, `kexec` and `systemctl`,
/// and of `systemd-shutdown`, which systemd itself becomes at the end.
#[must_use]
pub(crate) fn read(filename: &str, argv: &[String]) -> Option<Said> {
    let program = argv.first().map_or(filename, String::as_str);
    let base = program.rsplit('/').next().unwrap_or(program);
    let rest = argv.get(1..).unwrap_or_default();
    if has(rest, &["--help", "--version", "-w", "--wtmp-only"]) {
        return None;
    }
    match base {
        "shutdown" if has(rest, &["-c"]) => Some(Said::Cancelled),
        // With -k it only warns.
        "shutdown" if has(rest, &["-k", "--show"]) => None,
        "reboot" | "poweroff" | "halt" | "shutdown" | "systemd-shutdown" => Some(Said::Down),
        "telinit" | "init" => has(rest, &["0", "6"]).then_some(Said::Down),
        "kexec" => has(rest, &["-e", "--exec"]).then_some(Said::Down),
        "systemctl" if has(rest, &VERBS) => scheduled(rest),
        _ => None,
    }
}

fn has(args: &[String], wanted: &[&str]) -> bool {
    args.iter().any(|arg| wanted.contains(&arg.as_str()))
}

/// Whether an order (its arguments joined by spaces) can be for a later time. By default, `shutdown` waits
/// for a minute.
#[must_use]
pub(crate) fn is_for_later(by: &str) -> bool {
    let mut words = by.split(' ');
    let program = words.next().unwrap_or_default();
    program.rsplit('/').next() == Some("shutdown") || words.any(|word| word.starts_with("--when"))
}

/// Reads `--when=` of systemctl(1), since systemd 254: the time of the shutdown, or `cancel` or `show` for an
/// earlier order.
fn scheduled(rest: &[String]) -> Option<Said> {
    let joined = rest.iter().find_map(|arg| arg.strip_prefix("--when="));
    let when = joined.or_else(|| {
        rest.windows(2).find_map(|two| (two.first()? == "--when").then_some(two.last()?.as_str()))
    });
    match when {
        Some("" | "cancel") => Some(Said::Cancelled),
        Some("show") => None,
        Some(_) | None => Some(Said::Down),
    }
}

#[cfg(test)]
mod tests {
    use super::{Said, is_for_later, read};

    #[test]
    fn an_order_is_known_by_its_arguments() {
        let said = |line: &str| {
            let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
            read("/x", &argv)
        };
        for down in [
            "reboot",
            "/sbin/reboot -f",
            "shutdown -r now",
            "/usr/bin/systemctl reboot",
            "systemctl reboot --when=+5min",
            "systemctl --when tomorrow reboot",
            "systemctl --force poweroff",
            "telinit 6",
            "kexec -e",
            "/usr/lib/systemd/systemd-shutdown reboot --log-level 6",
        ] {
            assert_eq!(said(down), Some(Said::Down), "{down}");
        }
        for cancelled in ["shutdown -c", "systemctl reboot --when=cancel", "systemctl --when= poweroff"] {
            assert_eq!(said(cancelled), Some(Said::Cancelled), "{cancelled}");
        }
        for other in [
            "shutdown -k now",
            "shutdown --show",
            "reboot --help",
            "reboot -w",
            "systemctl status reboot.target",
            "systemctl soft-reboot",
            "systemctl reboot --when=show",
            "systemctl reboot --when show",
            "telinit 3",
            "init",
            "sh -c reboot",
        ] {
            assert_eq!(said(other), None, "{other}");
        }
        assert_eq!(read("/sbin/reboot", &[]), Some(Said::Down));
    }

    #[test]
    fn an_order_can_be_for_later() {
        for later in [
            "/sbin/shutdown -r +60",
            "shutdown -r",
            "systemctl reboot --when=23:00",
            "systemctl --when 9pm reboot",
        ] {
            assert!(is_for_later(later), "{later}");
        }
        for now in
            ["reboot", "/sbin/reboot -f", "systemctl reboot", "/usr/lib/systemd/systemd-shutdown reboot", ""]
        {
            assert!(!is_for_later(now), "{now}");
        }
    }
}
