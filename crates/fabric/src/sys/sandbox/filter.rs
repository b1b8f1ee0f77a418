//! The list of permitted calls as filters for the kernel.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule,
};

use super::calls::{Call, Condition, WITHOUT, Width};

/// Installs the filters for this thread and all threads that it starts afterwards.
pub(super) fn install(permitted: Vec<Call>) -> Result<(), Error> {
    // The first filter lets the second be installed.
    for filter in [do_without()?, end_process(permitted)?] {
        seccompiler::apply_filter(&BpfProgram::try_from(filter)?)?;
    }
    Ok(())
}

/// Makes calls that libc does without fail as if the kernel lacked them.
fn do_without() -> Result<SeccompFilter, BackendError> {
    let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let rules = WITHOUT.map(|number| (number, Vec::new()));
    SeccompFilter::new(rules.into(), SeccompAction::Allow, missing, std::env::consts::ARCH.try_into()?)
}

/// Ends the process at any other call that is not permitted. Those that the first filter answers
/// pass here: of two answers, the kernel takes the stricter one.
fn end_process(permitted: Vec<Call>) -> Result<SeccompFilter, BackendError> {
    let mut rules: BTreeMap<_, _> = WITHOUT.map(|number| (number, Vec::new())).into();
    for Call { number, rules: alternatives } in permitted {
        rules.insert(number, alternatives.iter().map(|all| rule(all)).collect::<Result<_, _>>()?);
    }
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, architecture)
}

fn rule(conditions: &[Condition]) -> Result<SeccompRule, BackendError> {
    let conditions = conditions.iter().map(|&Condition { argument, width, mask, value }| {
        let length = match width {
            Width::Int => SeccompCmpArgLen::Dword,
            Width::Long => SeccompCmpArgLen::Qword,
        };
        SeccompCondition::new(argument, length, SeccompCmpOp::MaskedEq(mask), value)
    });
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}
