//! What a connection says about itself, and what the server says about itself: HELLO, AUTH, INFO, SUBSCRIBE.

use super::RedisModel;
use super::reply::Reply;
use weir_core::port::ConnId;

impl RedisModel {
    pub(super) fn hello(&mut self, conn: ConnId, args: &[&[u8]]) -> Reply {
        let mut rest = args.get(1..).unwrap_or_default();
        while let [option, more @ ..] = rest {
            rest = match (option.to_ascii_uppercase().as_slice(), more) {
                (b"AUTH", [_, password, more @ ..]) => {
                    let reply = self.auth(conn, password);
                    if reply != Reply::ok() {
                        return reply;
                    }
                    more
                }
                (b"SETNAME", [_, more @ ..]) => more,
                _ => return Reply::err("Syntax error in HELLO option"),
            };
        }
        let needs_password = self.identity.password.is_some();
        let Some(client) = self.clients.get_mut(&conn) else {
            return Reply::Null;
        };
        client.is_known |= !needs_password;
        if !client.is_known {
            return Reply::Error(
                "NOAUTH HELLO must be called with the client already authenticated".to_string(),
            );
        }
        client.is_resp3 = args.first().is_some_and(|version| *version == b"3");
        let role = if self.identity.is_replica {
            "replica"
        } else {
            "master"
        };
        let pair = |name: &str, value: Reply| (Reply::bulk(name), value);
        Reply::Map(vec![
            pair("server", Reply::bulk("redis")),
            pair("version", Reply::bulk(self.identity.version)),
            pair("proto", Reply::Integer(if client.is_resp3 { 3 } else { 2 })),
            pair("id", Reply::Integer(client.number.into())),
            pair("mode", Reply::bulk("standalone")),
            pair("role", Reply::bulk(role)),
            pair("modules", Reply::Array(Vec::new())),
        ])
    }

    pub(super) fn auth(&mut self, conn: ConnId, password: &[u8]) -> Reply {
        let is_right = match &self.identity.password {
            Some(right) => right.as_bytes() == password,
            None => {
                return Reply::err(
                    "AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
                );
            }
        };
        if !is_right {
            return Reply::Error(
                "WRONGPASS invalid username-password pair or user is disabled.".to_string(),
            );
        }
        if let Some(client) = self.clients.get_mut(&conn) {
            client.is_known = true;
        }
        Reply::ok()
    }

    pub(super) fn info(&self, section: &[u8]) -> Reply {
        let identity = &self.identity;
        let text = match section {
            b"server" => format!(
                "# Server\r\nredis_version:{}\r\nredis_mode:standalone\r\nrun_id:{}\r\n",
                identity.version, identity.run_id
            ),
            b"replication" => format!(
                "# Replication\r\nrole:{}\r\nconnected_slaves:0\r\nmaster_replid:{}\r\n",
                if identity.is_replica {
                    "slave"
                } else {
                    "master"
                },
                identity.replication_id
            ),
            _ => String::new(),
        };
        Reply::bulk(text)
    }

    /// One confirmation per channel; RESP3 sends them as pushes, and nothing else answers the command.
    pub(super) fn subscribe(&mut self, conn: ConnId, channels: &[&[u8]]) -> Reply {
        let Some(client) = self.clients.get_mut(&conn) else {
            return Reply::Null;
        };
        client
            .channels
            .extend(channels.iter().map(|channel| channel.to_vec()));
        let channel = channels.first().copied().unwrap_or_default();
        Reply::Push(vec![
            Reply::bulk("subscribe"),
            Reply::bulk(channel),
            Reply::Integer(client.channels.len() as i64),
        ])
    }
}
