//! The views and their columns.

use std::fmt;

use serde::{Deserialize, Serialize};
use taut_api::statistics::limits;

/// A view, with the key of esxtop that shows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum View {
    /// `c`: times of VMs, their vCPUs, and other processes.
    #[default]
    Cpu,
    /// `m`: memory of VMs.
    Memory,
    /// `n`: ports of vSwitches.
    Network,
    /// `d`: block devices.
    Disk,
    /// `i`: interrupts.
    Interrupt,
    /// `v`: disk traffic of VMs.
    VmDisk,
}

/// A column of a view.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Column {
    /// Title, which names the column within its view.
    pub title: &'static str,
    /// Meaning, in a short phrase with the unit.
    pub meaning: &'static str,
    /// Form of its cells.
    pub form: Form,
    /// True if the column is there before the user has chosen.
    pub usual: bool,
    /// Value above which a cell is highlighted.
    pub limit: Option<f64>,
}

/// Form of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Text of at most so many columns on the screen.
    Text(u16),
    /// Number with so many decimals.
    Number(usize),
}

const fn text(title: &'static str, width: u16, meaning: &'static str) -> Column {
    Column { title, meaning, form: Form::Text(width), usual: true, limit: None }
}

const fn number(title: &'static str, decimals: usize, meaning: &'static str) -> Column {
    Column { title, meaning, form: Form::Number(decimals), usual: true, limit: None }
}

const fn percent(title: &'static str, meaning: &'static str) -> Column {
    number(title, 2, meaning)
}

impl Column {
    const fn hidden(self) -> Self {
        Self { usual: false, ..self }
    }

    const fn above(self, limit: f64) -> Self {
        Self { limit: Some(limit), ..self }
    }
}

/// End of the meaning of columns without a figure.
macro_rules! none {
    ($meaning:literal) => {
        concat!($meaning, ": Linux has no such figure")
    };
}

const CPU: &[Column] = &[
    number("ID", 0, "process of the VM; thread of a vCPU"),
    number("GID", 0, "process of the VM").hidden(),
    text("NAME", 22, "name by QEMU's command line; program of other processes"),
    number("NWLD", 0, "number of threads"),
    percent("%USED", "%RUN and %SYS"),
    percent("%RUN", "time that vCPUs ran, in percent of one pCPU"),
    percent("%SYS", "time that the VM's other threads ran: emulation, I/O"),
    percent("%WAIT", "time that vCPUs were halted or blocked, idle time included"),
    percent("%VMWAIT", none!("time that a vCPU was blocked and not idle")),
    percent("%RDY", "time that vCPUs were ready to run and waited for a pCPU").above(limits::READY_PERCENT),
    percent("%IDLE", none!("idle part of %WAIT")),
    percent("%OVRLP", none!("time taken by interrupts for others")),
    percent("%CSTP", none!("time stopped for co-scheduling")).above(limits::COSTOP_PERCENT),
    percent("%MLMTD", "time throttled by the CPU limit of its control groups")
        .above(limits::THROTTLED_PERCENT),
    percent("%SWPWT", "time that vCPUs waited for pages from disk (kernel.task_delayacct=1)")
        .above(limits::PAGED_PERCENT),
    number("PCPU", 0, "pCPU that the vCPU last ran on"),
    text("ELSE ON PCPU", 30, "who else ran longest on this pCPU, in percent"),
];

const MEMORY: &[Column] = &[
    number("ID", 0, "process of the VM"),
    text("NAME", 22, "name by QEMU's command line"),
    number("GRANT", 1, "memory in RAM, huge pages included, in MiB"),
    number("SHRD", 1, "part that other processes may map, such as the fabric, in MiB"),
    number("HUGE", 1, "part in huge pages of hugetlbfs, in MiB"),
    number("LOCKED", 1, "part that cannot be swapped, in MiB"),
    number("TCHD", 1, none!("part touched recently")),
    number("SWCUR", 1, "private memory on swap devices, in MiB"),
    number("SWTGT", 1, none!("target of SWCUR")),
    number("SWR/s", 1, none!("MiB read from swap")),
    number("SWW/s", 1, none!("MiB written to swap")),
    number("MCTLSZ", 1, none!("memory taken by the balloon")),
];

const NETWORK: &[Column] = &[
    number("PORT-ID", 0, "number of the port"),
    text("USED-BY", 22, "owner of the port"),
    text("TEAM-PNIC", 9, "uplink in use: not a figure of the daemon's").hidden(),
    text("DNAME", 12, "vSwitch"),
    number("PKTTX/s", 0, "frames from the guest"),
    number("MbTX/s", 2, "megabits from the guest"),
    number("PSZTX", 0, "mean size of its frames in bytes"),
    number("PKTRX/s", 0, "frames to the guest"),
    number("MbRX/s", 2, "megabits to the guest"),
    number("PSZRX", 0, "mean size of its frames in bytes"),
    percent("%DRPTX", "part of the guest's frames that were dropped").above(limits::DROPS_PERCENT),
    percent("%DRPRX", "part of the frames for the guest that were dropped").above(limits::DROPS_PERCENT),
    number("KICKS/s", 0, "notifications from the guest"),
    number("INTR/s", 0, "interrupts to the guest"),
    number("WAITS/s", 0, "times that a sender waited for the full receive ring").hidden(),
    number("MCASTRX/s", 0, "broadcast and multicast frames to the guest").hidden(),
    text("DROP REASON", 40, "most frequent reason for drops"),
];

