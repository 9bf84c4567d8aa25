//! The buyers' connections: which are open, what is out on each, in order.

use super::Sent;
use crate::sim::plan::LISTEN;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use weir_core::port::{ConnId, Connect, ConnectToken, Effects};
use weir_core::time::{Mono, Now};

/// How long a buyer waits for a connection.
const CONNECT_MS: u64 = 400;

#[derive(Debug, Default)]
struct Line {
    stamp: u32,
    /// Taken: connecting or open.
    used: bool,
    conn: Option<ConnId>,
    /// Bytes that wait for the connection.
    early: Vec<u8>,
    out: VecDeque<Sent>,
    hung_up: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: Vec<Line>,
    free: Vec<u32>,
    /// The line of each conn slot, with the conn's generation.
    by_slot: Vec<Option<(u32, u32)>>,
    outstanding: usize,
}

impl Lines {
    /// Asks for a connection from `from`, whose first bytes are `greeting`; gives line and stamp.
    pub fn connect(
        &mut self,
        now: Now,
        from: Ipv4Addr,
        greeting: &[u8],
        fx: &mut Effects,
    ) -> (u32, u32) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.lines.push(Line::default());
            self.lines.len() as u32 - 1
        });
        let line = &mut self.lines[index as usize];
        line.used = true;
        line.hung_up = false;
        line.early.extend_from_slice(greeting);
        fx.connect(Connect {
            token: ConnectToken(u64::from(line.stamp) << 32 | u64::from(index)),
            to: LISTEN,
            from: Some(SocketAddr::new(IpAddr::V4(from), 0)),
            deadline: now.mono.plus_ms(CONNECT_MS),
        });
        (index, line.stamp)
    }

    fn get(&self, index: u32, stamp: u32) -> Option<&Line> {
        let line = &self.lines[index as usize];
        (line.used && line.stamp == stamp).then_some(line)
    }

    /// True when it may be sent on.
    pub fn is_open(&self, index: u32, stamp: u32) -> bool {
        self.get(index, stamp).is_some_and(|line| !line.hung_up)
    }

    /// Sends, now or when connected. True: nothing else is out on this line.
    pub fn send(&mut self, index: u32, sent: Sent, bytes: &[u8], fx: &mut Effects) -> bool {
        let line = &mut self.lines[index as usize];
        match line.conn {
            Some(conn) => fx.outbox(conn).extend_from_slice(bytes),
            None => line.early.extend_from_slice(bytes),
        }
        line.out.push_back(sent);
        self.outstanding += 1;
        line.out.len() == 1
    }

    pub fn connected(&mut self, conn: ConnId, token: ConnectToken, fx: &mut Effects) {
        let Some(index) = self.of_token(token) else {
            fx.close(conn);
            return;
        };
        let slot = conn.slot as usize;
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, None);
        }
        self.by_slot[slot] = Some((conn.generation, index));
        let line = &mut self.lines[index as usize];
        line.conn = Some(conn);
        fx.outbox(conn).append(&mut line.early);
        if line.hung_up {
            fx.close(conn);
        }
    }

    pub fn of_token(&self, token: ConnectToken) -> Option<u32> {
        let (index, stamp) = (token.0 as u32, (token.0 >> 32) as u32);
        self.get(index, stamp).map(|_| index)
    }

    pub fn of_conn(&self, conn: ConnId) -> Option<u32> {
        let (generation, index) = (*self.by_slot.get(conn.slot as usize)?)?;
        (generation == conn.generation).then_some(index)
    }

    /// The request that a reply on this line answers.
    pub fn answered(&mut self, index: u32) -> Option<Sent> {
        let sent = self.lines[index as usize].out.pop_front()?;
        self.outstanding -= 1;
        Some(sent)
    }

    /// When the first reply of this line is due, with its stamp.
    pub fn next_due(&self, index: u32) -> Option<(u32, Mono)> {
        let line = &self.lines[index as usize];
        line.out.front().map(|sent| (line.stamp, sent.due))
    }

    /// The same, if the line is still the one of that stamp.
    pub fn first_due(&self, index: u32, stamp: u32) -> Option<Mono> {
        let line = self.get(index, stamp)?;
        line.out.front().map(|sent| sent.due)
    }

    /// Closes the connection, now or as soon as it is there. False: it is gone already.
    pub fn hang_up(&mut self, index: u32, stamp: u32, fx: &mut Effects) -> bool {
        if self.get(index, stamp).is_none() {
            return false;
        }
        let line = &mut self.lines[index as usize];
        if let Some(conn) = line.conn.filter(|_| !line.hung_up) {
            fx.close(conn);
        }
        !std::mem::replace(&mut line.hung_up, true)
    }

    /// The line is over; what was out.
    pub fn close(&mut self, index: u32) -> VecDeque<Sent> {
        let line = &mut self.lines[index as usize];
        if let Some(conn) = line.conn.take() {
            self.by_slot[conn.slot as usize] = None;
        }
        line.used = false;
        line.stamp = line.stamp.wrapping_add(1);
        line.early.clear();
        self.free.push(index);
        let out = std::mem::take(&mut line.out);
        self.outstanding -= out.len();
        out
    }

    /// Requests without a reply, on all lines.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }
}
