//! The loops: the only clock and sockets.

pub mod sim;
