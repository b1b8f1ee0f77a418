//! What is installed, and where.

/// systemd's unit of the agent.
pub(crate) const UNIT: &str = include_str!("../../taut-guest.service");

/// This program.
pub(super) const PROGRAM: &str = "usr/local/sbin/taut-guest";
/// The unit.
pub(super) const UNIT_FILE: &str = "etc/systemd/system/taut-guest.service";
/// The preload library.
pub(super) const LIBRARY: &str = "usr/local/lib/libtaut_vmci.so";
/// The map of the preload library.
pub(super) const MAP: &str = "etc/taut/vmci.map";
/// The rule that gives the device of queue pairs to a group.
pub(super) const RULE: &str = "etc/udev/rules.d/60-taut-queue-pairs.rules";

/// A map without entries: everything stays TCP.
pub(super) const EMPTY_MAP: &str = "\
# Which TCP addresses are VMs on the same host, and which ports VMs may reach here.
# 10.0.0.7:* -> cid 12
# listen *:6379
";

/// The text of the rule. udev asks this program whether a DAX device has memory for queue pairs, so
/// that other persistent memory keeps its owner.
pub(super) fn rule(group: &str) -> String {
    format!(
        "# taut: programs of the group `{group}` may use queue pairs.\n\
         SUBSYSTEM==\"dax\", KERNEL==\"dax*\", PROGRAM==\"/{PROGRAM} queue-pairs --device /dev/%k\", \
         GROUP=\"{group}\", MODE=\"0660\"\n"
    )
}

/// Returns the group that a rule gives the device to.
pub(super) fn group_of_rule(rule: &str) -> Option<&str> {
    let (_, rest) = rule.split_once("GROUP=\"")?;
    rest.split_once('"').map(|(group, _)| group)
}
