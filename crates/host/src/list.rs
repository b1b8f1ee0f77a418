//! The kernel's lists of CPUs and nodes: `0-3,8,10-11`.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_numbers() {
        assert_eq!(parse("0-3,8,10-11\n"), Ok(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse("\n"), Ok(vec![]));
        for bad in ["x", "3-1", "1-", "-1", "0-4294967295"] {
            assert_eq!(parse(bad), Err(BadList), "{bad}");
        }
    }
}
