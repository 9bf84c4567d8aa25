//! One lane: a place for a connection, what is under way on it, and whether more may be sent.
//!
//! A lane outlives its sockets. Requests under way are kept in send order in a ring of fixed size, so that answers
//! match by order alone (RFC 9112 §9.3.2). Owned by `Client`; nothing here sends or calls the workload.

use super::workload::{Job, LaneId, Then};
use weir_core::port::ConnId;
use weir_core::time::Mono;

/// The socket of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// None; stands in the queue of those that connect next.
    Down,
    /// None, and none is asked for before that instant.
    Pausing(Mono),
    /// Asked for.
    Connecting,
    /// Open.
    Open(ConnId),
    /// We closed it; `Closed` has not come yet.
    Closing(ConnId),
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub struct UnderWay {
    /// The job.
    pub job: Job,
    /// When it was sent.
    pub sent: Mono,
}

/// One lane.
#[derive(Clone, Debug)]
pub struct Lane {
    /// Its socket.
    pub link: Link,
    /// How nothing more may be sent, until the request behind this is answered; `Stay` when more may.
    pub hold: Then,
    /// It stands in the queue of lanes that may have room.
    pub queued: bool,
    /// Look at received bytes only from so many on.
    pub need_bytes: usize,
    /// Connects that failed or connections that broke since the last answer.
    pub failures: u32,
    first: u32,
    count: u32,
}

/// All lanes, and the rings of what is under way on each.
#[derive(Debug)]
pub struct Lanes {
    lanes: Vec<Lane>,
    under_way: Vec<UnderWay>,
    pipeline_max: u32,
    /// Requests under way on all lanes.
    pub in_flight: u64,
    /// Lanes that are open.
    pub open: u32,
}

impl Lanes {
    /// `connections` lanes, all down, each with room for `pipeline_max` requests under way.
    pub fn new(connections: u32, pipeline_max: u32) -> Self {
        let lane = Lane {
            link: Link::Down,
            hold: Then::Stay,
            queued: false,
            need_bytes: 0,
            failures: 0,
            first: 0,
            count: 0,
        };
        let nothing = UnderWay {
            job: Job::new(0, Mono(0)),
            sent: Mono(0),
        };
        Self {
            lanes: vec![lane; connections as usize],
            under_way: vec![nothing; connections as usize * pipeline_max as usize],
            pipeline_max,
            in_flight: 0,
            open: 0,
        }
    }

    /// Lanes.
    pub fn count(&self) -> u32 {
        self.lanes.len() as u32
    }

    /// The lane.
    pub fn get(&self, lane: LaneId) -> &Lane {
        &self.lanes[lane.0 as usize]
    }

    /// The lane, to change.
    pub fn get_mut(&mut self, lane: LaneId) -> &mut Lane {
        &mut self.lanes[lane.0 as usize]
    }

    /// The connection of a lane that may take one more request.
    pub fn room(&self, lane: LaneId) -> Option<ConnId> {
        let lane = self.get(lane);
        match lane.link {
            Link::Open(conn) if lane.hold == Then::Stay && lane.count < self.pipeline_max => {
                Some(conn)
            }
            _ => None,
        }
    }

    /// Requests under way on a lane.
    pub fn in_flight_on(&self, lane: LaneId) -> u32 {
        self.get(lane).count
    }

    /// The oldest request under way on a lane.
    pub fn front(&self, lane: LaneId) -> Option<&UnderWay> {
        let Lane { first, count, .. } = *self.get(lane);
        (count > 0).then(|| &self.under_way[self.base(lane) + first as usize])
    }

    /// Puts a request that was just sent behind the others. The lane has room.
    pub fn push(&mut self, lane: LaneId, under_way: UnderWay) {
        let Lane { first, count, .. } = *self.get(lane);
        assert!(count < self.pipeline_max, "the lane had room");
        let at = self.base(lane) + ((first + count) % self.pipeline_max) as usize;
        self.under_way[at] = under_way;
        self.get_mut(lane).count += 1;
        self.in_flight += 1;
    }

    /// Takes the oldest request under way.
    pub fn pop(&mut self, lane: LaneId) -> Option<UnderWay> {
        let under_way = *self.front(lane)?;
        let pipeline_max = self.pipeline_max;
        let lane = self.get_mut(lane);
        lane.first = (lane.first + 1) % pipeline_max;
        lane.count -= 1;
        self.in_flight -= 1;
        Some(under_way)
    }

    fn base(&self, lane: LaneId) -> usize {
        lane.0 as usize * self.pipeline_max as usize
    }
}
