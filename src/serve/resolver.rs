//! Finds the addresses of Redis servers' names. It may block, so it has a thread of its own and only mail.

use std::net::{SocketAddr, ToSocketAddrs};
use weir_core::mail::{Addr, Mail, Resolved};
use weir_core::port::{Effects, Event, Handler};
use weir_core::redis::endpoint::{Endpoint, Host};
use weir_core::time::{Mono, Now};

/// See the module.
pub(super) struct Resolver;

/// The first address of an endpoint; `None`: its name has none now.
pub(super) fn resolve(endpoint: &Endpoint) -> Option<SocketAddr> {
    match &endpoint.host {
        Host::Ip(ip) => Some(SocketAddr::new(*ip, endpoint.port)),
        Host::Name(name) => (&**name, endpoint.port).to_socket_addrs().ok()?.next(),
    }
}

impl Handler for Resolver {
    fn on_start(&mut self, _now: Now, _fx: &mut Effects) {}

    fn on_event(&mut self, _now: Now, event: Event<'_>, fx: &mut Effects) {
        match event {
            Event::Mail(Mail::ResolveAsk(endpoint)) => {
                let to = resolve(&endpoint);
                let endpoint = *endpoint;
                let resolved = Box::new(Resolved { endpoint, to });
                fx.post(Addr::Owner, Mail::Resolved(resolved));
            }
            Event::Drain => fx.stop(),
            _ => {}
        }
    }

    fn on_flush(&mut self, _now: Now, _fx: &mut Effects) {}

    fn next_deadline(&self) -> Option<Mono> {
        None
    }
}
