//! KVM's counters of the vCPUs during the measurement: exits to the host, and halts.

use taut_api::kvm::{KvmCounters, KvmVcpu};
use taut_api::path;
use taut_api::{ApiError, Name};

use crate::client::Client;
use crate::output;

/// Reads the counters so far. An error becomes the reason for missing counters, because the other
/// results are useful without them.
pub(super) fn read(client: &Client, vm: &Name) -> KvmCounters {
    client.get(&path::VM_KVM.of(vm)).unwrap_or_else(|error: ApiError| KvmCounters::none(sentence(&error)))
}

/// Formats an error in one line.
fn sentence(error: &ApiError) -> String {
    let said: Vec<_> = std::iter::once(&error.message).chain(&error.causes).map(String::as_str).collect();
    format!("{} (hint: {})", said.join(": "), error.hint)
}

/// Renders the table, or the reason that there is none.
pub(super) fn text(counted: &KvmCounters) -> String {
    if counted.vcpus.is_empty() {
        let because =
            counted.none_because.as_deref().unwrap_or("the VM was restarted during the measurement");
        return format!("\nno KVM counters: {because}\n");
    }
    let head = ["VCPU", "EXITS", "HALTS", "POLLED", "IN TIME", "POLLED MS", "WOKEN", "SLEPT MS"];
    let rows: Vec<_> = counted.vcpus.iter().map(row).collect();
    format!("\nexits to KVM, and how idle vCPUs halted\n{}", output::table(head, &rows))
}

fn row(of: &KvmVcpu) -> [String; 8] {
    let counter = |name: &str| of.counters.get(name).copied();
    let count = |name: &str| counter(name).map_or("-".to_owned(), |count| count.to_string());
    let ms = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| format!("{:.3}", ns as f64 / 1e6));
    let polled = counter("halt_poll_success_ns")
        .zip(counter("halt_poll_fail_ns"))
        .map(|(in_time, in_vain)| in_time.saturating_add(in_vain));
    [
        of.vcpu.to_string(),
        count("exits"),
        count("halt_exits"),
        count("halt_attempted_poll"),
        count("halt_successful_poll"),
        ms(polled),
        count("halt_wakeup"),
        ms(counter("halt_wait_ns")),
    ]
}

#[cfg(test)]
mod tests {
    use taut_api::error::ErrorKind;

    use super::*;

    #[test]
    fn counters_that_the_kernel_has_are_shown() {
        let vcpu = |vcpu, counters: &[(&str, u64)]| KvmVcpu {
            vcpu,
            counters: counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        };
        let all = vcpu(
            0,
            &[
                ("exits", 5210),
                ("halt_exits", 1002),
                ("halt_attempted_poll", 1000),
                ("halt_successful_poll", 990),
                ("halt_poll_success_ns", 3_000_000),
                ("halt_poll_fail_ns", 250_000),
                ("halt_wakeup", 12),
                ("halt_wait_ns", 7_000_499),
            ],
        );
        let counted = KvmCounters { vcpus: vec![all, vcpu(1, &[("exits", 3)])], none_because: None };
        insta::assert_snapshot!(text(&counted), @r"

        exits to KVM, and how idle vCPUs halted
        VCPU  EXITS  HALTS  POLLED  IN TIME  POLLED MS  WOKEN  SLEPT MS
           0   5210   1002    1000      990      3.250     12     7.000
           1      3      -       -        -          -      -         -
        ");
    }

    #[test]
    fn missing_counters_are_explained() {
        insta::assert_snapshot!(text(&KvmCounters::none("it runs under emulation")), @r"

        no KVM counters: it runs under emulation
        ");
        let error = ApiError::new(ErrorKind::Unavailable, "no answer", "try again")
            .because(&std::io::Error::other("it timed out"));
        assert_eq!(sentence(&error), "no answer: it timed out (hint: try again)");
    }
}
