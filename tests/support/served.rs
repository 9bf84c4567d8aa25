//! A shop whose server is met by thousands of connections of this machine, on each driver that has sockets.
#![allow(dead_code)] // each test binary uses what it needs

use super::bad_input_world::Shop;

/// The drivers that carry real sockets in the default build, as `[server] driver` names them.
pub const DRIVERS: [&str; 2] = ["uring", "epoll"];

/// A shop that serves with `driver` on all of this machine's addresses, and whose door has no limit that one of them
/// could meet. `lines`: more for its section `server`.
pub fn shop(name: &str, driver: &str, lines: &str) -> Shop {
    let shop = Shop::new(&format!("{name}-{driver}"));
    shop.edit("listen = \"127.0.0.1:0\"", "listen = \"0.0.0.0:0\"");
    shop.set(
        "server",
        &format!("driver = \"{driver}\"\nconns_per_source_max = 4096\n{lines}"),
    );
    shop.set(
        "limits",
        "connect_rate = \"1000000/s\"\nconnect_burst = 1000000",
    );
    shop
}
