//! Who may talk to whom (SPEC VC-3; ESX: `vmci0.domain`, `vmci0.unrestricted`).

use taut_api::fabric::config::SocketConfig;

/// May two guests talk? In either direction the same.
pub(super) fn may_talk(a: &SocketConfig, b: &SocketConfig) -> bool {
    a.cid != b.cid
        && (a.unrestricted && b.unrestricted || a.domains.iter().any(|domain| b.domains.contains(domain)))
}

#[cfg(test)]
mod tests {
    use taut_api::fabric::PortId;
    use taut_api::vmci::Cid;

    use super::*;

    fn device(cid: u32, domains: &[&str], unrestricted: bool) -> SocketConfig {
        SocketConfig {
            id: PortId(cid as u16),
            owner: String::new(),
            cid: Cid(cid),
            domains: domains.iter().map(|name| name.parse().unwrap()).collect(),
            unrestricted,
            connections: 1,
            half_open: 1,
        }
    }

    #[test]
    fn a_common_domain_or_no_restriction_on_both_sides() {
        let both = |a: &SocketConfig, b: &SocketConfig| {
            assert_eq!(may_talk(a, b), may_talk(b, a));
            may_talk(a, b)
        };
        let (alone, red) = (device(3, &[], false), device(4, &["red"], false));
        let (mixed, blue) = (device(5, &["blue", "red"], false), device(6, &["blue"], true));
        let free = device(7, &[], true);
        assert!(!both(&alone, &red) && !both(&alone, &free) && !both(&red, &blue) && !both(&red, &free));
        assert!(both(&red, &mixed) && both(&blue, &mixed) && both(&blue, &free));
        assert!(!both(&free, &free), "nobody talks to itself");
        assert!(!both(&alone, &device(8, &[], false)), "no domain is no common domain");
    }
}