const DISK: &[Column] = &[
    text("DEVICE", 16, "block device"),
    number("ACTV", 0, "requests that the device works on now"),
    number("CMDS/s", 1, "requests that ended"),
    number("READS/s", 1, "reads"),
    number("WRITES/s", 1, "writes"),
    number("MBREAD/s", 2, "megabytes read"),
    number("MBWRTN/s", 2, "megabytes written"),
    number("DAVG/cmd", 2, "mean time of a request in ms, with the kernel's queue"),
    number("KAVG/cmd", 2, none!("the kernel's part of it")),
    number("GAVG/cmd", 2, none!("time that the guest sees")),
    percent("%BUSY", "time that the device had requests"),
];

const INTERRUPT: &[Column] = &[
    text("VECTOR", 8, "number or abbreviation in /proc/interrupts"),
    number("COUNT/s", 1, "interrupts on all pCPUs"),
    text("BUSIEST PCPUS", 34, "pCPUs with most of them: number:count/s"),
    number("TIME/int", 1, none!("time of one")),
    text("DEVICES", 44, "chip, kind and devices"),
];

const VM_DISK: &[Column] = &[
    number("ID", 0, "process of the VM"),
    text("NAME", 22, "name by QEMU's command line"),
    number("NVDISK", 0, none!("number of disks")).hidden(),
    number("CMDS/s", 1, none!("requests")),
    number("READS/s", 1, none!("reads")),
    number("WRITES/s", 1, none!("writes")),
    number("MBREAD/s", 2, "megabytes that the process read from block devices"),
    number("MBWRTN/s", 2, "megabytes that it wrote to block devices"),
    number("LAT/rd", 2, none!("mean time of a read")),
    number("LAT/wr", 2, none!("mean time of a write")),
    number("RDCALLS/s", 0, "system calls that read, also from event descriptors"),
    number("WRCALLS/s", 0, "system calls that write"),
];

impl View {
    /// All views, in the order of esxtop's keys in its help.
    pub const ALL: [Self; 6] =
        [Self::Cpu, Self::Memory, Self::Network, Self::Disk, Self::Interrupt, Self::VmDisk];

    /// Returns the key that shows the view.
    pub const fn key(self) -> char {
        match self {
            Self::Cpu => 'c',
            Self::Memory => 'm',
            Self::Network => 'n',
            Self::Disk => 'd',
            Self::Interrupt => 'i',
            Self::VmDisk => 'v',
        }
    }

    /// Returns the view that a key shows.
    pub fn of_key(key: char) -> Option<Self> {
        Self::ALL.into_iter().find(|view| view.key() == key)
    }

    /// Returns the view's name in `toprc` and in CSV.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Network => "network",
            Self::Disk => "disk",
            Self::Interrupt => "interrupt",
            Self::VmDisk => "vm-disk",
        }
    }

    /// Returns all columns of the view.
    pub const fn columns(self) -> &'static [Column] {
        match self {
            Self::Cpu => CPU,
            Self::Memory => MEMORY,
            Self::Network => NETWORK,
            Self::Disk => DISK,
            Self::Interrupt => INTERRUPT,
            Self::VmDisk => VM_DISK,
        }
    }

    /// Returns the index of a column.
    pub fn column(self, title: &str) -> Option<usize> {
        self.columns().iter().position(|column| column.title == title)
    }

    /// Returns esxtop's keys for the order of rows, each with the title of its column.
    pub const fn sort_keys(self) -> &'static [(char, &'static str)] {
        match self {
            Self::Cpu => &[('U', "%USED"), ('R', "%RDY"), ('N', "ID")],
            Self::Memory => &[('M', "GRANT"), ('B', "SWCUR"), ('N', "ID")],
            Self::Network => {
                &[('T', "MbTX/s"), ('R', "MbRX/s"), ('t', "PKTTX/s"), ('r', "PKTRX/s"), ('N', "PORT-ID")]
            }
            Self::Disk => {
                &[('r', "READS/s"), ('w', "WRITES/s"), ('R', "MBREAD/s"), ('T', "MBWRTN/s"), ('N', "DEVICE")]
            }
            Self::Interrupt => &[('C', "COUNT/s"), ('N', "VECTOR")],
            Self::VmDisk => &[('R', "MBREAD/s"), ('T', "MBWRTN/s"), ('N', "ID")],
        }
    }
}

impl fmt::Display for View {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Cpu => "CPU",
            Self::Memory => "memory",
            Self::Network => "network",
            Self::Disk => "disks",
            Self::Interrupt => "interrupts",
            Self::VmDisk => "disks of VMs",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_and_titles_are_unique_and_the_letters_suffice() {
        let keys: BTreeSet<_> = View::ALL.map(View::key).into();
        assert_eq!(keys, BTreeSet::from(['c', 'm', 'n', 'd', 'i', 'v']));
        // Keys of the table itself.
        let others = BTreeSet::from(['e', 'f', 'o', 's', 'V', 'W', 'h', '?', 'q', ' ']);
        for view in View::ALL {
            assert_eq!(View::of_key(view.key()), Some(view));
            let titles: BTreeSet<_> = view.columns().iter().map(|column| column.title).collect();
            assert_eq!(titles.len(), view.columns().len());
            assert!(view.columns().len() <= 26);
            for (key, title) in view.sort_keys() {
                assert!(view.column(title).is_some(), "{title}");
                assert!(!keys.contains(key) && !others.contains(key), "{key}");
            }
        }
    }
}
