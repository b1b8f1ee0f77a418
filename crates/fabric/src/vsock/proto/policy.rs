//! Which guests may talk to each other (spec row `VC-3`; ESX: `vmci0.domain`,
//! `vmci0.unrestricted`).

use taut_api::fabric::config::SocketConfig;

/// Tells whether two guests may talk. The answer is the same in both directions.
pub(crate) fn may_talk(a: &SocketConfig, b: &SocketConfig) -> bool {
    a.cid != b.cid
        && (a.unrestricted && b.unrestricted || a.domains.iter().any(|domain| b.domains.contains(domain)))
}

#[cfg(test)]
mod tests {
    use taut_api::fabric::PortId;
    use taut_api::fabric::config::FrontEndRules;
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
            front_end: FrontEndRules::default(),
            queue_pairs: None,
        }
    }

    #[test]
    fn guests_talk_that_share_a_domain_or_are_both_unrestricted() {
        let both = |a: &SocketConfig, b: &SocketConfig| {
            assert_eq!(may_talk(a, b), may_talk(b, a));
            may_talk(a, b)
        };
        let (alone, red) = (device(3, &[], false), device(4, &["red"], false));
        let (mixed, blue) = (device(5, &["blue", "red"], false), device(6, &["blue"], true));
        let free = device(7, &[], true);
        assert!(!both(&alone, &red) && !both(&alone, &free) && !both(&red, &blue) && !both(&red, &free));
        assert!(both(&red, &mixed) && both(&blue, &mixed) && both(&blue, &free));
        assert!(!both(&free, &free), "a guest does not talk to itself");
        assert!(!both(&alone, &device(8, &[], false)), "two guests without domains share none");
    }
}
