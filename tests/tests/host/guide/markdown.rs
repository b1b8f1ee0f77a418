//! Reads what a Markdown file asks its reader to do.

/// Files and commands of one document.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// Files that the reader writes: name and content of each fenced block whose first line names
    /// one.
    pub(super) files: Vec<(String, String)>,
    /// Blocks of shell commands, from top to bottom.
    pub(super) blocks: Vec<Block>,
    /// Code between single backquotes.
    pub(super) spans: Vec<String>,
}

/// A fenced block of shell commands.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// One command a line.
    pub(super) lines: Vec<String>,
    /// Files of the tests that run it instead, if this one cannot.
    pub(super) run_by: Vec<String>,
}

impl Document {
    pub(super) fn parse(text: &str) -> Self {
        let mut document = Self::default();
        let mut run_by = Vec::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(named) = line.strip_prefix("<!-- run by: ").and_then(|rest| rest.strip_suffix(" -->"))
            {
                run_by = named.split(", ").map(str::to_owned).collect();
            } else if let Some(info) = line.strip_prefix("```") {
                let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
                document.add_fenced(info, &inside, std::mem::take(&mut run_by));
            } else {
                document.spans.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
            }
        }
        document
    }

    fn add_fenced(&mut self, info: &str, inside: &[&str], run_by: Vec<String>) {
        if let Some((_, name)) = info.split_once(' ') {
            self.files.push((name.to_owned(), inside.join("\n") + "\n"));
        } else if info == "sh" {
            let commands = inside.iter().map(|line| without_comment(line)).filter(|line| !line.is_empty());
            self.blocks.push(Block { lines: commands.map(str::to_owned).collect(), run_by });
        }
    }
}

/// Cuts a comment off, which stands behind a space.
fn without_comment(line: &str) -> &str {
    let code = if line.starts_with('#') { "" } else { line.split(" #").next().unwrap_or(line) };
    code.trim_end()
}

/// Replaces a word wherever it is not part of a longer one.
pub(super) fn replace_word(text: &str, word: &str, by: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || "._-".contains(c);
    let mut replaced = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let is_whole = !before.ends_with(is_part) && !after.starts_with(is_part);
        replaced += before;
        replaced += if is_whole { by } else { word };
        rest = after;
    }
    replaced + rest
}

#[test]
fn commands_files_and_exceptions_are_found() {
    let text = "`taut a`\n```toml vm.toml\nx = 1\n```\n```sh\ntaut b  # why\n\n# nothing\n```\n\
                <!-- run by: x.rs, y.rs -->\n```sh\nmake\n```\n```\ndiagram\n```\n";
    let document = Document::parse(text);
    assert_eq!(document.files, [("vm.toml".to_owned(), "x = 1\n".to_owned())]);
    assert_eq!(document.blocks[0].lines, ["taut b"]);
    assert!(document.blocks[0].run_by.is_empty() && document.blocks.len() == 2);
    assert_eq!(document.blocks[1].run_by, ["x.rs", "y.rs"]);
    assert_eq!(document.spans, ["taut a"]);
    assert_eq!(replace_word("netns/a, a-b, a", "a", "x"), "netns/x, a-b, x");
}
