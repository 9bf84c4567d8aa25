//! What a client's bytes say, in the words of the judge.

use super::answers::answers;
use super::http_rows::{Heard, Outcome};
use serde_json::Value;
use weir_proto::http::Method;

/// Reads everything that a row's connection brought. `closed`: the server ended it first.
///
/// # Errors
/// Bytes that are no answer, or half of one.
pub fn heard(model: &Outcome, bytes: &[u8], closed: bool) -> Result<Heard, String> {
    let is_head = |answer: usize| {
        let request = model.requests.get(answer);
        request.is_some_and(|seen| seen.method == Method::Head)
    };
    let (answers, left_over) = answers(bytes, is_head)?;
    if left_over > 0 {
        return Err(format!("{left_over} bytes of an answer that does not end"));
    }
    let mut heard = Heard {
        closed,
        bytes: bytes.to_vec(),
        ..Heard::default()
    };
    for answer in answers {
        if !answer.is_final() {
            heard.interims.push(answer.status);
            continue;
        }
        heard.statuses.push(answer.status);
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let echo = body["detail"].as_str().filter(|_| answer.status == 200);
        heard.echoes.push(echo.map(str::to_owned));
        if answer.closes() && !closed {
            return Err(format!("{} says close and does not", answer.status));
        }
    }
    Ok(heard)
}

/// Says where `heard` differs from what the parser alone makes of the same bytes in one piece.
///
/// # Errors
/// The difference.
pub fn same(model: &Outcome, heard: &Heard) -> Result<(), String> {
    let wanted = model.heard();
    let is_head = |at: usize| {
        let request = model.requests.get(at);
        request.is_some_and(|seen| seen.method == Method::Head)
    };
    let mut echoes = wanted.echoes;
    for (at, echo) in echoes.iter_mut().enumerate() {
        echo.take_if(|_| is_head(at)); // an answer without a body tells nothing
    }
    let (ours, theirs) = (
        (&wanted.statuses, &echoes, wanted.closed),
        (&heard.statuses, &heard.echoes, heard.closed),
    );
    if ours == theirs {
        Ok(())
    } else {
        Err(format!("{theirs:?}, the parser: {ours:?}"))
    }
}
