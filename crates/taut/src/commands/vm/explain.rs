//! `taut vm explain`: what was decided for a latency-sensitive VM, and by which rule.

use taut_api::route::Vm;

use crate::output;

/// As text.
pub(super) fn text(vm: &Vm) -> String {
    let Some(latency) = &vm.status.latency else {
        return format!(
            "{name} is not latency-sensitive: it shares the host like any process.\n\
             taut vm set {name} --latency-sensitivity high --cpu-reservation full --memory-reservation full\n",
            name = vm.name
        );
    };
    let mut text =
        format!("{}: {}\n", output::word(&vm.spec.vm.latency_sensitivity), output::word(&latency.state));
    for missing in &latency.missing {
        text += &format!("missing: {missing}\n");
    }
    text += "\n";
    let rows: Vec<_> = latency
        .decisions
        .iter()
        .map(|decision| {
            let when = if decision.restart { "next start" } else { "now" };
            [decision.decision.clone(), when.to_owned(), decision.rule.clone()]
        })
        .collect();
    text + &output::table(["DECISION", "TAKES EFFECT", "RULE"], &rows)
}
