//! The list of prerequisites that may be missing.

use super::Prerequisite;

const VARIABLE: &str = "TAUT_ALLOW_SKIP";

/// The names in `TAUT_ALLOW_SKIP`, all of them known.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Allowed(Vec<&'static str>);

impl Allowed {
    /// Reads the list from the environment. Without the variable nothing may be missing.
    pub(super) fn of_environment() -> Result<Self, String> {
        match std::env::var(VARIABLE) {
            Ok(list) => Self::parse(&list),
            Err(std::env::VarError::NotPresent) => Ok(Self(Vec::new())),
            Err(error) => Err(format!("{VARIABLE}: {error}\nhint: {}", known())),
        }
    }

    /// Parses names that are separated by commas. An empty list is one without names.
    fn parse(list: &str) -> Result<Self, String> {
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        let known_name = |name: &str| {
            let found = Prerequisite::ALL.into_iter().map(Prerequisite::name).find(|known| *known == name);
            found.ok_or_else(|| {
                format!("{VARIABLE} names `{name}`, which is not a prerequisite\nhint: {}", known())
            })
        };
        names.map(known_name).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn names(&self, prerequisite: Prerequisite) -> bool {
        self.0.contains(&prerequisite.name())
    }

    /// Says why a test fails without a prerequisite that is not in the list.
    pub(super) fn refusal(&self, prerequisite: Prerequisite, reason: &str) -> String {
        let name = prerequisite.name();
        let mut list = self.0.clone();
        list.push(name);
        format!(
            "the prerequisite {name} is missing: {reason}\nhint: {}; or have its tests left out: {VARIABLE}={}",
            prerequisite.advice(),
            list.join(",")
        )
    }
}

fn known() -> String {
    format!("the names are {}", Prerequisite::ALL.map(Prerequisite::name).join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::{Controller, Image};
    use super::*;

    #[test]
    fn a_list_allows_what_it_names_and_nothing_else() {
        let allowed = Allowed::parse("kvm, debian-full,").unwrap();
        assert!(allowed.names(Prerequisite::Kvm) && allowed.names(Prerequisite::Image(Image::DebianFull)));
        assert!(!allowed.names(Prerequisite::Ipv6) && !allowed.names(Prerequisite::Image(Image::Debian6_1)));
        assert_eq!(Allowed::parse(""), Ok(Allowed(vec![])));
        let cgroups = Allowed::parse("cgroup-v1").unwrap();
        for controller in [Controller::Cpu, Controller::Cpuset, Controller::Blkio] {
            assert!(cgroups.names(Prerequisite::CgroupV1(controller)));
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_known_ones() {
        let error = Allowed::parse("kvm,cgroups").unwrap_err();
        assert!(
            error.starts_with("TAUT_ALLOW_SKIP names `cgroups`, which is not a prerequisite\n"),
            "{error}"
        );
        assert!(error.contains("\nhint: the names are root, kvm, cgroup-v1, "), "{error}");
    }

    #[test]
    fn a_missing_prerequisite_is_named_with_its_reason_and_both_ways_out() {
        let allowed = Allowed::parse("ping").unwrap();
        assert_eq!(
            allowed.refusal(Prerequisite::Ipv6, "[::1]: Cannot assign requested address"),
            "the prerequisite ipv6 is missing: [::1]: Cannot assign requested address\n\
             hint: sysctl net.ipv6.conf.all.disable_ipv6=0; or have its tests left out: \
             TAUT_ALLOW_SKIP=ping,ipv6"
        );
    }

    #[test]
    fn every_prerequisite_has_a_name_of_its_own() {
        let mut names = Prerequisite::ALL.map(Prerequisite::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Prerequisite::ALL.len());
    }

    /// Finds a wrong name also in a tier in which no prerequisite is missing.
    #[test]
    fn the_list_of_this_run_has_only_known_names() {
        Allowed::of_environment().unwrap_or_else(|error| panic!("{error}"));
    }

    /// Each name is a line of its own in the list's array, with the reason as its comment.
    #[test]
    fn ci_gives_a_reason_for_each_prerequisite_that_may_be_missing_there() {
        let run = std::fs::read_to_string(crate::checkout().join(".ci/run")).unwrap();
        let (_, list) = run.split_once("\nallowed=(\n").expect(".ci/run has the list `allowed`");
        let (list, rest) = list.split_once(")\n").expect("the list ends");
        assert!(rest.contains("export TAUT_ALLOW_SKIP"), "{rest}");
        for line in list.lines().map(str::trim) {
            let (name, reason) = line.split_once('#').unwrap_or_else(|| panic!("no reason: {line}"));
            assert!(!reason.trim().is_empty(), "no reason: {line}");
            Allowed::parse(name.trim()).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
