//! The provided-buffer ring: receive buffers that the kernel picks from when data arrive.
//!
//! A buffer belongs to the kernel until a completion names it, then to us until it is given back; `ours` says which,
//! so that no slice can exist of memory that the kernel may write to. One ring of buffers per io_uring.

use io_uring::types::BufRingEntry;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

/// What pages are aligned to; io_uring_register_buf_ring(3) wants the ring page-aligned.
const PAGE_BYTES: usize = 4096;

/// Entries and buffers, in one allocation each.
pub struct Buffers {
    entries: NonNull<BufRingEntry>,
    bytes: NonNull<u8>,
    count: u16,
    buffer_bytes: u32,
    tail: u16,
    /// True while a completion gave the buffer to us.
    ours: Box<[bool]>,
    /// How many of them are.
    ours_count: u16,
}

// SAFETY: the pointers are to memory that this value alone owns; it moves to another thread only whole.
unsafe impl Send for Buffers {}

impl Buffers {
    /// `count`: a power of two up to 2^15; all are offered to the kernel at once.
    pub fn new(count: u16, buffer_bytes: u32) -> Self {
        assert!(count.is_power_of_two(), "the kernel takes powers of two");
        assert!(buffer_bytes > 0, "a receive buffer holds something");
        let (ring, data) = Self::layouts(count, buffer_bytes);
        let mut buffers = Self {
            entries: allocate(ring).cast(),
            bytes: allocate(data),
            count,
            buffer_bytes,
            tail: 0,
            ours: vec![true; count.into()].into_boxed_slice(),
            ours_count: count,
        };
        for id in 0..count {
            buffers.give_back(id);
        }
        buffers
    }

    fn layouts(count: u16, buffer_bytes: u32) -> (Layout, Layout) {
        let layout = |bytes| {
            Layout::from_size_align(bytes, PAGE_BYTES)
                .expect("2^15 buffers of 4 GiB fit in an address")
        };
        (
            layout(usize::from(count) * size_of::<BufRingEntry>()),
            layout(usize::from(count) * buffer_bytes as usize),
        )
    }

    /// Where the entries are, to register them.
    pub fn entries_addr(&self) -> u64 {
        self.entries.as_ptr() as u64
    }

    /// How many there are.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// True when every buffer is with the kernel: so it is between two turns, whatever happened in them (field bug R62).
    pub fn all_back(&self) -> bool {
        self.ours_count == 0
    }

    /// A completion names buffer `id`: it is ours until given back.
    pub fn taken(&mut self, id: u16) {
        assert!(
            !self.ours[usize::from(id)],
            "the kernel names only buffers that it has"
        );
        self.ours[usize::from(id)] = true;
        self.ours_count += 1;
    }

    /// The first `len` bytes of buffer `id`.
    pub fn bytes(&self, id: u16, len: usize) -> &[u8] {
        assert!(self.ours[usize::from(id)], "this buffer is the kernel's");
        assert!(
            len <= self.buffer_bytes as usize,
            "received more than a buffer holds"
        );
        // SAFETY: `id` < count (it indexes `ours`), so start and length are inside the allocation, which was zeroed;
        // the kernel writes only to buffers offered to it, and this one is ours until `give_back`, which needs
        // `&mut self` and so ends this borrow.
        unsafe {
            let start = self
                .bytes
                .as_ptr()
                .add(usize::from(id) * self.buffer_bytes as usize);
            std::slice::from_raw_parts(start, len)
        }
    }

    /// Offers buffer `id` to the kernel again.
    pub fn give_back(&mut self, id: u16) {
        let ours = &mut self.ours[usize::from(id)];
        assert!(*ours, "a buffer is given back once");
        *ours = false;
        self.ours_count -= 1;
        let at = usize::from(self.tail & (self.count - 1));
        // SAFETY: `at` < count, so the entry is inside the allocation. The kernel reads entries between its head and
        // the published tail only, and this one is beyond the tail: at most `count` buffers exist, each in one entry.
        // The tail is the `resv` field of the first entry (io_uring_register_buf_ring(3)); no setter touches it; the
        // kernel reads it with acquire, so it is stored with release, after the entry.
        unsafe {
            let entry = &mut *self.entries.as_ptr().add(at);
            entry.set_addr(
                self.bytes
                    .as_ptr()
                    .add(usize::from(id) * self.buffer_bytes as usize) as u64,
            );
            entry.set_len(self.buffer_bytes);
            entry.set_bid(id);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(self.entries.as_ptr()).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }
}

fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layout is not empty: at least one buffer of at least one byte.
    let at = unsafe { alloc_zeroed(layout) };
    NonNull::new(at).unwrap_or_else(|| handle_alloc_error(layout))
}

impl Drop for Buffers {
    fn drop(&mut self) {
        let (ring, data) = Self::layouts(self.count, self.buffer_bytes);
        // SAFETY: allocated with these layouts in `new`; the owner drops the io_uring first, and only with nothing
        // outstanding, so the kernel no longer knows the memory.
        unsafe {
            dealloc(self.entries.as_ptr().cast(), ring);
            dealloc(self.bytes.as_ptr(), data);
        }
    }
}
