//! Text from the node as one word of a shell.

/// Instead of a command.
pub(super) const UNPRINTABLE: &str =
    "# its path has characters that could act on a terminal: no command is given for it";

/// `text` as one word, whatever is in it; none if a terminal could act upon it.
pub(super) fn quoted(text: &str) -> Option<String> {
    // What is no printable ASCII could look like something else to who copies it.
    if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return None;
    }
    Some(format!("'{}'", text.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::quoted;

    #[test]
    fn a_shell_takes_it_as_one_word() {
        for text in ["", "a", "a b", "$(reboot)", "it's", "`x`", "a\\", "'; rm -rf /; '", "*", "~", "-n"] {
            let word = quoted(text).expect("printable");
            let shell = Command::new("sh").args(["-c", &format!("printf %s {word}")]).output();
            assert_eq!(String::from_utf8(shell.expect("a shell").stdout).as_deref(), Ok(text));
        }
    }

    #[test]
    fn what_acts_on_a_terminal_is_no_word() {
        for text in ["\u{1b}[2J", "a\nb", "\u{202e}", "é", "\u{7f}"] {
            assert_eq!(quoted(text), None, "{text:?}");
        }
    }
}
