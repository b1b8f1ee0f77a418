//! Images and chains that `qemu-img` makes are accepted, with the sizes and names that it knows.

use std::fs::{self, File};
use std::path::Path;

use serde_json::Value;
use taut_inspect::{Backing, Format, Image, Subformat, inspect};

use crate::qemu_img::qemu_img;

/// Inspects a chain from the top down, as the daemon resolves it.
fn chain(folder: &Path, top: &str, format: Format) -> Vec<Image> {
    let mut images = Vec::new();
    let mut next = Some((folder.join(top), format));
    while let Some((path, format)) = next {
        let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let image = inspect(&file, format).unwrap_or_else(|refusal| panic!("{}: {refusal}", path.display()));
        let below = |backing: &Backing| (path.parent().unwrap().join(&backing.name), backing.format);
        next = image.backing.as_ref().map(below);
        images.push(image);
    }
    images
}

/// Runs `qemu-img` with each line of arguments, then inspects the chain below an image and compares
/// it with what `qemu-img` says.
fn made(commands: &[&str], top: &str, format: Format) -> Vec<Image> {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("pool")).unwrap();
    for command in commands {
        qemu_img(folder.path(), &command.split(' ').collect::<Vec<_>>());
    }
    compared(folder.path(), top, format)
}

fn compared(folder: &Path, top: &str, format: Format) -> Vec<Image> {
    let images = chain(folder, top, format);
    let told = qemu_img(folder, &["info", "--backing-chain", "--output=json", "-f", format.name(), top]);
    let told: Vec<Value> = serde_json::from_str(&told).unwrap();
    assert_eq!(told.len(), images.len(), "{told:?}");
    for (told, image) in told.iter().zip(&images) {
        assert_eq!(told["format"], image.format.name());
        assert_eq!(told["virtual-size"], image.virtual_size);
        let name = image.backing.as_ref().map(|backing| Value::from(backing.name.clone()));
        assert_eq!(told.get("backing-filename"), name.as_ref());
        if let (Format::Qcow2, Some(bits)) = (image.format, image.cluster_bits) {
            assert_eq!(told["cluster-size"], 1_u64 << bits);
        }
    }
    images
}

#[test]
fn single_images() {
    let alone = |command: &str, format| {
        let images = made(&[command], "a", format);
        assert_eq!(images.len(), 1, "{command}");
        images.into_iter().next().unwrap()
    };
    alone("create -f raw a 1G", Format::Raw);
    assert_eq!(alone("create -f qcow2 a 10G", Format::Qcow2).version, Some(3));
    assert_eq!(alone("create -f qcow2 -o compat=0.10 a 10G", Format::Qcow2).version, Some(2));
    for options in [
        "cluster_size=512",
        "cluster_size=2M",
        "compression_type=zstd",
        "lazy_refcounts=on",
        "refcount_bits=1",
        "refcount_bits=64",
        "preallocation=metadata",
        "preallocation=falloc",
    ] {
        alone(&format!("create -f qcow2 -o {options} a 1G"), Format::Qcow2);
    }
    alone("create -f qcow2 a 64T", Format::Qcow2);
    alone("create -f qcow2 a 512", Format::Qcow2);
}

#[test]
fn raw_over_nothing_with_a_size_of_no_whole_sector() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), vec![7; 1000]).unwrap();
    let images = compared(folder.path(), "a", Format::Raw);
    assert_eq!((images[0].virtual_size, images[0].stated_size), (1024, 1000));
}

#[test]
fn qcow2_over_raw() {
    made(&["create -f raw base 1G", "create -f qcow2 -b base -F raw top"], "top", Format::Qcow2);
}

#[test]
fn qcow2_over_qcow2_over_raw() {
    let commands = [
        "create -f raw base 1G",
        "create -f qcow2 -b base -F raw middle",
        "create -f qcow2 -b middle -F qcow2 top 2G",
    ];
    let images = made(&commands, "top", Format::Qcow2);
    assert_eq!(images.iter().map(|image| image.virtual_size >> 30).collect::<Vec<_>>(), [2, 1, 1]);
}

#[test]
fn version_2_over_version_3() {
    let commands = ["create -f qcow2 base 1G", "create -f qcow2 -o compat=0.10 -b base -F qcow2 top"];
    made(&commands, "top", Format::Qcow2);
}

#[test]
fn a_base_in_a_folder_below() {
    let commands = ["create -f qcow2 pool/base 1G", "create -f qcow2 -b pool/base -F qcow2 top"];
    made(&commands, "top", Format::Qcow2);
}

#[test]
fn a_chain_of_sixteen() {
    let mut commands = vec!["create -f raw 0 1M".to_owned()];
    for level in 1..16 {
        let format = if level == 1 { "raw" } else { "qcow2" };
        commands.push(format!("create -f qcow2 -b {} -F {format} {level}", level - 1));
    }
    let commands: Vec<&str> = commands.iter().map(|command| &**command).collect();
    assert_eq!(made(&commands, "15", Format::Qcow2).len(), 16);
}

#[test]
fn qcow2_over_vmdk() {
    let commands = ["create -f vmdk base 1G", "create -f qcow2 -b base -F vmdk top"];
    let images = made(&commands, "top", Format::Qcow2);
    assert_eq!(images[1].subformat, Some(Subformat::MonolithicSparse));
}

