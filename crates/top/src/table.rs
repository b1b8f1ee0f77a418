//! Tables of cells, one for each view, and the rows of one as a user has chosen them.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use taut_api::fabric::DropReason;
use taut_host::observe::processes::MemoryUse;

use crate::rates::{DiskRates, InterruptRates, PortLine, Process, Rates, Times, Vcpu, Vm};
use crate::settings::Settings;
use crate::view::View;

/// Number of pCPUs that a row of an interrupt names.
const BUSIEST: usize = 4;
/// Columns that name a row: the order by them is ascending.
const IDENTITIES: [&str; 5] = ["ID", "GID", "PORT-ID", "DEVICE", "VECTOR"];

/// A cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// There is no figure.
    Absent,
    /// A text.
    Text(String),
    /// A figure.
    Number {
        /// Its value.
        value: f64,
        /// True if it, or a part of it, is above the column's limit.
        is_high: bool,
    },
}

/// A row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Identity of the row within its view.
    pub key: String,
    /// True if it belongs to a VM.
    pub is_vm: bool,
    /// Cells, in the order of [`View::columns`].
    pub cells: Vec<Cell>,
    /// Parts of it, such as the vCPUs of a VM.
    pub below: Vec<Row>,
}

impl Row {
    fn new(view: View, key: String, is_vm: bool) -> Self {
        Self { key, is_vm, cells: vec![Cell::Absent; view.columns().len()], below: Vec::new() }
    }

    fn set(&mut self, view: View, title: &str, cell: Cell) {
        let at = view.column(title).expect("a title of the view's columns");
        self.cells[at] = cell;
    }

    fn text(&mut self, view: View, title: &str, text: impl Into<String>) {
        self.set(view, title, Cell::Text(text.into()));
    }

    /// Sets a figure, which is high if it is above the column's limit.
    fn number(&mut self, view: View, title: &str, value: impl Into<Option<f64>>) {
        let value = value.into();
        self.number_of_parts(view, title, value, value);
    }

    /// Sets the sum of parts, which is high if a part is above the column's limit.
    fn number_of_parts(
        &mut self,
        view: View,
        title: &str,
        value: Option<f64>,
        parts: impl IntoIterator<Item = f64>,
    ) {
        let at = view.column(title).expect("a title of the view's columns");
        let limit = view.columns()[at].limit;
        let is_high = limit.is_some_and(|limit| parts.into_iter().any(|part| part > limit));
        self.cells[at] = value.map_or(Cell::Absent, |value| Cell::Number { value, is_high });
    }
}

/// Returns all rows of a view, in the order of the readings.
pub fn rows(view: View, rates: &Rates) -> Vec<Row> {
    match view {
        View::Cpu => rates.vms.iter().map(cpu).chain(rates.processes.iter().map(process)).collect(),
        View::Memory => rates.vms.iter().map(memory).collect(),
        View::Network => rates.ports.iter().flatten().map(port).collect(),
        View::Disk => rates.disks.iter().map(disk).collect(),
        View::Interrupt => rates.interrupts.iter().map(interrupt).collect(),
        View::VmDisk => rates.vms.iter().map(vm_disk).collect(),
    }
}

/// Returns the rows that are shown, in their order: VMs, if only these are wanted, and the parts of
/// rows that are expanded.
pub fn arranged(mut rows: Vec<Row>, settings: &Settings, expanded: &BTreeSet<String>) -> Vec<Row> {
    let view = settings.view;
    // Devices and interrupts belong to the host.
    if settings.vms_only && matches!(view, View::Cpu | View::Network) {
        rows.retain(|row| row.is_vm);
    }
    let sort = settings.layout(view).sort;
    let ascending = IDENTITIES.contains(&view.columns()[sort].title);
    rows.sort_by(|a, b| order(&a.cells[sort], &b.cells[sort], ascending));
    let with_parts = rows.into_iter().flat_map(|mut row| {
        let below = std::mem::take(&mut row.below);
        let below = if expanded.contains(&row.key) { below } else { Vec::new() };
        [row].into_iter().chain(below)
    });
    with_parts.collect()
}

