//! The guest's port: the command's output, mixed with messages from the guest's scripts.
//!
//! A message is a line that begins with this run's token, so output cannot be mistaken for one by chance.

/// A message about the current boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The guest is warm and waits to be saved.
    Ready,
    /// The guest wants to boot again.
    Reboot,
    /// The guest wants to lose its power, and to boot again.
    Cut,
    /// The command has ended with this status.
    Status(u8),
}

/// Splits the port's bytes, whatever the sizes of the reads.
pub(super) struct Port {
    mark: Vec<u8>,
    /// Bytes that may be the beginning of a word.
    held: Vec<u8>,
}

impl Port {
    pub(super) fn new(token: &str) -> Self {
        Self { mark: format!("\n{token} ").into_bytes(), held: Vec::new() }
    }

    /// Returns the output among these bytes, and the first word if there is one. What follows a word is kept
    /// for the next call.
    pub(super) fn take(&mut self, bytes: &[u8]) -> (Vec<u8>, Option<Word>) {
        self.held.extend(bytes);
        let Some(at) = self.held.windows(self.mark.len()).position(|window| window == self.mark) else {
            let keep = self.begun();
            let sure = self.held.len() - keep;
            return (self.held.drain(..sure).collect(), None);
        };
        let said = at + self.mark.len();
        let Some(end) = self.held[said..].iter().position(|byte| *byte == b'\n').map(|end| said + end) else {
            return (self.held.drain(..at).collect(), None);
        };
        let word = read(&self.held[said..end]);
        let output = self.held[..at].to_vec();
        self.held.drain(..=end);
        (output, word)
    }

    /// Returns the bytes that were held as a possible word. Called when nothing more will come.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Returns how many of the last bytes are the beginning of a mark.
    fn begun(&self) -> usize {
        let longest = self.mark.len().min(self.held.len());
        (1..=longest).rev().find(|n| self.held.ends_with(&self.mark[..*n])).unwrap_or(0)
    }
}

fn read(word: &[u8]) -> Option<Word> {
    match word {
        b"ready" => Some(Word::Ready),
        b"reboot" => Some(Word::Reboot),
        b"cut" => Some(Word::Cut),
        number => std::str::from_utf8(number).ok()?.parse().ok().map(Word::Status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The port reads the same wherever its bytes are cut into two.
    #[test]
    fn cuts_do_not_matter() {
        let all = b"one\ntwo\n\ntok 3\n";
        for cut in 0..=all.len() {
            let mut port = Port::new("tok");
            let (mut output, first) = port.take(&all[..cut]);
            let (more, second) = port.take(&all[cut..]);
            output.extend(more);
            assert_eq!(output, b"one\ntwo\n", "cut at {cut}");
            assert_eq!(first.or(second), Some(Word::Status(3)), "cut at {cut}");
        }
    }

    /// The newline before a word is the guest's, not the command's.
    #[test]
    fn output_without_a_newline_stays_so() {
        assert_eq!(Port::new("tok").take(b"x\ntok 0\n"), (b"x".to_vec(), Some(Word::Status(0))));
        assert_eq!(Port::new("tok").take(b"\ntok ready\n"), (Vec::new(), Some(Word::Ready)));
        assert_eq!(Port::new("tok").take(b"\ntok reboot\n"), (Vec::new(), Some(Word::Reboot)));
        assert_eq!(Port::new("tok").take(b"\ntok cut\n"), (Vec::new(), Some(Word::Cut)));
    }

    #[test]
    fn what_only_looks_like_a_word_is_output() {
        let mut port = Port::new("tok");
        let (output, word) = port.take(b"a\ntoken 5\nb\nto");
        assert_eq!((output.as_slice(), word), (b"a\ntoken 5\nb".as_slice(), None));
        assert_eq!(port.rest(), b"\nto");
    }
}
