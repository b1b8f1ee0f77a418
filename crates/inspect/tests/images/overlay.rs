//! Empty overlays as QEMU sees them.

use std::fs;

use taut_inspect::overlay::empty_qcow2;

use crate::qemu_img::qemu_img;

#[test]
fn qemu_finds_nothing_wrong_with_an_overlay() {
    let folder = tempfile::tempdir().unwrap();
    for size in [512, 1 << 30, (5 << 30) + 512, 64 << 40] {
        fs::write(folder.path().join("a"), empty_qcow2(size).unwrap()).unwrap();
        let checked = qemu_img(folder.path(), &["check", "-f", "qcow2", "--output=json", "a"]);
        let checked: serde_json::Value = serde_json::from_str(&checked).unwrap();
        assert_eq!(checked["check-errors"], 0, "{checked}");
        assert!(checked.get("leaks").is_none() && checked.get("corruptions").is_none(), "{checked}");
        let told = qemu_img(folder.path(), &["info", "-f", "qcow2", "--output=json", "a"]);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["virtual-size"], size);
        assert!(told.get("backing-filename").is_none(), "{told}");
    }
}

#[test]
fn an_overlay_shows_the_node_below_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("base"), b"taut".repeat(256 << 10)).unwrap();
    fs::write(folder.path().join("a"), empty_qcow2(1 << 20).unwrap()).unwrap();
    let overlay = "driver=qcow2,file.driver=file,file.filename=a,backing.driver=raw,\
                   backing.file.driver=file,backing.file.filename=base";
    let base = "driver=raw,file.driver=file,file.filename=base";
    let told = qemu_img(folder.path(), &["compare", "--image-opts", overlay, base]);
    assert_eq!(told.trim(), "Images are identical.");
}
