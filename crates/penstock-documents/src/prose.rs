//! Readable text from markup: white space is collapsed, blocks are on separate lines, and the length is limited.

use crate::name;

/// Text that is collected up to a limit.
#[derive(Default)]
pub(crate) struct Prose {
    text: String,
    limit: usize,
    cut: bool,
    space: bool,
    line: bool,
}

impl Prose {
    pub(crate) fn new(limit: u64) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Self { text: String::new(), limit, cut: false, space: false, line: false }
    }

    /// Add words; white space of any length between them becomes one space.
    pub(crate) fn push_text(&mut self, text: &str) {
        // After the cut a shorter character may still fit, but the text would then have a gap.
        if self.cut {
            return;
        }
        for c in text.chars() {
            if c.is_whitespace() {
                self.space = true;
                continue;
            }
            self.separate();
            if self.text.len() + c.len_utf8() > self.limit {
                self.cut = true;
                return;
            }
            self.text.push(c);
        }
    }

    /// Begin a new line before the next words.
    pub(crate) fn new_line(&mut self) {
        self.line = true;
    }

    fn separate(&mut self) {
        if !self.text.is_empty() && (self.line || self.space) {
            self.text.push(if self.line { '\n' } else { ' ' });
        }
        (self.line, self.space) = (false, false);
    }

    /// Return the text, and whether some of it was cut off.
    pub(crate) fn finish(mut self) -> (String, bool) {
        let cut = name::cut(&mut self.text, self.limit) || self.cut;
        (self.text, cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_added_after_the_cut() {
        let mut prose = Prose::new(4);
        ["aaa", "é", "b"].into_iter().for_each(|text| prose.push_text(text));
        prose.new_line();
        prose.push_text("c");
        assert_eq!(prose.finish(), ("aaa".to_owned(), true));
    }
}