#[test]
fn snapshots_and_bitmaps_inside() {
    let commands = [
        "create -f qcow2 a 1G",
        "snapshot -c first a",
        "snapshot -c second a",
        "bitmap --add a dirty",
        "resize a 3G",
    ];
    assert_eq!(made(&commands, "a", Format::Qcow2)[0].snapshots, 2);
}

#[test]
fn rebased_and_then_on_nothing() {
    let commands = [
        "create -f raw old 1G",
        "create -f raw new 1G",
        "create -f qcow2 -b old -F raw a",
        "rebase -f qcow2 -u -b new -F raw a",
    ];
    let backing = Backing { name: "new".to_owned(), format: Format::Raw };
    assert_eq!(made(&commands, "a", Format::Qcow2)[0].backing, Some(backing));
    for command in ["rebase -f qcow2 -b  a", "rebase -f qcow2 -u -b  a", "rebase -f qcow2 -F raw -b  a"] {
        let images = made(&[&commands[..], &[command]].concat(), "a", Format::Qcow2);
        assert_eq!(images[0].backing, None);
    }
}

#[test]
fn the_hint_for_a_missing_format_works() {
    let folder = tempfile::tempdir().unwrap();
    let run = |command: &str| qemu_img(folder.path(), &command.split(' ').collect::<Vec<_>>());
    run("create -f raw base 1G");
    run("create -f qcow2 -b base -F raw a");
    // QEMU has not made an overlay without a format since 6.1.
    let mut bytes = fs::read(folder.path().join("a")).unwrap();
    bytes[112..116].copy_from_slice(b"none");
    fs::write(folder.path().join("a"), bytes).unwrap();
    let inspected = || inspect(&File::open(folder.path().join("a")).unwrap(), Format::Qcow2);
    let hint = inspected().unwrap_err().hint();
    let (_, command) = hint.split_once("qemu-img ").unwrap();
    run(&command.replace("FORMAT", "raw").replace("IMAGE", "a"));
    assert!(inspected().unwrap().backing.is_some());
}

#[test]
fn sparse_vmdk_images() {
    let subformat = |options: &str| {
        let create = format!("create -f vmdk -o {options} a 3G");
        made(&[&create], "a", Format::Vmdk)[0].subformat
    };
    let expected = Some(Subformat::MonolithicSparse);
    assert_eq!(subformat("subformat=monolithicSparse"), expected);
    assert_eq!(subformat("zeroed_grain=on"), expected);
    assert_eq!(subformat("adapter_type=lsilogic,hwversion=10,compat6=off"), expected);
    let commands = ["create -f raw raw 10M", "convert -f raw -O vmdk -o subformat=streamOptimized raw a"];
    assert_eq!(made(&commands, "a", Format::Vmdk)[0].subformat, Some(Subformat::StreamOptimized));
}

#[test]
fn a_flat_vmdk_names_its_only_extent() {
    let folder = tempfile::tempdir().unwrap();
    qemu_img(folder.path(), &["create", "-f", "vmdk", "-o", "subformat=monolithicFlat", "a.vmdk", "3G"]);
    let images = chain(folder.path(), "a.vmdk", Format::Vmdk);
    let [extent] = &images[0].extents[..] else { panic!("{images:?}") };
    assert_eq!((&*extent.name, extent.offset, extent.size), ("a-flat.vmdk", 0, 3 << 30));
    assert_eq!(fs::metadata(folder.path().join(&extent.name)).unwrap().len(), extent.size);
}

#[test]
fn split_vmdk_images_are_refused_with_a_command() {
    for subformat in ["twoGbMaxExtentSparse", "twoGbMaxExtentFlat"] {
        let folder = tempfile::tempdir().unwrap();
        let option = format!("subformat={subformat}");
        qemu_img(folder.path(), &["create", "-f", "vmdk", "-o", &option, "a.vmdk", "3G"]);
        let refusal = inspect(&File::open(folder.path().join("a.vmdk")).unwrap(), Format::Vmdk).unwrap_err();
        assert!(refusal.hint().contains("qemu-img convert -f vmdk -O qcow2 "), "{}", refusal.hint());
    }
}

#[test]
fn a_vmdk_with_a_parent_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = |command: &str| qemu_img(folder.path(), &command.split(' ').collect::<Vec<_>>());
    run("create -f vmdk base.vmdk 1G");
    run("create -f vmdk -b base.vmdk -F vmdk a.vmdk");
    let refusal = inspect(&File::open(folder.path().join("a.vmdk")).unwrap(), Format::Vmdk).unwrap_err();
    assert_eq!(refusal, taut_inspect::Refusal::ParentName);
}

#[test]
fn what_qemu_img_makes_with_unsupported_features_is_refused() {
    let refused = |options: &str| {
        let folder = tempfile::tempdir().unwrap();
        qemu_img(folder.path(), &["create", "-f", "qcow2", "-o", options, "a", "1G"]);
        inspect(&File::open(folder.path().join("a")).unwrap(), Format::Qcow2).unwrap_err().to_string()
    };
    assert!(refused("data_file=data").starts_with("the image keeps its data in another file"));
    assert!(refused("extended_l2=on").ends_with("bits 0x10 (0x10: extended L2 entries)"));
}
