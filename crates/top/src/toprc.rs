//! The file that keeps a user's settings: `toprc`, as TOML.
//!
//! Whatever it says is checked: a program may have written it, or somebody else if `taut top` runs
//! with another user's home.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use taut_api::printable::printable;

use crate::settings::{Layout, SECONDS, Settings};
use crate::view::View;

/// Largest size of the file in bytes.
const LARGEST: u64 = 64 << 10;
/// Most characters of the file's content in an error.
const MOST_QUOTED: usize = 80;

/// The file's content. Lists and orders of columns are by view.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    view: View,
    seconds: f64,
    vms_only: bool,
    /// Column by which rows are ordered.
    sort: BTreeMap<String, String>,
    /// Columns that are shown, in their order.
    columns: BTreeMap<String, Vec<String>>,
}

/// Why settings could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ToprcError {
    /// The file cannot be opened, read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is no regular file, or too large.
    #[error("{}: it is no file of at most {} KiB", .0.display(), LARGEST >> 10)]
    NoFile(PathBuf),
    /// The content is not what this version writes.
    #[error("{}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Neither `XDG_CONFIG_HOME` nor `HOME` names a folder.
    #[error("neither XDG_CONFIG_HOME nor HOME is an absolute path")]
    NoHome,
}

/// Returns the path of the file: `$XDG_CONFIG_HOME/taut/toprc` or `~/.config/taut/toprc`.
pub fn path() -> Result<PathBuf, ToprcError> {
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let config = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
    Ok(config.ok_or(ToprcError::NoHome)?.join("taut/toprc"))
}

/// Reads settings; the usual ones if there is no file.
pub fn read(path: &Path) -> Result<Settings, ToprcError> {
    let failed = |source| ToprcError::File { path: path.to_owned(), source };
    // An open of a FIFO must not wait for a writer.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = match File::options().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Settings::default()),
        Err(error) => return Err(failed(error)),
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(ToprcError::NoFile(path.to_owned()));
    }
    let mut text = String::new();
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > LARGEST {
        return Err(ToprcError::NoFile(path.to_owned()));
    }
    parse(&text).map_err(|reason| ToprcError::Content { path: path.to_owned(), reason })
}

/// Writes settings, in place of the former ones at once.
pub fn write(path: &Path, settings: &Settings) -> Result<(), ToprcError> {
    let failed = |source| ToprcError::File { path: path.to_owned(), source };
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(failed)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(name);
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside);
    let written = written.and_then(|mut file| file.write_all(format(settings).as_bytes()));
    written.and_then(|()| fs::rename(&beside, path)).map_err(|error| {
        let _ = fs::remove_file(&beside);
        failed(error)
    })
}

fn format(settings: &Settings) -> String {
    let title = |view: View, column: usize| view.columns()[column].title.to_owned();
    let sort = View::ALL.map(|view| (view.word().to_owned(), title(view, settings.layout(view).sort)));
    let columns = View::ALL.map(|view| {
        let shown = settings.layout(view).shown().map(|column| title(view, column)).collect();
        (view.word().to_owned(), shown)
    });
    let saved = Saved {
        view: settings.view,
        seconds: settings.seconds,
        vms_only: settings.vms_only,
        sort: sort.into(),
        columns: columns.into(),
    };
    toml::to_string(&saved).expect("words and numbers are TOML")
}

fn parse(text: &str) -> Result<Settings, String> {
    let saved: Saved = toml::from_str(text).map_err(|error| printable(error.message(), MOST_QUOTED))?;
    if !SECONDS.contains(&saved.seconds) {
        return Err(format!(
            "seconds: {} is not from {} to {}",
            saved.seconds,
            SECONDS.start(),
            SECONDS.end()
        ));
    }
    let mut settings = Settings {
        view: saved.view,
        seconds: saved.seconds,
        vms_only: saved.vms_only,
        ..Settings::default()
    };
    for view in View::ALL {
        let column = |title: &String| {
            let unknown =
                || format!("{}: there is no column `{}`", view.word(), printable(title, MOST_QUOTED));
            view.column(title).ok_or_else(unknown)
        };
        if let Some(titles) = saved.columns.get(view.word()) {
            let shown = titles.iter().map(column).collect::<Result<Vec<_>, _>>()?;
            *settings.layout_mut(view) = Layout::of(view, &shown);
        }
        if let Some(title) = saved.sort.get(view.word()) {
            settings.layout_mut(view).sort = column(title)?;
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taut/toprc");
        assert_eq!(read(&path).unwrap(), Settings::default());
        let mut settings =
            Settings { view: View::VmDisk, seconds: 0.5, vms_only: true, ..Settings::default() };
        settings.layout_mut(View::Cpu).toggle(3);
        settings.layout_mut(View::Network).sort = 4;
        settings.layout_mut(View::Memory).shift(0, false);
        write(&path, &settings).unwrap();
        write(&path, &settings).unwrap();
        let again = read(&path).unwrap();
        assert_eq!(
            (again.view, again.seconds.to_string(), again.vms_only),
            (View::VmDisk, "0.5".into(), true)
        );
        for view in View::ALL {
            let (again, first) = (again.layout(view), settings.layout(view));
            assert_eq!(again.shown().collect::<Vec<_>>(), first.shown().collect::<Vec<_>>());
            assert_eq!(again.sort, first.sort);
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_file_that_says_something_else_is_refused() {
        let good = format(&Settings::default());
        assert_eq!(parse(&good).unwrap(), Settings::default());
        for (from, to) in [
            ("seconds = 5.0", "seconds = nan"),
            ("seconds = 5.0", "seconds = 0.0"),
            ("view = \"cpu\"", "view = \"\\u001b[2J\""),
            ("\"%RDY\"", "\"%RDY\\u001b\""),
            ("vms_only = false", "vms_only = false\nmore = 1"),
        ] {
            assert!(good.contains(from), "{from} in {good}");
            let reason = parse(&good.replacen(from, to, 1)).unwrap_err();
            assert!(!reason.contains('\u{1b}'), "{reason:?}");
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(read(dir.path()), Err(ToprcError::NoFile(_))));
        let large = dir.path().join("large");
        fs::write(&large, "#".repeat(70_000)).unwrap();
        assert!(matches!(read(&large), Err(ToprcError::NoFile(_))));
    }
}
