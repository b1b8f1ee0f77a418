//! A list whose first items need no allocation, for functions that a signal handler may call (`man
//! 7 signal-safety`).

/// A list of items, the first `N` without allocation.
#[derive(Debug)]
pub(crate) struct Few<T, const N: usize> {
    first: [T; N],
    len: usize,
    /// All items, once there are more than `N`.
    more: Vec<T>,
}

impl<T: Copy, const N: usize> Few<T, N> {
    /// An empty list. `none` fills the unused places.
    pub(crate) fn new(none: T) -> Self {
        Self { first: [none; N], len: 0, more: Vec::new() }
    }

    /// A list of `len` copies of an item.
    pub(crate) fn filled(item: T, len: usize) -> Self {
        let more = if len > N { vec![item; len] } else { Vec::new() };
        Self { first: [item; N], len: len.min(N), more }
    }

    /// A list of these items.
    pub(crate) fn of(items: &[T], none: T) -> Self {
        let mut this = Self::filled(none, items.len());
        this.items_mut().copy_from_slice(items);
        this
    }

    /// Adds an item.
    pub(crate) fn push(&mut self, item: T) {
        match self.first.get_mut(self.len) {
            Some(place) if self.more.is_empty() => {
                *place = item;
                self.len += 1;
            }
            _ => {
                if self.more.is_empty() {
                    self.more.extend_from_slice(&self.first);
                }
                self.more.push(item);
            }
        }
    }

    /// The items.
    pub(crate) fn items(&self) -> &[T] {
        if self.more.is_empty() { self.first.get(..self.len).unwrap_or_default() } else { &self.more }
    }

    /// The items, to be changed.
    pub(crate) fn items_mut(&mut self) -> &mut [T] {
        if self.more.is_empty() { self.first.get_mut(..self.len).unwrap_or_default() } else { &mut self.more }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_stay_in_order_however_many_there_are() {
        let mut list = Few::<usize, 3>::new(0);
        for count in 0..10 {
            assert_eq!(list.items(), (0..count).collect::<Vec<_>>());
            list.push(count);
        }
        list.items_mut()[9] = 7;
        assert_eq!(list.items()[9], 7);
        for len in 0..10 {
            let items: Vec<_> = (0..len).collect();
            let mut list = Few::<usize, 3>::of(&items, 9);
            assert_eq!(list.items(), items);
            list.push(len);
            assert_eq!(list.items().len(), len + 1);
            assert_eq!(Few::<usize, 3>::filled(4, len).items(), vec![4; len]);
        }
    }
}
