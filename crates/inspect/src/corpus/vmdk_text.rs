//! VMDK descriptors, inside an image and in a file of their own.

use super::vmdk_file::{DESCRIPTOR, with_descriptor};
use super::{Hostile, Valid};
use crate::image::{Extent, Format, Image, Subformat};
use crate::name::NameFault;
use crate::refusal::{Place, Refusal};

const SIZE: u64 = 2 << 20;
const EXTENT: &str = "RW 4096 FLAT \"disk-flat.vmdk\" 0";

/// A descriptor in a file of its own.
fn flat(create_type: &str, extents: &str) -> String {
    format!(
        "# Disk DescriptorFile\nversion=1\nencoding=\"UTF-8\"\nCID=123a9f0e\nparentCID=ffffffff\n\
         isNativeSnapshot=\"no\"\ncreateType=\"{create_type}\"\n\n# Extent description\n{extents}\n\n\
         # The Disk Data Base\n#DDB\n\nddb.virtualHWVersion = \"4\"\nddb.geometry.cylinders = \"4\"\n"
    )
}

pub(super) fn valid() -> Vec<Valid> {
    let image = |offset| Image {
        extents: vec![Extent { name: "disk-flat.vmdk".to_owned(), offset, size: SIZE }],
        subformat: Some(Subformat::MonolithicFlat),
        ..Image::new(Format::Vmdk, SIZE)
    };
    let plain = flat("monolithicFlat", EXTENT);
    let tracked = plain.replace("CID=123a", "changeTrackPath=\"disk-ctk.vmdk\"\nCID=123a");
    let cases = [
        ("a flat disk", plain.clone(), image(0)),
        ("a flat disk in a part of a file", plain.replace("\" 0", "\" 63"), image(63 * 512)),
        ("a descriptor with the line ends of Windows", plain.replace('\n', "\r\n"), image(0)),
        ("a descriptor with tracked changes", tracked, image(0)),
        ("a descriptor and zeros", plain + "\0\0\0", image(0)),
    ];
    let all = cases.into_iter().map(|(name, text, answer)| Valid {
        name: format!("vmdk: {name}"),
        format: Format::Vmdk,
        image: text.into_bytes(),
        answer,
    });
    all.collect()
}

pub(super) fn hostile() -> Vec<Hostile> {
    let inside =
        lines_inside().into_iter().map(|(name, text, refusal)| (name, with_descriptor(&text).0, refusal));
    let texts = flat_disks()
        .into_iter()
        .chain(lines())
        .map(|(name, text, refusal)| (name, text.into_bytes(), refusal));
    let all = inside.chain(texts).chain(types()).chain(bytes()).map(|(name, image, refusal)| Hostile {
        name: format!("vmdk: {name}"),
        format: Format::Vmdk,
        image,
        refusal,
    });
    all.collect()
}

