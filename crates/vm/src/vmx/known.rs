//! Keys that taut knows but does not apply. The report has a note that says why.
//!
//! The other modules take the keys with an effect first, so this table only sees the remaining
//! ones.

/// Patterns and their notes; the first match counts. Patterns are in lower case; `#` stands for one
/// or more digits and a final `*` for any rest.
const KNOWN: &[(&str, &str)] = &[
    // Processor resources.
    (
        "sched.cpu.latencysensitivity*",
        "taut's plan decides everything about latency sensitivity but its level",
    ),
    ("sched.cpu.min*", "not applied: the CPU reservation is not in MHz"),
    ("sched.cpu.max", "not applied: the CPU limit is not in MHz"),
    ("sched.cpu.units", "the unit of a reservation or limit that is not applied"),
    ("sched.cpu.*", "not applied in this version: CPU scheduling"),
    ("cpuid.corespersocket", "the guest sees one core per socket"),
    ("cpuid.*", "the guest sees all CPU features of the accelerator"),
    ("vcpu.hotadd", "vCPUs cannot be added while the VM runs"),
    ("vhv.*", "nested virtualization is not supported"),
    ("vpmc.*", "virtual performance counters are not supported"),
    ("vvtd.*", "a virtual IOMMU is not supported"),
    // Memory resources.
    ("sched.mem.min*", "a parameter of the memory reservation that taut does not have"),
    ("sched.mem.pin", "guest memory is locked when all of it is reserved"),
    ("sched.mem.*", "not applied in this version: memory scheduling"),
    ("sched.swap.*", "VMs have no swap file of their own: the host's swap is used"),
    ("mem.hotadd", "memory cannot be added while the VM runs"),
    ("memory.*", "the host kernel manages the memory of the VM's process"),
    ("mainmem.*", "the host kernel manages the memory of the VM's process"),
    ("prefvmx.*", "the host kernel manages the memory of the VM's process"),
    // NUMA.
    (
        "numa.vcpu.preferht",
        "not applied in this version: both threads of a core before cores of another node; on Linux, set cpuset.cpus to both threads of each core",
    ),
    ("numa.*", "a NUMA parameter that taut does not have"),
    // The monitor. The module `idle` takes its keys about idle vCPUs.
    ("monitor_control.*", "a setting of the ESX monitor"),
    ("monitor.*", "a setting of the ESX monitor"),
    // VMCI.
    ("vmci#.*", "a property of the VMCI device that taut does not have"),
    ("vmci.*", "a property of the VMCI device"),
    // Cards.
    ("ethernet#.coalescing*", "interrupt coalescing without a scheme: the host's default applies"),
    ("ethernet#.ctxperdev", "the data plane has its own workers instead of transmit threads"),
    ("ethernet#.pnicfeatures", "not applied in this version: receive-side scaling on the physical card"),
    ("ethernet#.udprss", "not applied in this version: receive-side scaling for UDP"),
    ("ethernet#.emurxmode", "the data plane has its own workers instead of split receive"),
    ("ethernet#.addresstype", "selects which address the card gets"),
    ("ethernet#.generatedaddress*", "another key gives the card's address"),
    ("ethernet#.address", "another key gives the card's address"),
    ("ethernet#.checkmacaddress", "any unicast address is allowed"),
    ("ethernet#.connectiontype", "cards are always on a port group"),
    ("ethernet#.allowguestconnectioncontrol", "only `taut vm set --link` connects a card"),
    ("ethernet#.wakeonpcktrcv", "a packet does not wake a VM"),
    ("ethernet#.pcislotnumber", "cards keep their order; taut chooses their PCI slots"),
    ("ethernet#.uptcompatibility", "not applied in this version: pass-through of the card"),
    ("ethernet#.dvs.*", "the port on a distributed switch; taut's port groups have names instead of numbers"),
    ("ethernet#.opaquenetwork.*", "a network of another manager"),
    ("ethernet#.externalid", "a network of another manager"),
    ("ethernet#.filter#.*", "packet filters of other products are not supported"),
    ("ethernet#.linkstatepropagation.*", "the link always follows the port"),
    ("ethernet#.features", "capabilities of the card on ESX"),
    ("ethernet#.vnet", "a virtual network of VMware's desktop products"),
    ("ethernet#.displayname", "a label without effect"),
    ("ethernet#.shares*", "not applied in this version: network shares"),
    ("ethernet#.*", "a property of the card that taut does not have"),
    // Disks and their controllers.
    ("scsi#:#.mode", "the disk keeps its writes, as all disks of taut do"),
    ("sata#:#.mode", "the disk keeps its writes, as all disks of taut do"),
    ("nvme#:#.mode", "the disk keeps its writes, as all disks of taut do"),
    ("ide#:#.mode", "the disk keeps its writes, as all disks of taut do"),
    ("sched.scsi#:#.*", "a scheduling parameter of the disk that taut does not have"),
    ("sched.sata#:#.*", "a scheduling parameter of the disk that taut does not have"),
    ("sched.nvme#:#.*", "a scheduling parameter of the disk that taut does not have"),
    ("sched.ide#:#.*", "a scheduling parameter of the disk that taut does not have"),
    ("scsi#*", "a property of a SCSI controller or disk that taut does not have"),
    ("sata#*", "a property of a SATA controller or disk that taut does not have"),
    ("nvme#*", "a property of an NVMe controller or disk that taut does not have"),
    ("ide#*", "a property of an IDE controller or disk that taut does not have"),
    ("disk.*", "a setting for disks of ESX"),
    ("ctkenabled", "changed-block tracking is not supported"),
    // Other devices.
    ("floppy#.*", "floppy drives are not supported"),
    ("serial#.*", "the first serial port is the console; others are not attached"),
    ("parallel#.*", "parallel ports are not supported"),
    ("usb*", "USB is not supported"),
    ("ehci*", "USB is not supported"),
    ("sound.*", "sound is not supported"),
    ("svga.*", "a display is not supported: the console is a serial port"),
    ("mks.*", "a display is not supported: the console is a serial port"),
    ("remotedisplay.*", "a display is not supported: the console is a serial port"),
    ("pcibridge#.*", "taut chooses the PCI layout"),
    (
        "pcipassthru#.*",
        "a device of the ESX host; on this host another device may have its address. Write [[passthrough]] address = \"…\" into a VM file instead",
    ),
    ("hpet#.*", "taut chooses the timers"),
    ("vtpm.*", "a TPM is not supported"),
    ("tsc.*", "the accelerator provides the guest's clock"),
    ("timetracker.*", "the accelerator provides the guest's clock"),
    ("time.synchronize.*", "taut does not set the guest's clock"),
    // Firmware and power.
    ("firmware", "the machine has a BIOS: a disk that was installed with EFI does not start"),
    ("uefi.*", "the machine has a BIOS"),
    ("efi.*", "the machine has a BIOS"),
    ("bios.*", "BIOS settings are not taken over: the VM boots from its first hard disk"),
    ("nvram", "BIOS settings are not taken over"),
    ("powertype.*", "`taut vm stop` asks the guest to shut down; with --force it does not"),
    ("softpoweroff", "`taut vm stop` asks the guest to shut down; with --force it does not"),
    ("cleanshutdown", "state that ESX kept in the file"),
    ("toolscripts.*", "a setting of VMware Tools inside the guest"),
    ("tools.*", "a setting of VMware Tools inside the guest"),
    ("toolsinstallmanager.*", "a setting of VMware Tools inside the guest"),
    ("guestos", "only decides the model of cards without virtualDev"),
    ("guestos.*", "state that ESX kept in the file"),
    ("guestinfo.*", "information for VMware Tools inside the guest"),
    // The file itself and its former owner.
    (".encoding", "the file is read as UTF-8"),
    ("config.version", "version of the file format"),
    ("virtualhw.*", "version of ESX's virtual hardware"),
    ("annotation", "a remark without effect"),
    ("uuid.*", "identity in a vSphere inventory"),
    ("vc.uuid", "identity in a vSphere inventory"),
    ("vm.*", "identity in a vSphere inventory"),
    ("extendedconfigfile", "identity in a vSphere inventory"),
    ("migrate.*", "migration between ESX hosts"),
    ("vmotion.*", "migration between ESX hosts"),
    ("snapshot.*", "snapshots are not supported: the disk that the file names is used"),
    ("checkpoint.*", "snapshots are not supported: the disk that the file names is used"),
    ("replay.*", "record and replay is not supported"),
    ("workingdir", "taut keeps its files in its own directories"),
    ("log.*", "taut has its own logs"),
    ("logging", "taut has its own logs"),
    ("isolation.*", "a channel between ESX and the guest that taut does not have"),
    ("hgfs.*", "a channel between ESX and the guest that taut does not have"),
    ("sharedfolder*", "a channel between ESX and the guest that taut does not have"),
    ("viv.*", "state that ESX kept in the file"),
    ("vmxstats.*", "state that ESX kept in the file"),
    ("answer.*", "state that ESX kept in the file"),
    ("hostcpuid.#", "state that ESX kept in the file"),
    ("guestcpuid.#", "state that ESX kept in the file"),
    ("usercpuid.#", "state that ESX kept in the file"),
    ("evcompatibilitymode", "migration between ESX hosts"),
];

