//! Placement of a VM's vCPUs and memory, under ESX's names.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use utoipa::ToSchema;

use crate::text::schema_of_text;
use crate::word::plural;

/// The table `[placement]` of a VM file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlacementSpec {
    /// NUMA nodes of the host for vCPUs and memory: `any` (default), or a list such as `0-1` (ESX:
    /// `numa.nodeAffinity`).
    #[serde(skip_serializing_if = "Numbers::is_any")]
    pub nodes: Numbers,
    /// pCPUs of the host that the vCPUs run on: `any` (default), or a list such as `2,4-7` (ESX:
    /// `sched.cpu.affinity`). Exclusive pCPUs are chosen from the list; without exclusive ones, the
    /// vCPUs share the pCPUs with other tasks.
    #[serde(skip_serializing_if = "Numbers::is_any")]
    pub cpus: Numbers,
    /// Upper limit of vCPUs per virtual NUMA node, 1 to 256 (ESX: `numa.vcpu.maxPerVirtualNode`);
    /// one virtual node if absent. QEMU only; takes effect at the next start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcpus_per_node: Option<u32>,
    /// Minimum number of vCPUs of a VM with several virtual NUMA nodes (ESX: `numa.vcpu.min`).
    pub min_vcpus: u32,
}

impl PlacementSpec {
    /// Largest number of virtual NUMA nodes. A VM that would need more sees one node.
    pub const MOST_NODES: u32 = 8;

    /// Returns whether all values are the defaults.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Names the pCPUs that are allowed, for messages: "pCPUs 0-3", "the pCPUs of NUMA node 3".
    pub fn allowed(&self) -> String {
        match (self.cpus.is_any(), self.nodes.is_any()) {
            (true, true) => "any pCPU".to_owned(),
            (true, false) => format!("the pCPUs of {}", self.named_nodes()),
            (false, true) => format!("pCPUs {}", self.cpus),
            (false, false) => format!("pCPUs {} of {}", self.cpus, self.named_nodes()),
        }
    }

    fn named_nodes(&self) -> String {
        self.nodes.named("NUMA node")
    }

    /// Returns the number of vCPUs on each virtual NUMA node of a VM with `vcpus` vCPUs.
    pub fn virtual_nodes(&self, vcpus: u32) -> Vec<u32> {
        let each = self.vcpus_per_node.filter(|each| *each > 0 && *each < vcpus && vcpus >= self.min_vcpus);
        let Some(each) = each.filter(|each| vcpus.div_ceil(*each) <= Self::MOST_NODES) else {
            return vec![vcpus];
        };
        let nodes = vcpus.div_ceil(each);
        // Distribute the vCPUs as evenly as possible.
        (0..nodes).map(|node| vcpus * (node + 1) / nodes - vcpus * node / nodes).collect()
    }
}

impl Default for PlacementSpec {
    fn default() -> Self {
        Self { nodes: Numbers::default(), cpus: Numbers::default(), vcpus_per_node: None, min_vcpus: 9 }
    }
}

/// Numbers of pCPUs or nodes, written as on ESX: `0,4-7`. The empty set means all of them and is
/// written `any`.
#[derive(Debug, Clone, Default, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct Numbers(pub BTreeSet<u32>);

impl Numbers {
    /// Largest number that is accepted; no host has more.
    const MOST: u32 = 4095;

    /// Returns whether the set means all numbers.
    pub fn is_any(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the numbers behind their noun: `pCPU 3`, `pCPUs 0,4-7`.
    pub fn named(&self, noun: &str) -> String {
        format!("{} {self}", plural(self.0.len(), noun))
    }

    /// Returns whether `number` is in the set.
    pub fn allows(&self, number: u32) -> bool {
        self.is_any() || self.0.contains(&number)
    }
}

impl FromIterator<u32> for Numbers {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        Self(numbers.into_iter().collect())
    }
}

/// Why a text is not a list of numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a list of pCPUs or nodes: write any, or numbers up to 4095 such as 0,4-7")]
pub struct BadNumbers(pub String);

impl FromStr for Numbers {
    type Err = BadNumbers;

    fn from_str(text: &str) -> Result<Self, BadNumbers> {
        if ["any", "all"].contains(&text.trim().to_ascii_lowercase().as_str()) {
            return Ok(Self::default());
        }
        let number = |text: &str| text.trim().parse().ok().filter(|number| *number <= Self::MOST);
        let part = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (number(first)?, number(last)?);
            (first <= last).then_some((first, last))
        };
        // Marks, since the same range may be written thousands of times.
        let mut marks = [false; Self::MOST as usize + 1];
        for range in text.split(',').map(part) {
            let (first, last) = range.ok_or_else(|| BadNumbers(text.to_owned()))?;
            marks[first as usize..=last as usize].fill(true);
        }
        Ok((0..).zip(marks).filter_map(|(number, is_marked)| is_marked.then_some(number)).collect())
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_any() {
            return f.pad("any");
        }
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for &number in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => ranges.push((number, number)),
            }
        }
        let text = ranges
            .iter()
            .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
        f.pad(&text.collect::<Vec<_>>().join(","))
    }
}

schema_of_text!(Numbers);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_is_repeated_costs_little() {
        let text = vec!["0-4095"; 20_000].join(",");
        assert_eq!(text.parse::<Numbers>().unwrap().0.len(), 4096);
    }

    #[test]
    fn numbers_are_read_and_written() {
        for text in ["any", "0", "0,4-7", "1-2"] {
            assert_eq!(text.parse::<Numbers>().unwrap().to_string(), text);
        }
        assert_eq!("2,3,4-5".parse::<Numbers>().unwrap().to_string(), "2-5");
        assert_eq!(
            [vec![7], vec![7, 4, 5]].map(|list| Numbers::from_iter(list).named("pCPU")),
            ["pCPU 7", "pCPUs 4-5,7"]
        );
        for bad in ["", "x", "3-1", "1,,2", "4096", "-1", "0-4294967295"] {
            assert!(bad.parse::<Numbers>().is_err(), "{bad}");
        }
    }

    #[test]
    fn virtual_nodes_need_many_vcpus_and_hold_all_of_them() {
        let of = |vcpus, each| {
            PlacementSpec { vcpus_per_node: each, ..PlacementSpec::default() }.virtual_nodes(vcpus)
        };
        assert_eq!(of(16, Some(8)), [8, 8]);
        assert_eq!(of(10, Some(4)), [3, 3, 4]);
        assert_eq!(
            (of(8, Some(4)), of(16, None), of(16, Some(16)), of(64, Some(1))),
            (vec![8], vec![16], vec![16], vec![64])
        );
    }
}
