//! The initial RAM file system: a cpio archive in the kernel's `newc` format.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use cpio::newc;

use super::modules::{Module, Set};

/// File types of the archive's mode words.
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

/// Writes the archive: `/init`, empty mount points, the modules and their order.
pub(super) fn write(init: &Path, modules: &[Module], to: &Path) -> io::Result<()> {
    let mut archive = Archive { out: BufWriter::new(File::create(to)?), inode: 0 };
    for folder in ["dev", "proc", "sys", "run", "tmp", "modules"] {
        archive.add(folder, DIRECTORY | 0o755, &[])?;
    }
    archive.add("init", REGULAR | 0o755, &fs::read(init)?)?;
    for module in modules {
        let file = format!("modules/{}.ko", module.name);
        archive.add(&file, REGULAR | 0o644, &module.object)?;
    }
    for set in Set::ALL {
        let loaded = modules.iter().filter(|module| module.set == set);
        let order: Vec<_> = loaded.flat_map(|module| [&module.name, ".ko\n"]).collect();
        let order = order.concat();
        archive.add(&format!("modules/{}", set.file()), REGULAR | 0o644, order.as_bytes())?;
    }
    newc::trailer(archive.out)?.flush()
}

struct Archive {
    out: BufWriter<File>,
    inode: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let size = u32::try_from(content.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let mut entry = newc::Builder::new(name).ino(self.inode).mode(mode).write(&mut self.out, size);
        entry.write_all(content)?;
        entry.finish()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_has_init_modules_and_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let init = dir.path().join("guest");
        fs::write(&init, b"\x7fELF").unwrap();
        let modules = [("virtio_net", Set::All), ("nfit", Set::Nvdimm)].map(|(name, set)| Module {
            name: name.into(),
            object: vec![7; 100],
            set,
        });
        let to = dir.path().join("initrd");
        write(&init, &modules, &to).unwrap();
        let mut names = Vec::new();
        let mut file = File::open(&to).unwrap();
        loop {
            let mut reader = newc::Reader::new(file).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            names.push(reader.entry().name().to_owned());
            let expected = match names.last().unwrap().as_str() {
                "modules/order" => Some("virtio_net.ko\n"),
                "modules/order-nvdimm" => Some("nfit.ko\n"),
                _ => None,
            };
            if let Some(expected) = expected {
                let mut order = String::new();
                io::Read::read_to_string(&mut reader, &mut order).unwrap();
                assert_eq!(order, expected);
            }
            file = reader.finish().unwrap();
        }
        for name in
            ["init", "modules/virtio_net.ko", "modules/order", "modules/nfit.ko", "modules/order-nvdimm"]
        {
            assert!(names.iter().any(|there| there == name), "{names:?}");
        }
    }
}
