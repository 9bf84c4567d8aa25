//! The 64 bits that the kernel hands back with a completion: what it was, for which slot, in which generation.

use weir_core::port::ConnId;

/// What was asked of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Accept; its number stands in the place of the slot.
    Accept,
    /// Stop of it.
    AcceptStop,
    /// Multishot receive of a conn.
    Recv,
    /// Stop of it.
    RecvStop,
    /// Send of a conn.
    Send,
    /// Connect of a conn to be.
    Connect,
    /// Its deadline.
    ConnectDeadline,
    /// Read of the doorbell.
    Bell,
    /// Close of a direct socket.
    Close,
    /// End of its sending side.
    Shutdown,
    /// End of one of its operations.
    Cancel,
}

/// All of them, in the order of their numbers; the last [`DIRECT_KINDS`] are of direct sockets only.
pub const KINDS: [Kind; 11] = [
    Kind::Accept,
    Kind::AcceptStop,
    Kind::Recv,
    Kind::RecvStop,
    Kind::Send,
    Kind::Connect,
    Kind::ConnectDeadline,
    Kind::Bell,
    Kind::Close,
    Kind::Shutdown,
    Kind::Cancel,
];

/// See [`KINDS`].
pub const DIRECT_KINDS: usize = 3;

/// True for those that say something only when they fail.
pub fn is_silent(kind: Kind) -> bool {
    matches!(kind, Kind::Close | Kind::Cancel)
}

/// No conn: for accept and doorbell.
pub const NO_CONN: ConnId = ConnId {
    slot: 0,
    generation: 0,
};

/// Kind in the top 8 bits, slot in the next 24, generation in the low 32.
pub fn pack(kind: Kind, conn: ConnId) -> u64 {
    debug_assert!(conn.slot < crate::limits::CONNS_MAX, "slots fit in 24 bits");
    (kind as u64) << 56 | u64::from(conn.slot) << 32 | u64::from(conn.generation)
}

/// The reverse of [`pack`].
pub fn unpack(tag: u64) -> (Kind, ConnId) {
    let conn = ConnId {
        slot: (tag >> 32) as u32 & 0x00ff_ffff,
        generation: tag as u32,
    };
    (KINDS[(tag >> 56) as usize], conn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_brings_back_kind_slot_and_generation() {
        let conn = ConnId {
            slot: 0x00ab_cdef,
            generation: 0xfedc_ba98,
        };
        for (at, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
            assert_eq!(unpack(pack(kind, conn)), (kind, conn));
        }
    }
}
