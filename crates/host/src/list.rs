//! The kernel's lists of CPUs and nodes: `0-3,8,10-11`.

use std::collections::BTreeSet;

/// More than any Linux supports; bounds what a wrong file can make us allocate.
const MOST: u32 = 1 << 16;

/// The text is no list of numbers and ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadList;

/// The numbers in the order of the text; an empty text is an empty list.
pub(crate) fn parse(text: &str) -> Result<Vec<u32>, BadList> {
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number < MOST).ok_or(BadList);
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(BadList);
        }
        numbers.extend(first..=last);
    }
    Ok(numbers)
}

/// The numbers as the kernel writes them.
pub(crate) fn format(numbers: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

/// The list without these numbers; nothing when it is no list, or none of them is in it.
pub(crate) fn without(text: &str, numbers: &BTreeSet<u32>) -> Option<BTreeSet<u32>> {
    let before: BTreeSet<u32> = parse(text).ok()?.into_iter().collect();
    let after: BTreeSet<u32> = before.difference(numbers).copied().collect();
    (after != before).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_written_as_they_are_read() {
        for text in ["", "0", "0-3,8,10-11", "1-2"] {
            assert_eq!(format(&parse(text).unwrap().into_iter().collect()), text);
        }
        assert_eq!(without("0-3", &[1, 9].into()), Some([0, 2, 3].into()));
        assert_eq!(without("0-3", &[9].into()), None);
    }

    #[test]
    fn ranges_and_single_numbers() {
        assert_eq!(parse("0-3,8,10-11\n"), Ok(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse("\n"), Ok(vec![]));
        for bad in ["x", "3-1", "1-", "-1", "0-4294967295"] {
            assert_eq!(parse(bad), Err(BadList), "{bad}");
        }
    }
}
