//! glommio.
