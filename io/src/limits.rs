//! Every capacity of the drivers, with the reason for its number (style §3).

/// Mail that fits in one part's box.
pub use weir_core::mail::MAILBOX_MAX;

/// Completions shown to the handler in one turn: keeps a turn, and with it the answer of the first request in it,
/// well under a millisecond at 2 µs each; what is left over comes next turn without sleeping.
pub const COMPLETIONS_PER_TURN_MAX: usize = 256;
/// Mail shown to a ring's handler in one turn; same reason.
pub const MAIL_PER_RING_TURN_MAX: usize = 256;
/// Mail shown to a part without sockets in one turn: four times the largest batch of the order store, so that
/// batches fill while one commits.
pub const MAIL_PER_BOX_TURN_MAX: usize = 4096;
/// Bytes that a handler may leave unconsumed on one conn before the driver stops receiving there: above the largest
/// request (head 16 KiB + chunked body 16 KiB + trailers), so that a whole one always fits.
pub const RECV_BACKLOG_BYTES_MAX: usize = 40 * 1024;
/// The same on a conn that we connected: the longest reply that its handler takes is in hand before any of it is
/// consumed (Redis: weir-proto's `RESP_REPLY_BYTES_MAX`; the servers are few, chosen by the operator).
pub const REPLY_BACKLOG_BYTES_MAX: usize = 1024 * 1024;
/// Bytes that the kernel may bring to a conn after the driver has asked it to stop: io_uring's multishot receive fills
/// up to 32 buffers before it looks at anything else (io_uring/net.c, MULTISHOT_MAX_RETRY), 2 KiB each as configured.
pub const RECV_BURST_BYTES_MAX: usize = 64 * 1024;
/// A backlog buffer above this is given back when it empties: most requests that come in two pieces are smaller.
pub const BACKLOG_KEEP_BYTES_MAX: usize = 4 * 1024;
/// A send buffer above this is given back when it is sent: 64 pipelined answers fit, an export does not stay.
pub const SEND_KEEP_BYTES_MAX: usize = 64 * 1024;
/// Memory of one conn's two send buffers after ordinary answers; used to plan memory, not to bound it.
pub const CONN_WARM_BYTES: usize = 2 * 1024;
/// Connections waiting in the kernel per listener; the kernel cuts it to net.core.somaxconn, 4096 by default.
pub const LISTEN_BACKLOG: i32 = 4096;
/// What is asked of the kernel for each direction of an accepted socket (it takes twice as much): above the largest
/// request and above the replies of a full pipeline, far below the megabytes to which the kernel would let it grow for
/// a client that does not read (A2).
pub const SOCKET_BUFFER_BYTES: i32 = 64 * 1024;
/// Clients that one turn takes in: more accepts are never under way on a ring, and a task that accepted so many lets the
/// turns say whether there is room for more. A quarter of what one turn takes, so that receives keep their share.
pub const ACCEPTS_MAX: u32 = 64;
/// Accepted sockets held without a slot: those that were under way when the last slot was taken, and as many again that a
/// task accepted while the turn ran. Above this they are closed and counted.
pub const PARKED_MAX: usize = 2 * ACCEPTS_MAX as usize;
/// Pause after an accept failed for want of descriptors or memory: long enough not to spin, short enough that
/// accepting is alive again within 100 ms of descriptors coming free (field bug R63).
pub const ACCEPT_RETRY_MS: u64 = 50;
/// Pause before mail that a full box refused is offered again, when nothing else wakes the sender.
pub const POST_RETRY_MS: u64 = 1;
/// How long a stopping part goes on offering its last mail to full boxes before it gives up.
pub const POSTS_AT_STOP_MS_MAX: u64 = 1_000;
/// Slots that fit in the 24 bits that a completion's tag has for them.
pub const CONNS_MAX: u32 = 1 << 24;
/// Most provided buffers of one ring: io_uring_register_buf_ring(3) allows 2^15.
pub const RECV_BUFFERS_MAX: u16 = 1 << 15;
/// Longest submission queue of a ring: io_uring_setup(2) allows a completion queue of 2^16 entries, and that is
/// [`CQ_PER_SQ`] times as long.
pub const RING_ENTRIES_MAX: u32 = 1 << 14;
/// Completion entries per submission entry: each conn has one receive armed and one send under way, and an accept
/// brings more; what does not fit waits in the kernel (IORING_FEAT_NODROP) and is counted.
pub const CQ_PER_SQ: u32 = 4;
