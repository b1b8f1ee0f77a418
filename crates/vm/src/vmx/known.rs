//! Keys that taut knows and does nothing with: a note for the report says why.
//!
//! Keys with an effect are taken by the other modules first; what is here is left over.

/// Pattern (lower case; `#` is one or more digits, a final `*` any rest) and note. The first match counts.
const KNOWN: &[(&str, &str)] = &[
    // Processor resources.
    ("sched.cpu.latencysensitivity*", "latency sensitivity beyond its level is decided by the plan"),
    ("sched.cpu.min*", "CPU reservation in another unit than MHz"),
    ("sched.cpu.max", "CPU limit in another unit than MHz"),
    ("sched.cpu.units", "unit of no reservation and no limit that could be taken over"),
    ("sched.cpu.*", "CPU scheduling: not applied in this version"),
    ("cpuid.corespersocket", "the guest sees one core per socket"),
    ("cpuid.*", "the guest sees the accelerator's CPU features unmasked"),
    ("vcpu.hotadd", "vCPUs cannot be added while the VM runs"),
    ("vhv.*", "nested virtualization is not offered"),
    ("vpmc.*", "virtual performance counters are not offered"),
    ("vvtd.*", "a virtual IOMMU is not offered"),
    // Memory resources.
    ("sched.mem.min*", "a parameter of the memory reservation without counterpart"),
    ("sched.mem.pin", "guest memory is locked when all of it is reserved"),
    ("sched.mem.*", "memory scheduling: not applied in this version"),
    ("sched.swap.*", "there is no per-VM swap file: the host's own swap is used"),
    ("mem.hotadd", "memory cannot be added while the VM runs"),
    ("memory.*", "memory management of the VM's process is the host kernel's"),
    ("mainmem.*", "memory management of the VM's process is the host kernel's"),
    ("prefvmx.*", "memory management of the VM's process is the host kernel's"),
    // NUMA.
    (
        "numa.vcpu.preferht",
        "threads of one node before cores of another: not applied in this version; here cpuset.cpus with both threads of each core",
    ),
    ("numa.*", "NUMA: a parameter without counterpart"),
    // Idle behaviour has a module of its own; the rest of the monitor:
    ("monitor_control.*", "a switch of ESX's own monitor"),
    ("monitor.*", "a switch of ESX's own monitor"),
    // VMCI.
    ("vmci#.*", "a property of the VMCI device without counterpart"),
    ("vmci.*", "a property of the VMCI device"),
    // Cards.
    (
        "ethernet#.coalescing*",
        "a parameter of interrupt coalescing without its scheme: the host's default applies",
    ),
    ("ethernet#.ctxperdev", "transmit threads: the data plane has its own workers"),
    ("ethernet#.pnicfeatures", "receive-side scaling on the physical card: not applied in this version"),
    ("ethernet#.udprss", "receive-side scaling for UDP: not applied in this version"),
    ("ethernet#.emurxmode", "split receive: the data plane has its own workers"),
    ("ethernet#.addresstype", "says which of the addresses counts"),
    ("ethernet#.generatedaddress*", "the card's address comes from another key"),
    ("ethernet#.address", "the card's address comes from another key"),
    ("ethernet#.checkmacaddress", "any unicast address is allowed"),
    ("ethernet#.connectiontype", "cards are always on a port group"),
    ("ethernet#.startconnected", "cards are always connected"),
    ("ethernet#.allowguestconnectioncontrol", "cards are always connected"),
    ("ethernet#.wakeonpcktrcv", "a packet does not wake a VM"),
    ("ethernet#.pcislotnumber", "cards keep their order; their PCI slots are taut's"),
    ("ethernet#.uptcompatibility", "pass-through of the card is not offered in this version"),
    ("ethernet#.dvs.*", "the port on a distributed switch: port groups are named, not numbered"),
    ("ethernet#.opaquenetwork.*", "the network of another manager"),
    ("ethernet#.externalid", "the network of another manager"),
    ("ethernet#.filter#.*", "packet filters of other products are not loaded"),
    ("ethernet#.linkstatepropagation.*", "the link follows the port"),
    ("ethernet#.features", "capability bits of ESX's card"),
    ("ethernet#.vnet", "a virtual network of a desktop product"),
    ("ethernet#.displayname", "a label"),
    ("ethernet#.shares*", "network shares: not applied in this version"),
    ("ethernet#.*", "a property of the card without counterpart"),
    // Disks and their controllers.
    ("scsi#:#.mode", "writes are kept, as always"),
    ("sata#:#.mode", "writes are kept, as always"),
    ("nvme#:#.mode", "writes are kept, as always"),
    ("ide#:#.mode", "writes are kept, as always"),
    ("sched.scsi#:#.*", "a parameter of the disk's scheduling without counterpart"),
    ("sched.sata#:#.*", "a parameter of the disk's scheduling without counterpart"),
    ("sched.nvme#:#.*", "a parameter of the disk's scheduling without counterpart"),
    ("sched.ide#:#.*", "a parameter of the disk's scheduling without counterpart"),
    ("scsi#*", "a property of a SCSI controller or disk without counterpart"),
    ("sata#*", "a property of a SATA controller or disk without counterpart"),
    ("nvme#*", "a property of an NVMe controller or disk without counterpart"),
    ("ide#*", "a property of an IDE controller or disk without counterpart"),
    ("disk.*", "disk behaviour of ESX"),
    ("ctkenabled", "changed-block tracking is not offered"),
    // Other devices.
    ("floppy#.*", "no floppy drive"),
    ("serial#.*", "the first serial port is the console; others are not attached"),
    ("parallel#.*", "no parallel port"),
    ("usb*", "no USB"),
    ("ehci*", "no USB"),
    ("sound.*", "no sound"),
    ("svga.*", "no display: the console is a serial port"),
    ("mks.*", "no display: the console is a serial port"),
    ("remotedisplay.*", "no display: the console is a serial port"),
    ("pcibridge#.*", "the machine has its own PCI layout"),
    (
        "pcipassthru#.*",
        "a device of the ESX host: its address here may be another's, so write [[passthrough]] address = \"…\" into a VM file yourself",
    ),
    ("hpet#.*", "the machine has its own timers"),
    ("vtpm.*", "no TPM"),
    ("tsc.*", "the clock of the guest is the accelerator's"),
    ("timetracker.*", "the clock of the guest is the accelerator's"),
    ("time.synchronize.*", "the guest's clock is not set from outside"),
    // Firmware and power.
    ("firmware", "the machine has a BIOS: a disk that was installed for EFI does not start"),
    ("uefi.*", "the machine has a BIOS"),
    ("efi.*", "the machine has a BIOS"),
    ("bios.*", "boot order and BIOS settings: the first hard disk is booted"),
    ("nvram", "BIOS settings are not taken over"),
    ("powertype.*", "stopping asks the guest first; --force does not"),
    ("softpoweroff", "stopping asks the guest first; --force does not"),
    ("cleanshutdown", "state of the file's former owner"),
    ("toolscripts.*", "VMware Tools: the guest's own"),
    ("tools.*", "VMware Tools: the guest's own"),
    ("toolsinstallmanager.*", "VMware Tools: the guest's own"),
    ("guestos", "decides only which card is meant when virtualDev is absent"),
    ("guestos.*", "state of the file's former owner"),
    ("guestinfo.*", "information for VMware Tools inside the guest"),
    // The file itself and its former owner.
    (".encoding", "the text is read as UTF-8"),
    ("config.version", "version of the file's form"),
    ("virtualhw.*", "version of ESX's virtual hardware"),
    ("annotation", "a remark"),
    ("uuid.*", "identity in a vSphere inventory"),
    ("vc.uuid", "identity in a vSphere inventory"),
    ("vm.*", "identity in a vSphere inventory"),
    ("extendedconfigfile", "identity in a vSphere inventory"),
    ("migrate.*", "migration between ESX hosts"),
    ("vmotion.*", "migration between ESX hosts"),
    ("snapshot.*", "snapshots: the disk that the file names is used"),
    ("checkpoint.*", "snapshots: the disk that the file names is used"),
    ("replay.*", "record and replay is not offered"),
    ("workingdir", "taut keeps its files in its own directories"),
    ("log.*", "taut has its own logs"),
    ("logging", "taut has its own logs"),
    ("isolation.*", "a channel between ESX and the guest that taut does not have"),
    ("hgfs.*", "a channel between ESX and the guest that taut does not have"),
    ("sharedfolder*", "a channel between ESX and the guest that taut does not have"),
    ("viv.*", "state of the file's former owner"),
    ("vmxstats.*", "state of the file's former owner"),
    ("answer.*", "state of the file's former owner"),
    ("hostcpuid.#", "state of the file's former owner"),
    ("guestcpuid.#", "state of the file's former owner"),
    ("usercpuid.#", "state of the file's former owner"),
    ("evcompatibilitymode", "migration between ESX hosts"),
];

/// Why a known key, given in lower case, has no effect; nothing for an unknown one.
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