/// Returns the order of two cells. Those without a figure come last.
fn order(a: &Cell, b: &Cell, ascending: bool) -> Ordering {
    let numbers = |a: f64, b: f64| if ascending { a.total_cmp(&b) } else { b.total_cmp(&a) };
    match (a, b) {
        (Cell::Number { value: a, .. }, Cell::Number { value: b, .. }) => numbers(*a, *b),
        (Cell::Text(a), Cell::Text(b)) => match (a.parse(), b.parse()) {
            (Ok(a), Ok(b)) => numbers(a, b),
            (Ok(_), Err(_)) => Ordering::Less,
            (Err(_), Ok(_)) => Ordering::Greater,
            (Err(_), Err(_)) => a.cmp(b),
        },
        (Cell::Absent, Cell::Absent) => Ordering::Equal,
        (Cell::Absent, _) | (Cell::Text(_), Cell::Number { .. }) => Ordering::Greater,
        (_, Cell::Absent) | (Cell::Number { .. }, Cell::Text(_)) => Ordering::Less,
    }
}

/// Returns the sum of figures, unless one of them or all are absent.
fn sum(figures: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let all: Vec<f64> = figures.collect::<Option<_>>()?;
    (!all.is_empty()).then(|| all.iter().sum())
}

fn waiting(times: Times) -> f64 {
    (100.0 - times.run - times.ready).max(0.0)
}

fn cpu(vm: &Vm) -> Row {
    let view = View::Cpu;
    let of = |figure: fn(&Vcpu) -> Option<f64>| vm.vcpus.iter().map(figure);
    let run = sum(of(|vcpu| Some(vcpu.times?.run)));
    let mut row = Row::new(view, vm.pid.to_string(), true);
    row.number(view, "ID", f64::from(vm.pid));
    row.number(view, "GID", f64::from(vm.pid));
    row.text(view, "NAME", &vm.name);
    row.number(view, "NWLD", vm.threads as f64);
    // A VM whose vCPUs are not known has all of its time in `%SYS`.
    let vcpus = if vm.vcpus.is_empty() { Some(0.0) } else { run };
    row.number(view, "%USED", vcpus.zip(vm.others).map(|(run, others)| run + others));
    row.number(view, "%RUN", run);
    row.number(view, "%SYS", vm.others);
    row.number(view, "%WAIT", sum(of(|vcpu| vcpu.times.map(waiting))));
    let ready: fn(&Vcpu) -> Option<f64> = |vcpu| Some(vcpu.times?.ready);
    row.number_of_parts(view, "%RDY", sum(of(ready)), of(ready).flatten());
    row.number(view, "%MLMTD", vm.throttled);
    let paged: fn(&Vcpu) -> Option<f64> = |vcpu| vcpu.paged;
    row.number_of_parts(view, "%SWPWT", sum(of(paged)), of(paged).flatten());
    let longest = vm.vcpus.iter().filter_map(|vcpu| vcpu.neighbour.as_ref());
    if let Some(neighbour) = longest.max_by(|a, b| a.percent.total_cmp(&b.percent)) {
        row.text(view, "ELSE ON PCPU", format!("{:.1} {}", neighbour.percent, neighbour.name));
    }
    row.below = vm.vcpus.iter().map(|each| vcpu(vm, each)).collect();
    row
}

fn vcpu(vm: &Vm, vcpu: &Vcpu) -> Row {
    let view = View::Cpu;
    let mut row = Row::new(view, format!("{}/{}", vm.pid, vcpu.vcpu), true);
    row.number(view, "ID", f64::from(vcpu.tid));
    row.number(view, "GID", f64::from(vm.pid));
    row.text(view, "NAME", format!("vcpu-{}:{}", vcpu.vcpu, vm.name));
    row.number(view, "NWLD", 1.0);
    row.number(view, "%USED", vcpu.times.map(|times| times.run));
    row.number(view, "%RUN", vcpu.times.map(|times| times.run));
    row.number(view, "%WAIT", vcpu.times.map(waiting));
    row.number(view, "%RDY", vcpu.times.map(|times| times.ready));
    row.number(view, "%SWPWT", vcpu.paged);
    row.number(view, "PCPU", f64::from(vcpu.cpu));
    if let Some(neighbour) = &vcpu.neighbour {
        row.text(view, "ELSE ON PCPU", format!("{:.1} {}", neighbour.percent, neighbour.name));
    }
    row
}

