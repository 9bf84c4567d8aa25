//! The drivers that carry real sockets in the default build, as `[server] driver` names them: tests of bytes on sockets
//! run on each.

pub const DRIVERS: [&str; 1] = ["uring"];
