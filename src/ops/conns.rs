//! The few connections of the operator's listener: one request each, absolute deadlines.

use super::limits::HEAD_MS_MAX;
use std::net::SocketAddr;
use weir_core::port::ConnId;
use weir_core::time::Mono;
use weir_proto::http::RequestParser;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The rest of the head.
    Head,
    /// The rest of the body.
    Body,
    /// Another part of weir: bounded by that part's deadline.
    Answer,
    /// The client's end; its answer is on its way.
    Linger,
}

#[derive(Debug)]
pub(super) struct Conn {
    pub id: ConnId,
    pub peer: SocketAddr,
    pub parser: RequestParser,
    pub phase: Phase,
    /// `None` in `Answer`.
    pub due: Option<Mono>,
    pub head_only: bool,
    pub drained_bytes: usize,
}

/// A table of fixed size by slot.
#[derive(Debug)]
pub(super) struct Conns {
    slots: Vec<Option<Conn>>,
}

impl Conns {
    pub(super) fn new(conns_max: usize) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(conns_max, || None);
        Self { slots }
    }

    /// False: the driver has more slots than this table, which only wrong wiring can cause; close the conn.
    pub(super) fn open(&mut self, now: Mono, id: ConnId, peer: SocketAddr) -> bool {
        let Some(slot) = self.slots.get_mut(id.slot as usize) else {
            return false;
        };
        *slot = Some(Conn {
            id,
            peer,
            parser: RequestParser::default(),
            phase: Phase::Head,
            due: Some(now.plus_ms(HEAD_MS_MAX)),
            head_only: false,
            drained_bytes: 0,
        });
        true
    }

    pub(super) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        let conn = self.slots.get_mut(id.slot as usize)?.as_mut()?;
        (conn.id == id).then_some(conn)
    }

    pub(super) fn close(&mut self, id: ConnId) {
        if self.get_mut(id).is_some() {
            self.slots[id.slot as usize] = None;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Conn> {
        self.slots.iter().flatten()
    }

    pub(super) fn next_deadline(&self) -> Option<Mono> {
        self.iter().filter_map(|conn| conn.due).min()
    }

    /// Those whose deadline has passed.
    pub(super) fn due(&self, now: Mono) -> Vec<(ConnId, Phase)> {
        self.iter()
            .filter(|conn| conn.due.is_some_and(|due| due <= now))
            .map(|conn| (conn.id, conn.phase))
            .collect()
    }
}