type Case<T> = (&'static str, T, Refusal);

fn extent_name(name: &str, fault: NameFault) -> Refusal {
    Refusal::ExtentName { name: name.to_owned(), fault }
}

/// Descriptors inside an image.
fn lines_inside() -> Vec<Case<String>> {
    let with = |from: &str, to: &str| DESCRIPTOR.replace(from, to);
    let extent = "RW 4096 SPARSE \"disk.vmdk\"";
    let kind = |kind: &str, access| Refusal::ExtentKind {
        kind: kind.to_owned(),
        access,
        expected: "RW or RDONLY with SPARSE",
    };
    vec![
        (
            "a flat disk in a single file",
            with("monolithicSparse", "monolithicFlat"),
            Refusal::CreateType { create_type: "monolithicFlat".to_owned(), place: Place::Image },
        ),
        (
            "a part of a split disk",
            with("monolithicSparse", "twoGbMaxExtentSparse"),
            Refusal::CreateType { create_type: "twoGbMaxExtentSparse".to_owned(), place: Place::Image },
        ),
        (
            "a difference to a parent",
            with("=ffffffff", "=123a9f0e"),
            Refusal::Parent { cid: "123a9f0e".to_owned() },
        ),
        (
            "the name of a parent",
            with("createType", "parentFileNameHint=\"/etc/shadow\"\ncreateType"),
            Refusal::ParentName,
        ),
        (
            "the name of a parent in a comment",
            with("# Extent", "# parentFileNameHint=\"/etc/shadow\"\n# Extent"),
            Refusal::ParentName,
        ),
        (
            "the name of a parent in the disk's database",
            with("\"ide\"", "\"ide\"\nddb.parentFileNameHint = \"/etc/shadow\""),
            Refusal::ParentName,
        ),
        ("no extent", with(extent, ""), Refusal::ExtentCount { count: 0 }),
        ("two extents", with(extent, &format!("{extent}\n{extent}")), Refusal::ExtentCount { count: 2 }),
        ("a flat extent", with(extent, EXTENT), kind("FLAT", "RW")),
        ("an extent of zeros", with(extent, "RW 4096 ZERO"), kind("ZERO", "RW")),
        ("an extent without access", with("RW 4096", "NOACCESS 4096"), kind("SPARSE", "NOACCESS")),
        (
            "an extent above",
            with("disk.vmdk", "../disk.vmdk"),
            extent_name("../disk.vmdk", NameFault::Parent),
        ),
    ]
}

/// Descriptors of flat disks, whose only extent is wrong (CVE-2022-47951 and relatives).
fn flat_disks() -> Vec<Case<String>> {
    let extent = |line: &str| flat("monolithicFlat", line);
    let named = |name: &str| extent(&format!("RW 4096 FLAT \"{name}\" 0"));
    let kind =
        |kind: &str, access| Refusal::ExtentKind { kind: kind.to_owned(), access, expected: "RW with FLAT" };
    let long = "a".repeat(256);
    let short: String = long.chars().take(120).collect();
    vec![
        (
            "a flat extent anywhere (CVE-2022-47951)",
            named("/etc/shadow"),
            extent_name("/etc/shadow", NameFault::Absolute),
        ),
        ("a flat extent above", named("../x"), extent_name("../x", NameFault::Parent)),
        ("a flat extent in a folder", named("pool/x"), extent_name("pool/x", NameFault::Folder)),
        ("a flat extent by a backslash", named("..\\x"), extent_name("..\\x", NameFault::Folder)),
        ("a flat extent on a server", named("nbd:x"), extent_name("nbd:x", NameFault::Scheme)),
        ("a flat extent in JSON", named("json:{}"), extent_name("json:{}", NameFault::Scheme)),
        ("a flat extent without a name", named(""), extent_name("", NameFault::Empty)),
        (
            "a flat extent with a long name",
            named(&long),
            extent_name(&short, NameFault::TooLong { len: 256, limit: 255 }),
        ),
        ("two flat extents", extent(&format!("{EXTENT}\n{EXTENT}")), Refusal::ExtentCount { count: 2 }),
        ("no flat extent", extent(""), Refusal::ExtentCount { count: 0 }),
        ("a flat extent to read", extent(&EXTENT.replace("RW", "RDONLY")), kind("FLAT", "RDONLY")),
        ("a sparse extent of a flat disk", extent("RW 4096 SPARSE \"x.vmdk\""), kind("SPARSE", "RW")),
        ("a flat extent without sectors", extent(&EXTENT.replace("4096", "0")), Refusal::NoSize),
        (
            "a flat extent of most sectors",
            extent(&EXTENT.replace("4096", "18446744073709551615")),
            Refusal::TooLarge { size: u64::MAX },
        ),
        (
            "a flat extent at most sectors",
            extent(&EXTENT.replace("\" 0", "\" 18446744073709551615")),
            Refusal::TooLarge { size: u64::MAX },
        ),
        (
            "a flat difference",
            extent(EXTENT).replace("=ffffffff", "=fffffff0"),
            Refusal::Parent { cid: "fffffff0".to_owned() },
        ),
    ]
}

/// Lines that are wrong, whatever the disk is.
fn lines() -> Vec<Case<String>> {
    let plain = || flat("monolithicFlat", EXTENT);
    let unknown = |number, line: &str| Refusal::DescriptorLine { number, line: line.to_owned() };
    // The line that is added is the 9th, as the extent's comment was.
    let with = |line: &str| plain().replace("# Extent description", line);
    let words = "RW 4096 FLAT disk-flat.vmdk 0";
    let command = "include \"/etc/shadow\"";
    vec![
        ("a line of unknown words", with(command), unknown(9, command)),
        ("an unknown setting", with("dataFile=\"/etc/shadow\""), unknown(9, "dataFile=\"/etc/shadow\"")),
        ("an extent without quotes", with(words), unknown(9, words)),
        ("an extent with a negative size", with("RW -1 FLAT \"x\" 0"), unknown(9, "RW -1 FLAT \"x\" 0")),
        ("an extent of an unknown kind", with("RW 1 LINK \"x\""), unknown(9, "RW 1 LINK \"x\"")),
        ("control characters", with("# \u{1b}[2J"), unknown(9, "# \u{1b}[2J")),
        ("a line end within a line", with("# a\rRW 1 ZERO"), unknown(9, "# a\rRW 1 ZERO")),
        (
            "two types",
            with("createType=\"vmfs\""),
            Refusal::DescriptorRepeats { number: 9, key: "createType" },
        ),
        ("no type", plain().replace("createType", "#"), Refusal::DescriptorLacks { key: "createType" }),
        ("no CID", plain().replace("\nCID", "\n#"), Refusal::DescriptorLacks { key: "CID" }),
        (
            "no CID of a parent",
            plain().replace("parentCID", "#"),
            Refusal::DescriptorLacks { key: "parentCID" },
        ),
    ]
}

/// Types that are not supported.
fn types() -> Vec<Case<Vec<u8>>> {
    let cases = [
        ("a split disk", "twoGbMaxExtentSparse", "RW 1 SPARSE \"x-s001.vmdk\"\nRW 1 SPARSE \"x-s002.vmdk\""),
        ("a split flat disk", "twoGbMaxExtentFlat", "RW 1 FLAT \"x-f001.vmdk\" 0"),
        ("a flat disk of ESX", "vmfs", "RW 1 VMFS \"x-flat.vmdk\""),
        ("a delta of ESX", "vmfsSparse", "RW 1 VMFSSPARSE \"x-delta.vmdk\""),
        ("a newer delta of ESX", "seSparse", "RW 1 SESPARSE \"x-sesparse.vmdk\""),
        ("a device of ESX", "vmfsRDM", "RW 1 VMFSRDM \"x-rdm.vmdk\""),
        ("a device", "fullDevice", "RW 1 FLAT \"/dev/sda\" 0"),
        ("partitions of a device", "partitionedDevice", "RW 1 FLAT \"/dev/sda\" 0 partitionUUID /dev/sda"),
        ("a sparse disk whose header is elsewhere", "monolithicSparse", "RW 1 SPARSE \"x.vmdk\""),
        ("a custom disk", "custom", "RW 1 FLAT \"/etc/shadow\" 0"),
        ("an empty type", "", EXTENT),
    ];
    let all = cases.into_iter().map(|(name, create_type, extents)| {
        let refusal = Refusal::CreateType { create_type: create_type.to_owned(), place: Place::File };
        (name, flat(create_type, extents).into_bytes(), refusal)
    });
    all.collect()
}

/// Descriptors that are no text, or too much.
fn bytes() -> Vec<Case<Vec<u8>>> {
    let plain = || flat("monolithicFlat", EXTENT).into_bytes();
    let long = [plain(), vec![b'\n'; 1 << 20]].concat();
    let bytes = long.len() as u64;
    let (latin, zero) = ([plain(), b"# gr\xf6\n".to_vec()].concat(), [plain(), b"\0#".to_vec()].concat());
    let (at, ended) = (plain().len() as u64 + 4, zero.len() as u64);
    vec![
        ("a descriptor of over 1 MiB", long, Refusal::DescriptorSize { bytes, limit: (1 << 20) - 1 }),
        ("a descriptor that is not UTF-8", latin, Refusal::DescriptorEncoding { at }),
        ("a descriptor with a hidden end", zero, Refusal::DescriptorEnd { bytes: ended }),
        (
            "a descriptor that begins differently",
            b"version=1\nCID=1\n".to_vec(),
            Refusal::NotVmdk { magic: *b"vers" },
        ),
    ]
}