fn process(process: &Process) -> Row {
    let view = View::Cpu;
    let mut row = Row::new(view, process.pid.to_string(), false);
    row.number(view, "ID", f64::from(process.pid));
    row.number(view, "GID", f64::from(process.pid));
    row.text(view, "NAME", &process.name);
    row.number(view, "NWLD", process.threads as f64);
    row.number(view, "%USED", process.run);
    row.number(view, "%RUN", process.run);
    // Its limit is that of a vCPU, which this is not.
    let at = view.column("%RDY").expect("a column");
    row.cells[at] = Cell::Number { value: process.ready, is_high: false };
    row
}

fn memory(vm: &Vm) -> Row {
    let view = View::Memory;
    let mib = |bytes: fn(MemoryUse) -> u64| Some(bytes(vm.memory?) as f64 / 1_048_576.0);
    let mut row = Row::new(view, vm.pid.to_string(), true);
    row.number(view, "ID", f64::from(vm.pid));
    row.text(view, "NAME", &vm.name);
    row.number(view, "GRANT", mib(|memory| memory.resident));
    row.number(view, "SHRD", mib(|memory| memory.shared));
    row.number(view, "HUGE", mib(|memory| memory.huge));
    row.number(view, "LOCKED", mib(|memory| memory.locked));
    row.number(view, "SWCUR", mib(|memory| memory.swapped));
    row
}

fn port(port: &PortLine) -> Row {
    let view = View::Network;
    let mut row = Row::new(view, port.number.to_string(), port.owner.starts_with("vm/"));
    row.number(view, "PORT-ID", f64::from(port.number));
    row.text(view, "USED-BY", &port.owner);
    row.text(view, "DNAME", &port.vswitch);
    let Some(done) = &port.done else { return row };
    let (rates, counted) = (&done.rates, &done.counted);
    let size = |bytes: u64, frames: u64| (frames > 0).then(|| bytes as f64 / frames as f64);
    row.number(view, "PKTTX/s", rates.tx_frames_per_s);
    row.number(view, "MbTX/s", rates.tx_bits_per_s / 1e6);
    row.number(view, "PSZTX", size(counted.tx_bytes, counted.tx_frames));
    row.number(view, "PKTRX/s", rates.rx_frames_per_s);
    row.number(view, "MbRX/s", rates.rx_bits_per_s / 1e6);
    row.number(view, "PSZRX", size(counted.rx_bytes, counted.rx_frames));
    row.number(view, "%DRPTX", rates.tx_drops_percent);
    row.number(view, "%DRPRX", rates.rx_drops_percent);
    row.number(view, "KICKS/s", rates.kicks_per_s);
    row.number(view, "INTR/s", rates.interrupts_per_s);
    row.number(view, "WAITS/s", rates.rx_waits_per_s);
    row.number(view, "MCASTRX/s", rates.rx_multicast_per_s);
    let reasons = |direction, drops: &[(DropReason, u64)]| {
        drops.iter().map(|(reason, count)| (*count, direction, *reason)).max_by_key(|(count, ..)| *count)
    };
    let most = reasons("rx", &counted.rx_drops).into_iter().chain(reasons("tx", &counted.tx_drops));
    if let Some((_, direction, reason)) = most.max_by_key(|(count, ..)| *count) {
        row.text(view, "DROP REASON", format!("{direction}: {}", reason.as_str()));
    }
    row
}

fn disk(disk: &DiskRates) -> Row {
    let view = View::Disk;
    let mb = |bytes: Option<f64>| bytes.map(|bytes| bytes / 1e6);
    let mut row = Row::new(view, disk.name.clone(), false);
    row.text(view, "DEVICE", &disk.name);
    row.number(view, "ACTV", disk.active as f64);
    row.number(view, "CMDS/s", disk.reads_per_s.zip(disk.writes_per_s).map(|(reads, writes)| reads + writes));
    row.number(view, "READS/s", disk.reads_per_s);
    row.number(view, "WRITES/s", disk.writes_per_s);
    row.number(view, "MBREAD/s", mb(disk.read_per_s));
    row.number(view, "MBWRTN/s", mb(disk.written_per_s));
    row.number(view, "DAVG/cmd", disk.request_ms);
    row.number(view, "%BUSY", disk.busy);
    row
}

