//! Our side of Redis against real servers: where it starts, it answers, and nothing of it is left afterwards.

#[path = "redis_part/mod.rs"]
mod redis_part;

use redis_part::Redis;
use std::path::Path;

#[test]
fn a_server_answers_and_is_gone_with_its_test() {
    let Some(server) = Redis::start() else {
        return;
    };
    assert_eq!(server.cli(&["PING"]), "PONG");
    assert_eq!(
        server.cli(&["CONFIG", "GET", "appendonly"]),
        "appendonly\nno"
    );
    let (pid, addr) = (server.pid(), server.addr());
    let fallen = std::thread::spawn(move || -> () {
        assert_eq!(server.cli(&["GET", "nothing"]), "something");
    });
    fallen
        .join()
        .expect_err("the thread panics, with the server in its hands");
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    std::net::TcpStream::connect(addr).expect_err("nobody listens any more");
}
