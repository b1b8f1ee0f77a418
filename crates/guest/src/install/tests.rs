//! Installations in a folder, as in the mounted image of a VM.

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt as _, symlink};

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

    /// The root folder.
    fn root(&self) -> Root {
        Root::open(&self.path("root")).unwrap()
    }

    /// Installs from a folder with what a build leaves.
    fn install(&self, words: &str) -> io::Result<()> {
        self.install_from("build/taut-guest", words)
    }

    fn install_from(&self, own: &str, words: &str) -> io::Result<()> {
        install(&self.args(words), &self.path(own), &System::of(&self.root()), own_user())
    }

    fn take_back(&self) -> io::Result<()> {
        take_back(&self.args("--remove"), &System::of(&self.root()), own_user())
    }

    fn content(&self, file: &str) -> String {
        fs::read_to_string(self.path("root").join(file)).unwrap()
    }
}

/// The owner of what this test makes.
fn own_user() -> Owner {
    Owner { user: rustix::process::geteuid().as_raw(), group: rustix::process::getegid().as_raw() }
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
    image.take_back().unwrap();
    for file in [files::PROGRAM, files::LIBRARY, files::UNIT_FILE, files::RULE] {
        assert!(!image.path("root").join(file).exists(), "{file}");
    }
    assert_eq!(image.content(files::MAP), files::EMPTY_MAP);
    assert!(image.content("etc/group").contains("taut-vmci"));
    image.take_back().unwrap();
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

/// A system that runs with systemd and udev, of which some programs fail.
fn with_failing(image: &Image, failing: &[&str]) -> (io::Result<()>, Vec<String>) {
    let calls = RefCell::new(Vec::new());
    let run = |program: &str, words: &[OsString]| {
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        calls.borrow_mut().push(format!("{program} {}", words.join(" ")));
        Ok(!failing.contains(&program))
    };
    let root = image.root();
    let system =
        System { root: &root, run: &run, runs: true, has_systemd: true, systemd_runs: true, has_udev: true };
    let outcome = install(&image.args(""), &image.path("build/taut-guest"), &system, own_user());
    (outcome, calls.into_inner())
}

#[test]
fn the_service_is_enabled_although_group_and_udev_fail() {
    let image = Image::new();
    let (outcome, calls) = with_failing(&image, &["udevadm"]);
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("udevadm control --reload failed\nhint: start the VM anew"), "{error}");
    assert!(calls.contains(&"systemctl enable taut-guest.service".to_owned()), "{calls:?}");
    assert!(calls.contains(&"systemctl restart taut-guest.service".to_owned()), "{calls:?}");

    fs::write(image.path("root/etc/group"), "root:x:0:\n").unwrap();
    fs::remove_file(image.path("root").join(files::RULE)).unwrap();
    let (outcome, calls) = with_failing(&image, &["groupadd", "systemctl"]);
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("hint: make the group taut-vmci yourself"), "{error}");
    assert!(error.contains("\nerror: systemctl enable taut-guest.service failed\nhint: see"), "{error}");
    assert_eq!(calls[0], "groupadd --system taut-vmci");
    assert_eq!(image.content(files::PROGRAM), "the program");
    assert!(!image.path("root").join(files::RULE).exists(), "a rule for a group that does not exist");
    with_failing(&image, &[]).0.unwrap();
}

#[test]
fn a_link_of_the_image_does_not_lead_into_the_host() {
    let image = Image::new();
    let host = image.path("host");
    fs::create_dir(&host).unwrap();
    fs::create_dir(image.path("root/usr")).unwrap();
    symlink(&host, image.path("root/usr/local")).unwrap();
    image.install("").unwrap_err();
    assert_eq!(fs::read_dir(&host).unwrap().count(), 0);
    assert!(image.content(files::RULE).contains("GROUP"), "the rest is installed");
}

#[test]
fn a_folder_that_is_no_root_is_named_with_a_hint() {
    let image = Image::new();
    let words = format!("install --root {}", image.path("build").display());
    let error = run(&Line::try_parse_from(words.split_whitespace()).unwrap().args).unwrap_err().to_string();
    assert!(
        error.contains("is not the root of a system") && error.contains("\nhint: name the folder"),
        "{error}"
    );
}

#[test]
fn an_installation_from_its_place_keeps_the_library() {
    let image = Image::new();
    image.install("").unwrap();
    fs::remove_file(image.path("build/libtaut_vmci.so")).unwrap();
    image.install("").unwrap();
    assert_eq!(image.content(files::LIBRARY), "the library");
    assert_eq!(without_library(true), "kept       /usr/local/lib/libtaut_vmci.so");
    assert!(without_library(false).starts_with("left out   libtaut_vmci.so"));
}

#[test]
fn the_group_is_promised_only_if_udev_gives_it_the_device() {
    assert!(next_step("web", true, true).ends_with("as root or in the group web"));
    assert!(next_step("web", false, true).ends_with("as root"));
    assert!(next_step("web", false, false).contains("there is no udev: give /dev/dax0.0 to the group web"));
}

#[test]
fn the_group_of_a_rule_is_found() {
    assert_eq!(files::group_of_rule(&files::rule("web-users_2")), Some("web-users_2"));
    assert_eq!(files::group_of_rule(""), None);
}
