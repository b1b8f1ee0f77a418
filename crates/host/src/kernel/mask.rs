//! The kernel's CPU masks: hexadecimal, in comma-separated groups of 32 bits.
//!
//! A mask has as many digits as the kernel has CPUs configured.

use std::collections::BTreeSet;

/// Removes CPUs from a mask and keeps its format. Returns `None` if the text is no mask, holds none
/// of these CPUs, or would become empty.
pub(crate) fn without(text: &str, cpus: &BTreeSet<u32>) -> Option<String> {
    let groups: Vec<&str> = text.trim().split(',').collect();
    let mut words = groups
        .iter()
        .map(|group| u32::from_str_radix(group, 16).ok().filter(|_| group.len() <= 8))
        .collect::<Option<Vec<u32>>>()?;
    let before = words.clone();
    for cpu in cpus {
        let from_the_end = (cpu / 32) as usize + 1;
        if let Some(index) = words.len().checked_sub(from_the_end) {
            words[index] &= !(1 << (cpu % 32));
        }
    }
    if words == before || words.iter().all(|word| *word == 0) {
        return None;
    }
    let group = |(word, text): (&u32, &&str)| format!("{word:0width$x}", width = text.len());
    Some(words.iter().zip(&groups).map(group).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_removed_and_the_format_is_kept() {
        assert_eq!(without("3\n", &[1].into()).as_deref(), Some("1"));
        assert_eq!(without("ff,ffffffff", &[1, 33].into()).as_deref(), Some("fd,fffffffd"));
        assert_eq!(without("00000000,0000000f", &[40, 0].into()).as_deref(), Some("00000000,0000000e"));
        for (text, cpu) in [("3", 5), ("2", 1), ("", 1), ("x", 1), ("fffffffff", 1), ("3", 99)] {
            assert_eq!(without(text, &[cpu].into()), None, "{text} {cpu}");
        }
    }
}
