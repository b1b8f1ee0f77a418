//! Commands that a machine runs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time that a command gets, unless it says otherwise.
const LIMIT: Duration = Duration::from_secs(300);

/// Words of a command line: a text that is split at spaces, or a list that is taken as it is.
pub trait Words {
    /// Returns the words.
    fn words(self) -> Vec<String>;
}

impl Words for &str {
    fn words(self) -> Vec<String> {
        self.split_whitespace().map(str::to_owned).collect()
    }
}

impl Words for &String {
    fn words(self) -> Vec<String> {
        self.as_str().words()
    }
}

impl Words for String {
    fn words(self) -> Vec<String> {
        self.as_str().words()
    }
}

impl Words for Vec<String> {
    fn words(self) -> Vec<String> {
        self
    }
}

impl Words for &[&str] {
    fn words(self) -> Vec<String> {
        self.iter().map(|&word| word.to_owned()).collect()
    }
}

impl<const N: usize> Words for [&str; N] {
    fn words(self) -> Vec<String> {
        self.as_slice().words()
    }
}

/// A program with its arguments and how it is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Name on the PATH, or path.
    pub program: String,
    /// Arguments.
    pub arguments: Vec<String>,
    /// Variables that are set, or removed, in its environment.
    pub environment: Vec<(String, Option<String>)>,
    /// Working folder, if not this program's.
    pub folder: Option<PathBuf>,
    /// Time after which it is killed.
    pub limit: Duration,
    /// True if the program gets a session of its own.
    pub has_session: bool,
    /// True if the program's session has priority over everything else on this machine.
    pub is_preferred: bool,
    /// Name under which its output is kept in the row's folder.
    pub record: Option<String>,
    /// Text on its standard input.
    pub input: Option<String>,
}

impl Command {
    /// Makes a command without arguments.
    pub fn new(program: impl AsRef<Path>) -> Self {
        Self {
            program: program.as_ref().to_string_lossy().into_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: None,
            limit: LIMIT,
            has_session: false,
            is_preferred: false,
            record: None,
            input: None,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, words: impl Words) -> Self {
        self.arguments.extend(words.words());
        self
    }

    /// Adds one argument, which may have spaces.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<Path>) -> Self {
        self.arguments.push(argument.as_ref().to_string_lossy().into_owned());
        self
    }

    /// Sets a variable in its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<Path>) -> Self {
        self.environment.push((name.to_owned(), Some(value.as_ref().to_string_lossy().into_owned())));
        self
    }

    /// Removes a variable from its environment.
    #[must_use]
    pub fn without_env(mut self, name: &str) -> Self {
        self.environment.push((name.to_owned(), None));
        self
    }

    /// Runs it in this folder.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Gives it so many seconds.
    #[must_use]
    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Gives it a session of its own: a terminal's Ctrl-C does not reach it, and a signal for the
    /// session reaches all that it starts.
    #[must_use]
    pub fn session(mut self) -> Self {
        self.has_session = true;
        self
    }

    /// Gives it a session of its own (autogroup) with priority over everything else on this
    /// machine.
    #[must_use]
    pub fn preferred(mut self) -> Self {
        self.is_preferred = true;
        self.session()
    }

    /// Keeps its output in the row's folder, under this name with a number before it.
    #[must_use]
    pub fn record(mut self, name: &str) -> Self {
        self.record = Some(name.to_owned());
        self
    }

    /// Writes this to its standard input, which is empty otherwise.
    #[must_use]
    pub fn input(mut self, text: &str) -> Self {
        self.input = Some(text.to_owned());
        self
    }

    /// Runs it in a network namespace.
    #[must_use]
    pub fn in_namespace(mut self, name: &str) -> Self {
        let program = std::mem::replace(&mut self.program, "ip".to_owned());
        let before = ["netns", "exec", name, &program].map(str::to_owned);
        self.arguments.splice(0..0, before);
        self
    }
}

impl fmt::Display for Command {
    /// Writes the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program.rsplit('/').next().unwrap_or(&self.program))?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}
