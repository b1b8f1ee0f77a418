//! Changes bytes of an image.

/// Bytes of a file. Each method changes a part and returns the rest as it was.
#[derive(Debug, Clone)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl Bytes {
    /// Overwrites bytes; the file grows if it has to.
    pub(super) fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0.resize(self.0.len().max(at + bytes.len()), 0);
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(super) fn be32(self, at: usize, number: u32) -> Self {
        self.put(at, &number.to_be_bytes())
    }

    pub(super) fn be64(self, at: usize, number: u64) -> Self {
        self.put(at, &number.to_be_bytes())
    }

    pub(super) fn le16(self, at: usize, number: u16) -> Self {
        self.put(at, &number.to_le_bytes())
    }

    pub(super) fn le32(self, at: usize, number: u32) -> Self {
        self.put(at, &number.to_le_bytes())
    }

    pub(super) fn le64(self, at: usize, number: u64) -> Self {
        self.put(at, &number.to_le_bytes())
    }

    /// Cuts the file, or fills it with zeros, to a length.
    pub(super) fn len(mut self, len: usize) -> Self {
        self.0.resize(len, 0);
        self
    }
}