/// The note of a key, which is given in lower case; `None` for an unknown key.
pub(super) fn note(key: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(pattern, _)| matches(pattern, key)).map(|(_, note)| *note)
}

fn matches(pattern: &str, key: &str) -> bool {
    let mut key = key;
    for c in pattern.chars() {
        let rest = match c {
            '*' => return true,
            '#' => {
                let digits = key.bytes().take_while(u8::is_ascii_digit).count();
                key.get(digits..).filter(|_| digits > 0)
            }
            _ => key.strip_prefix(c),
        };
        let Some(rest) = rest else { return false };
        key = rest;
    }
    key.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_digits_and_rests() {
        assert!(matches("ethernet#.dvs.*", "ethernet12.dvs.portid"));
        assert!(!matches("ethernet#.dvs.*", "ethernet.dvs.portid"));
        assert!(!matches("ethernet#.dvs.*", "ethernet1.dv"));
        assert!(matches("nvram", "nvram") && !matches("nvram", "nvrams"));
    }

    #[test]
    fn patterns_are_in_lower_case_and_none_hides_behind_an_earlier_one() {
        for (index, (pattern, _)) in KNOWN.iter().enumerate() {
            assert_eq!(*pattern, pattern.to_ascii_lowercase());
            let example = pattern.replace('#', "0").replace('*', "");
            let first = KNOWN.iter().position(|(earlier, _)| matches(earlier, &example));
            assert_eq!(first, Some(index), "{pattern} is never reached");
        }
    }
}
