//! The kernel's format for lists of CPUs and nodes: `0-3,8,10-11`.

use std::collections::BTreeSet;

/// Exclusive upper bound of a number, above what any Linux supports. A corrupt file cannot cause a
/// larger allocation.
const LIMIT: u32 = 1 << 16;

/// Error for a text that is no list of numbers and ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadList;

/// Parses a list, in the order of the text. An empty text is an empty list.
pub(crate) fn parse(text: &str) -> Result<Vec<u32>, BadList> {
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number < LIMIT).ok_or(BadList);
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

/// Formats numbers as the kernel does.
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

/// Removes `numbers` from a list. Returns `None` if the text is no list, or holds none of them.
pub(crate) fn without(text: &str, numbers: &BTreeSet<u32>) -> Option<BTreeSet<u32>> {
    let before: BTreeSet<u32> = parse(text).ok()?.into_iter().collect();
    let after: BTreeSet<u32> = before.difference(numbers).copied().collect();
    (after != before).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parsed_list_is_formatted_to_the_same_text() {
        for text in ["", "0", "0-3,8,10-11", "1-2"] {
            assert_eq!(format(&parse(text).unwrap().into_iter().collect()), text);
        }
        assert_eq!(without("0-3", &[1, 9].into()), Some([0, 2, 3].into()));
        assert_eq!(without("0-3", &[9].into()), None);
    }

    #[test]
    fn ranges_and_single_numbers_are_parsed_and_bad_lists_are_refused() {
        assert_eq!(parse("0-3,8,10-11\n"), Ok(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse("\n"), Ok(vec![]));
        for bad in ["x", "3-1", "1-", "-1", "0-4294967295"] {
            assert_eq!(parse(bad), Err(BadList), "{bad}");
        }
    }
}
