//! Lists of bounded length. Each entry of some lists has a histogram, which takes ten thousand
//! times the memory of its text.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// Reads a list of at most `MOST` entries.
pub(super) fn at_most<'de, D, T, const MOST: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    from.deserialize_seq(List::<T, MOST>(PhantomData))
}

struct List<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for List<T, MOST> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MOST} entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(entry) = from.next_element()? {
            if list.len() == MOST {
                return Err(A::Error::invalid_length(MOST + 1, &self));
            }
            list.push(entry);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Answer, MAX_CPUS};

    #[test]
    fn a_list_is_refused_at_its_first_entry_too_many() {
        let list = |count| {
            let entries = vec![r#"{"cpu":0,"late_ns":[]}"#; count].join(",");
            serde_json::from_str::<Answer>(&format!("{{\"wake_ups\":[{entries}]}}"))
        };
        assert!(matches!(list(3).unwrap(), Answer::WakeUps(woken) if woken.len() == 3));
        let error = list(MAX_CPUS + 1).unwrap_err().to_string();
        assert!(error.contains("at most 1024 entries"), "{error}");
    }
}
