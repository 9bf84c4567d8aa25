//! One answer of the operator's listener, as a value.

use serde::Serialize;
use weir_proto::http::Connection;
use weir_proto::http::date::DateCache;
use weir_proto::http::response::{self, ContentType, Meta, Status};

/// Status, body and what the head says of them.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub status: Status,
    pub content_type: ContentType,
    pub body: Vec<u8>,
    pub allow: Option<&'static str>,
}

impl Reply {
    pub(super) fn json(status: Status, body: &impl Serialize) -> Self {
        let mut body = serde_json::to_vec(body).expect("our own bodies have text keys only");
        body.push(b'\n'); // for a person with curl
        Self {
            status,
            content_type: ContentType::Json,
            body,
            allow: None,
        }
    }

    pub(super) fn text(status: Status, content_type: ContentType, body: Vec<u8>) -> Self {
        Self {
            status,
            content_type,
            body,
            allow: None,
        }
    }

    /// Writes head and body; every connection takes one request only.
    pub(super) fn write(&self, out: &mut Vec<u8>, date: &DateCache, head_only: bool) {
        let meta = Meta {
            head_only,
            content_type: self.content_type,
            allow: self.allow,
            ..Meta::new(date, Connection::Close)
        };
        response::write(out, self.status, &meta, &self.body);
    }
}
