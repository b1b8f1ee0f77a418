//! Installations in a folder, as in the mounted image of a VM.

use std::os::unix::fs::PermissionsExt as _;

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: InstallArgs,
}

/// A system without systemd and with a group `taut-vmci`, and a folder with what a build leaves.
struct Image {
    folder: tempfile::TempDir,
}

impl Image {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        write("root/etc/group", "root:x:0:\ntaut-vmci:x:999:\n");
        write("build/taut-guest", "the program");
        write("build/libtaut_vmci.so", "the library");
        write("my.map", "10.0.0.7:* -> cid 12\n");
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn args(&self, words: &str) -> InstallArgs {
        let root = self.path("root");
        let words = format!("install --root {} {words}", root.display());
        Line::try_parse_from(words.split_whitespace()).unwrap().args
    }

    fn install(&self, words: &str) -> io::Result<()> {
        install(&self.args(words), &self.path("build/taut-guest"))
    }

    fn content(&self, file: &str) -> String {
        fs::read_to_string(self.path("root").join(file)).unwrap()
    }
}

#[test]
fn program_library_map_and_rule_are_installed() {
    let image = Image::new();
    image.install("").unwrap();
    assert_eq!(image.content(files::PROGRAM), "the program");
    assert_eq!(image.content(files::LIBRARY), "the library");
    assert_eq!(image.content(files::UNIT_FILE), UNIT);
    assert_eq!(image.content(files::MAP), files::EMPTY_MAP);
    let rule = image.content(files::RULE);
    assert!(rule.contains("GROUP=\"taut-vmci\", MODE=\"0660\""), "{rule}");
    assert!(rule.contains("/usr/local/sbin/taut-guest queue-pairs --device /dev/%k"), "{rule}");
    let mode = fs::metadata(image.path("root").join(files::PROGRAM)).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn an_installation_that_is_repeated_keeps_the_users_map() {
    let image = Image::new();
    let map = image.path("my.map");
    image.install(&format!("--map {}", map.display())).unwrap();
    image.install("").unwrap();
    assert_eq!(image.content(files::MAP), "10.0.0.7:* -> cid 12\n");
}

#[test]
fn what_was_installed_is_taken_back_but_for_map_and_group() {
    let image = Image::new();
    image.install("").unwrap();
    take_back(&image.args("--remove")).unwrap();
    for file in [files::PROGRAM, files::LIBRARY, files::UNIT_FILE, files::RULE] {
        assert!(!image.path("root").join(file).exists(), "{file}");
    }
    assert_eq!(image.content(files::MAP), files::EMPTY_MAP);
    assert!(image.content("etc/group").contains("taut-vmci"));
    take_back(&image.args("--remove")).unwrap();
}

#[test]
fn a_file_that_does_not_exist_changes_nothing() {
    let image = Image::new();
    for words in ["--map /nonexistent/map", "--library /nonexistent/library"] {
        let error = image.install(words).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/") && error.contains("\nhint: name a file"), "{error}");
        assert!(!image.path("root").join(files::PROGRAM).exists());
    }
}

#[test]
fn a_group_may_not_say_anything_else_in_a_rule() {
    for wrong in ["", "1st", "a\"b", "a b", "Group", &"g".repeat(33)] {
        assert!(group_name(wrong).is_err(), "{wrong}");
    }
    assert_eq!(group_name("web-users_2").unwrap(), "web-users_2");
}
