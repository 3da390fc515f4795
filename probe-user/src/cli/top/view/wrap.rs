//! Breaks lines at the width of the screen.

use ratatui::text::Span;

/// How much further a broken line is indented.
const HANG: usize = 2;

/// Returns the parts of a line, each no wider than `width`. It is broken at spaces where it has some.
pub(super) fn wrapped(line: &str, width: usize) -> Vec<String> {
    if columns(line) <= width || width == 0 {
        return vec![line.to_owned()];
    }
    let indent = line.len() - line.trim_start_matches(' ').len();
    // A narrow screen has no room for indents.
    let (line, hang) =
        if indent + HANG < width / 2 { (line, indent + HANG) } else { (line.trim_start_matches(' '), 0) };
    let mut parts = Vec::new();
    let mut part = String::new();
    for word in line.split_inclusive(' ') {
        let is_empty = part.trim_start_matches(' ').is_empty();
        if !is_empty && columns(&part) + columns(word.trim_end_matches(' ')) > width {
            parts.push(part.trim_end().to_owned());
            part = " ".repeat(hang);
        }
        // Spaces at a break do not indent the next part.
        if word == " " && !parts.is_empty() && part.trim_start_matches(' ').is_empty() {
            continue;
        }
        for c in word.chars() {
            // Only a word that is wider than the screen gets beyond it here; the space after a word is cut
            // off.
            if columns(&part) + columns(c.encode_utf8(&mut [0; 4])) > width && c != ' ' {
                parts.push(std::mem::replace(&mut part, " ".repeat(hang)));
            }
            part.push(c);
        }
    }
    parts.push(part.trim_end().to_owned());
    parts
}

/// Returns how many columns of the terminal the text takes.
fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

#[cfg(test)]
mod tests {
    use super::{columns, wrapped};

    #[test]
    fn lines_are_broken_at_spaces() {
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!(wrapped("  ab cd ef", 6), ["ab cd", "ef"]);
        assert_eq!(wrapped("  abcd efgh ijkl mnop", 12), ["  abcd efgh", "    ijkl", "    mnop"]);
        assert_eq!(wrapped("abc      def", 6), ["abc", "  def"]);
    }

    #[test]
    fn no_part_is_wider_than_the_screen() {
        for text in
            ["x".repeat(50), format!("    {}", "漢字".repeat(20)), "a bb ccc dddd eeeee ffffff".to_owned()]
        {
            for width in 2..40 {
                let parts = wrapped(&text, width);
                assert!(parts.iter().all(|it| columns(it) <= width), "{width}: {parts:?}");
                let kept: String = parts.concat().split_whitespace().collect();
                assert_eq!(kept, text.split_whitespace().collect::<String>(), "{width}");
            }
        }
    }
}
