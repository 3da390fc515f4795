//! Reads one message a line, in bounded memory.

use std::io::{self, BufRead};

/// What was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Whole,
    /// It was longer than the limit, and is skipped.
    TooLong,
    End,
}

/// Reads a line of at most `max` bytes into `line`, without its end.
pub(super) fn read(input: &mut impl BufRead, max: usize, line: &mut Vec<u8>) -> io::Result<Line> {
    line.clear();
    let mut is_long = false;
    loop {
        let part = match input.fill_buf() {
            Ok(part) => part,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if part.is_empty() {
            if is_long {
                return Ok(Line::TooLong);
            }
            return Ok(if line.is_empty() { Line::End } else { Line::Whole });
        }
        let end = part.iter().position(|byte| *byte == b'\n');
        let content = part.get(..end.unwrap_or(part.len())).unwrap_or_default();
        is_long |= line.len() + content.len() > max;
        if is_long {
            line.clear();
        } else {
            line.extend_from_slice(content);
        }
        let taken = content.len() + usize::from(end.is_some());
        input.consume(taken);
        if end.is_some() {
            return Ok(if is_long { Line::TooLong } else { Line::Whole });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::{Line, read};

    #[test]
    fn a_long_line_is_skipped_and_takes_no_memory() {
        let text = format!("a\n\n{}\nbc\n{}", "x".repeat(100_000), "y".repeat(9));
        let mut input = BufReader::with_capacity(7, text.as_bytes());
        let mut line = Vec::new();
        let mut seen = Vec::new();
        loop {
            let it = read(&mut input, 8, &mut line).expect("it is read");
            seen.push((it, String::from_utf8_lossy(&line).into_owned()));
            if it == Line::End {
                break;
            }
        }
        let expected = [
            (Line::Whole, "a"),
            (Line::Whole, ""),
            (Line::TooLong, ""),
            (Line::Whole, "bc"),
            (Line::TooLong, ""),
            (Line::End, ""),
        ];
        assert_eq!(seen, expected.map(|(it, text)| (it, text.to_owned())));
        assert!(line.capacity() < 100, "{}", line.capacity());
    }
}