fn interrupt(interrupt: &InterruptRates) -> Row {
    let view = View::Interrupt;
    let busiest = interrupt.pcpus.iter().take(BUSIEST).map(|(cpu, per_s)| format!("{cpu}:{per_s:.0}"));
    let more = if interrupt.pcpus.len() > BUSIEST { " …" } else { "" };
    let mut row = Row::new(view, interrupt.name.clone(), false);
    row.text(view, "VECTOR", &interrupt.name);
    row.number(view, "COUNT/s", interrupt.per_s);
    row.text(view, "BUSIEST PCPUS", busiest.collect::<Vec<_>>().join(" ") + more);
    row.text(view, "DEVICES", &interrupt.what);
    row
}

fn vm_disk(vm: &Vm) -> Row {
    let view = View::VmDisk;
    let mb = |bytes: Option<f64>| bytes.map(|bytes| bytes / 1e6);
    let mut row = Row::new(view, vm.pid.to_string(), true);
    row.number(view, "ID", f64::from(vm.pid));
    row.text(view, "NAME", &vm.name);
    row.number(view, "MBREAD/s", mb(vm.read_per_s));
    row.number(view, "MBWRTN/s", mb(vm.written_per_s));
    row.number(view, "RDCALLS/s", vm.reads_per_s);
    row.number(view, "WRCALLS/s", vm.writes_per_s);
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_rates;

    fn keys(rows: &[Row]) -> Vec<&str> {
        rows.iter().map(|row| row.key.as_str()).collect()
    }

    fn figure(row: &Row, view: View, title: &str) -> Cell {
        row.cells[view.column(title).unwrap()].clone()
    }

    #[test]
    fn rows_are_ordered_filtered_and_expanded() {
        let rates = test_rates::rates();
        let mut settings = Settings::default();
        let all = arranged(rows(View::Cpu, &rates), &settings, &BTreeSet::new());
        assert_eq!(keys(&all), ["712", "900", "44", "815"], "by %USED; what has no rate is last");
        settings.vms_only = true;
        settings.layout_mut(View::Cpu).sort = 0;
        let vms = arranged(rows(View::Cpu, &rates), &settings, &BTreeSet::from(["712".to_owned()]));
        assert_eq!(keys(&vms), ["712", "712/0", "712/1", "815", "900"]);
        settings.view = View::Network;
        let ports = arranged(rows(View::Network, &rates), &settings, &BTreeSet::new());
        assert_eq!(keys(&ports), ["3", "4"]);
    }

    #[test]
    fn what_linux_has_no_figure_for_is_absent_and_never_zero() {
        let rates = test_rates::rates();
        for view in View::ALL {
            let none: Vec<_> = (0..view.columns().len())
                .filter(|column| view.columns()[*column].meaning.ends_with("no such figure"))
                .collect();
            for row in rows(view, &rates) {
                assert!(none.iter().all(|column| row.cells[*column] == Cell::Absent), "{row:?}");
            }
        }
        let cpu = rows(View::Cpu, &rates);
        assert!(cpu.iter().all(|row| figure(row, View::Cpu, "%CSTP") == Cell::Absent));
    }

    #[test]
    fn a_vms_ready_time_is_high_if_that_of_a_vcpu_is() {
        let rates = test_rates::rates();
        let cpu = rows(View::Cpu, &rates);
        let ready = |row: &Row| figure(row, View::Cpu, "%RDY");
        assert_eq!(ready(&cpu[0]), Cell::Number { value: 52.5, is_high: true });
        assert_eq!(ready(&cpu[0].below[0]), Cell::Number { value: 50.0, is_high: true });
        assert_eq!(ready(&cpu[0].below[1]), Cell::Number { value: 2.5, is_high: false });
        assert_eq!(figure(&cpu[0], View::Cpu, "%MLMTD"), Cell::Number { value: 0.0, is_high: false });
    }
}
