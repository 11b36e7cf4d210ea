//! The 64 bytes that a handle is for other processes: a mark of its kind, and numbers.

/// How long they all are.
pub const LEN: usize = 64;

/// Fills a blob.
pub struct Writer {
    bytes: [u8; LEN],
    at: usize,
}

impl Writer {
    /// A blob of a kind.
    pub fn new(mark: &[u8; 8]) -> Self {
        let mut writer = Self { bytes: [0; LEN], at: 0 };
        writer.put(u64::from_ne_bytes(*mark));
        writer
    }

    /// The next number.
    pub fn put(&mut self, number: u64) {
        self.bytes[self.at..self.at + 8].copy_from_slice(&number.to_ne_bytes());
        self.at += 8;
    }

    /// The whole.
    pub fn finish(self) -> [u8; LEN] {
        self.bytes
    }
}

/// Reads a blob. What comes from another process may be anything.
pub struct Reader {
    bytes: [u8; LEN],
    at: usize,
}

impl Reader {
    /// A blob that bears the mark of its kind.
    pub fn new(bytes: [u8; LEN], mark: &[u8; 8]) -> Option<Self> {
        let mut reader = Self { bytes, at: 0 };
        (reader.take()? == u64::from_ne_bytes(*mark)).then_some(reader)
    }

    /// The next number.
    pub fn take(&mut self) -> Option<u64> {
        let bytes = self.bytes.get(self.at..self.at + 8)?;
        self.at += 8;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}
