//! Why a link is closed or not used: one variant per reason, with the remedy in its words.

use crate::port::ConnectError;
use core::fmt;
use weir_proto::resp::RespReject;
use weir_proto::text::Text;

/// The first word of an error reply, cut to what a name can have.
pub type ErrorWord = Text<24>;

/// Why a link was closed. Never carries a password, a key or a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFault {
    /// The name has no address.
    NoAddress,
    /// The connection could not be made.
    Connect(ConnectError),
    /// The greeting did not end in time; whatever comes later belongs to no ask of ours.
    GreetingTimedOut,
    /// The oldest thing sent was not answered in time.
    ReplyTimedOut,
    /// The server closed the connection.
    Closed,
    /// Bytes that are no RESP, or above our limits.
    Protocol(RespReject),
    /// A reply that nobody waits for.
    Unsolicited,
    /// A reply of another type than what was sent gives.
    WrongShape,
    /// HELLO or AUTH was refused: user or password are wrong, or one is needed and none is configured.
    NotAuthenticated,
    /// The user of this link may not run a command that it needs.
    NotPermitted,
    /// Another error to a command of the greeting.
    Refused(ErrorWord),
    /// The server said that it is a replica: nothing can be written there.
    IsReplica,
    /// It still reads its data set.
    Loading,
}

impl LinkFault {
    /// A short word for it, as metrics name it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NoAddress => "no_address",
            Self::Connect(ConnectError::Refused) => "refused",
            Self::Connect(ConnectError::TimedOut) => "timed_out",
            Self::Connect(ConnectError::LocalLimit) => "local_limit",
            Self::Connect(ConnectError::Tls(fault)) => fault.word(),
            Self::Connect(ConnectError::Other(_)) => "not_connected",
            Self::GreetingTimedOut => "greeting_timed_out",
            Self::ReplyTimedOut => "reply_timed_out",
            Self::Closed => "closed",
            Self::Protocol(_) | Self::Unsolicited | Self::WrongShape => "protocol",
            Self::NotAuthenticated => "not_authenticated",
            Self::NotPermitted => "not_permitted",
            Self::Refused(_) => "greeting_refused",
            Self::IsReplica => "is_replica",
            Self::Loading => "loading",
        }
    }
}

impl fmt::Display for LinkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => {
                f.write_str("its name has no address; check the name and the resolver")
            }
            Self::Connect(ConnectError::Refused) => {
                f.write_str("nothing listens there; start the server or mend the address")
            }
            Self::Connect(ConnectError::TimedOut) => f.write_str(
                "no connection within its time; check the address, the network and firewalls",
            ),
            Self::Connect(ConnectError::LocalLimit) => f.write_str(
                "this machine gave no descriptor or port; raise the limit of open files",
            ),
            Self::Connect(ConnectError::Tls(fault)) => fault.fmt(f),
            Self::Connect(ConnectError::Other(errno)) => {
                write!(f, "could not be connected (errno {errno})")
            }
            Self::GreetingTimedOut => f.write_str(
                "no whole greeting within its time; is it a Redis, and is it not overloaded?",
            ),
            Self::ReplyTimedOut => {
                f.write_str("a reply did not come in time; what was under way is unknown")
            }
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Protocol(reject) => write!(f, "sent what is no RESP ({reject})"),
            Self::Unsolicited => f.write_str("sent a reply that nobody asked for"),
            Self::WrongShape => f.write_str("sent a reply of another type than its command gives"),
            Self::NotAuthenticated => f.write_str(
                "did not take the user and password; check redis.user and redis.password_file",
            ),
            Self::NotPermitted => f.write_str(
                "does not let this user run a command that weir needs; README lists the ACL",
            ),
            Self::Refused(word) => write!(f, "refused the greeting with {word}"),
            Self::IsReplica => {
                f.write_str("is a replica, which takes no writes; name the master instead")
            }
            Self::Loading => f.write_str("is still loading its data set"),
        }
    }
}
