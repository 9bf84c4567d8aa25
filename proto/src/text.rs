//! Short text kept inline, so that a request can be remembered without allocating.
//!
//! Used for request ids, nonces, path ids and key ids. Invariant: bytes are visible ASCII (0x21..=0x7E).

use core::fmt;

/// Up to `N` bytes of visible ASCII, stored inline; `N` is at most 255.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text<const N: usize> {
    len: u8,
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// The empty text.
    pub const EMPTY: Self = Self {
        len: 0,
        bytes: [0; N],
    };

    /// Copies `bytes`; `None` when longer than `N` or when a byte is not visible ASCII.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        Self::of(bytes, |byte| byte.is_ascii_graphic())
    }

    /// [`Self::new`] with fewer bytes allowed: those for which `is_so` holds, all of them visible ASCII.
    #[inline]
    pub(crate) fn of(bytes: &[u8], is_so: impl Fn(u8) -> bool) -> Option<Self> {
        Self::of_visible(bytes).filter(|text| text.all(is_so))
    }

    /// [`Self::new`] of bytes that were looked at before: all are visible ASCII.
    #[inline]
    pub(crate) fn of_visible(bytes: &[u8]) -> Option<Self> {
        let len = u8::try_from(bytes.len()).ok()?;
        let mut text = Self { len, bytes: [0; N] };
        text.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(text)
    }

    /// True when `is_so` holds for every byte; it must not hold for 0, which fills the room behind them. Over all the
    /// room and without an early end: that is vector code.
    #[inline]
    pub(crate) fn all(&self, is_so: impl Fn(u8) -> bool) -> bool {
        let count = |count: u8, &byte: &u8| count + u8::from(is_so(byte));
        self.bytes.iter().fold(0, count) == self.len
    }

    /// The bytes, 0..=N of them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The text as `str`; visible ASCII is always UTF-8.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(self.as_bytes()).expect("Text holds visible ASCII only")
    }

    /// True for the empty text.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::EMPTY
    }
}

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn refuses_what_is_too_long_or_not_visible() {
        assert_eq!(Text::<4>::new(b"abcd").unwrap().as_str(), "abcd");
        assert!(Text::<4>::new(b"abcde").is_none());
        assert!(Text::<4>::new(b"a b").is_none());
        assert!(Text::<4>::new(b"a\n").is_none());
        assert!(Text::<4>::EMPTY.is_empty());
    }
}
