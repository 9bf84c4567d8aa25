//! What every script keeps (`lua/README.md`): declared keys, checks before writes, no loops, whole numbers, a header.

use super::tokens::{Call, Kind, Token, calls, list, tokens};

/// One thing that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// From 1; 0: the file as a whole.
    pub line: usize,
    /// Which rule.
    pub rule: &'static str,
    /// What.
    pub message: String,
}

/// Commands that change nothing, and words that keep them within a bound.
const READS: [(&str, &[&str]); 13] = [
    ("TIME", &[]),
    ("HGET", &[]),
    ("HMGET", &[]),
    ("HEXISTS", &[]),
    ("HLEN", &[]),
    ("EXISTS", &[]),
    ("XLEN", &[]),
    ("ZCARD", &[]),
    ("ZCOUNT", &[]),
    ("HSCAN", &["COUNT"]),
    ("ZRANGE", &["-1"]), // the newest only
    ("ZRANGEBYSCORE", &["LIMIT"]),
    ("XINFO", &["GROUPS"]),
];
/// Commands that write; all of bounded work.
const WRITES: [&str; 15] = [
    "HSET",
    "HDEL",
    "SET",
    "ZADD",
    "ZREM",
    "ZREMRANGEBYSCORE",
    "XADD",
    "XACK",
    "XDEL",
    "XGROUP",
    "XAUTOCLAIM",
    "XREADGROUP",
    "PEXPIREAT",
    "PEXPIRE",
    "PUBLISH",
];
/// Names that a script finds; everything else is local.
const GLOBALS: [&str; 8] = [
    "redis", "KEYS", "ARGV", "string", "math", "table", "tonumber", "unpack",
];

struct Script<'a> {
    tokens: &'a [Token],
    calls: Vec<Call<'a>>,
    findings: Vec<Finding>,
}

impl Script<'_> {
    fn say(&mut self, line: usize, rule: &'static str, message: String) {
        self.findings.push(Finding {
            line,
            rule,
            message,
        });
    }
}

/// Everything that is wrong with one script.
pub fn check(text: &str) -> Vec<Finding> {
    let tokens = tokens(text);
    let mut script = Script {
        tokens: &tokens,
        calls: calls(&tokens),
        findings: Vec::new(),
    };
    header(text, &mut script);
    commands_and_keys(&mut script);
    writes_come_last(&mut script);
    no_loops(&mut script);
    whole_numbers(&mut script);
    names(&mut script);
    script.findings.sort_by_key(|finding| finding.line);
    script.findings
}

/// `KEYS[3]` as 3 at each place where `name` stands.
fn indexes<'a>(tokens: &'a [Token], name: &str) -> impl Iterator<Item = (usize, Option<&'a str>)> {
    tokens
        .windows(4)
        .filter(move |window| window[0].is(name))
        .map(|window| {
            let is_plain = window[1].is("[") && window[2].kind == Kind::Number && window[3].is("]");
            (window[0].line, is_plain.then_some(window[2].text.as_str()))
        })
}

/// The comment above the code has its parts and names exactly the keys and arguments that the code uses.
fn header(text: &str, script: &mut Script) {
    let lines = text.lines().take_while(|line| line.starts_with("--"));
    let head: String = lines.map(|line| format!("{line}\n")).collect();
    for part in ["What", "KEYS", "ARGV", "Returns", "Complexity", "Writes"] {
        if !head.contains(&format!("-- {part}: ")) && !head.contains(&format!("-- {part}[1] ")) {
            script.say(0, "header", format!("no `-- {part}: `"));
        }
    }
    for name in ["KEYS", "ARGV"] {
        let mut used: Vec<String> = indexes(script.tokens, name)
            .filter_map(|(_, index)| index.map(str::to_string))
            .collect();
        let opening = format!("{name}[");
        let said = head.split(opening.as_str()).skip(1);
        let mut said: Vec<String> = said
            .filter_map(|rest| rest.split_once(']'))
            .map(|(index, _)| index.to_string())
            .collect();
        for list in [&mut used, &mut said] {
            list.sort();
            list.dedup();
        }
        if used != said {
            script.say(
                0,
                "header",
                format!("the header tells {name} {said:?}, the code uses {used:?}"),
            );
        }
    }
}

/// Names that stand for a declared key.
fn bound_keys(tokens: &[Token]) -> Vec<&str> {
    let mut bound = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if !token.is("local") {
            continue;
        }
        let is_name = |token: &&Token| token.kind == Kind::Name || token.is(",");
        let names: Vec<&Token> = tokens[at + 1..].iter().take_while(is_name).collect();
        let equals = at + 1 + names.len();
        if !tokens.get(equals).is_some_and(|token| token.is("=")) {
            continue;
        }
        let names = names.into_iter().filter(|token| !token.is(","));
        for (name, value) in names.zip(list(&tokens[equals + 1..])) {
            if is_key(value, &[]) {
                bound.push(name.text.as_str());
            }
        }
    }
    bound
}

/// Exactly `KEYS[n]`, or a name that is bound to one.
fn is_key(argument: &[Token], bound: &[&str]) -> bool {
    match argument {
        [name] => name.kind == Kind::Name && bound.contains(&name.text.as_str()),
        [keys, open, index, close] => {
            keys.is("KEYS") && open.is("[") && index.kind == Kind::Number && close.is("]")
        }
        _ => false,
    }
}

/// Names that get another value, `a` and `b` of `a, b = 1, 2`; not those that a `local` makes.
fn assigned(tokens: &[Token]) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, _) in tokens.iter().enumerate().filter(|(_, token)| token.is("=")) {
        let mut names = Vec::new();
        let mut back = at;
        while let Some(name) = back.checked_sub(1).map(|at| &tokens[at]) {
            names.push((name.line, name.text.as_str()));
            back -= 1;
            if !back.checked_sub(1).is_some_and(|at| tokens[at].is(",")) {
                break;
            }
            back -= 1;
        }
        let declares = back.checked_sub(1).is_some_and(|at| tokens[at].is("local"));
        if !declares {
            found.extend(names);
        }
    }
    found
}

fn commands_and_keys(script: &mut Script) {
    let bound = bound_keys(script.tokens);
    let mut found = Vec::new();
    if script.calls.first().and_then(|call| call.command) != Some("TIME") {
        found.push((0, "time", "the first call is not TIME".to_string()));
    }
    for call in &script.calls {
        let Some(command) = call.command else {
            found.push((call.line, "keys", "the command is no text".to_string()));
            continue;
        };
        let read = READS.iter().find(|(name, _)| *name == command);
        if read.is_none() && !WRITES.contains(&command) {
            found.push((call.line, "bound", format!("{command} is not allowed")));
        }
        let has = |word: &str| {
            let mut arguments = call.arguments.iter();
            arguments.any(|argument| matches!(argument, [only] if only.text == word))
        };
        let bounds = match command {
            "XAUTOCLAIM" | "XREADGROUP" => &["COUNT"][..],
            _ => read.map_or(&[][..], |(_, bounds)| bounds),
        };
        for bound in bounds.iter().filter(|bound| !has(bound)) {
            found.push((call.line, "bound", format!("{command} without {bound}")));
        }
        if command == "XREADGROUP" && has("BLOCK") {
            found.push((call.line, "bound", "XREADGROUP waits".to_string()));
        }
        // The key stands first, but for those that have a word or their group before it.
        let place = match command {
            "XINFO" | "XGROUP" => 1,
            "XREADGROUP" => {
                let mut words = call.arguments.iter();
                let streams =
                    words.position(|word| matches!(word, [only] if only.text == "STREAMS"));
                streams.map_or(0, |at| at + 1)
            }
            _ => 0,
        };
        let is_declared = call
            .arguments
            .get(place)
            .is_some_and(|key| is_key(key, &bound));
        let is_single = command != "EXISTS" || call.arguments.len() == 1;
        if command != "TIME" && !(is_declared && is_single) {
            let message = format!("the key of {command} is not KEYS[n] or a local that is");
            found.push((call.line, "keys", message));
        }
    }
    for (line, index) in indexes(script.tokens, "KEYS") {
        let counts = script
            .tokens
            .windows(2)
            .any(|pair| pair[0].is("#") && pair[1].is("KEYS") && pair[1].line == line);
        if index.is_none() && !counts {
            found.push((line, "keys", "KEYS is used as a whole".to_string()));
        }
    }
    for (line, name) in assigned(script.tokens) {
        if bound.contains(&name) {
            found.push((line, "keys", format!("{name} changes")));
        }
    }
    for (line, rule, message) in found {
        script.say(line, rule, message);
    }
}

/// Behind the first write nothing is read, refused or returned, but for one `return` at the very end.
fn writes_come_last(script: &mut Script) {
    let is_write = |call: &&Call| call.command.is_some_and(|name| WRITES.contains(&name));
    let Some(first) = script.calls.iter().find(is_write).map(|call| call.at) else {
        return;
    };
    let mut found = Vec::new();
    for call in script.calls.iter().filter(|call| call.at >= first) {
        let command = call.command.unwrap_or("a command");
        if !is_write(&call) {
            found.push((call.line, format!("{command} is read behind a write")));
        }
        if call.is_protected && command != "PUBLISH" {
            found.push((call.line, format!("a failed {command} would go unseen")));
        }
    }
    let behind = &script.tokens[first..];
    let returns: Vec<&Token> = behind.iter().filter(|token| token.is("return")).collect();
    for early in returns.iter().filter(|token| token.depth > 0) {
        found.push((early.line, "a return behind a write".to_string()));
    }
    for refusal in behind.iter().filter(|token| token.is("error_reply")) {
        found.push((refusal.line, "a refusal behind a write".to_string()));
    }
    for (line, message) in found {
        script.say(line, "order", message);
    }
}

fn no_loops(script: &mut Script) {
    let mut found = Vec::new();
    for (at, token) in script.tokens.iter().enumerate() {
        let is_open_ended = ["while", "repeat", "function", "goto"]
            .iter()
            .any(|word| token.is(word));
        if is_open_ended {
            found.push((token.line, format!("`{}`", token.text)));
        }
        if token.is("for") {
            let rest = &script.tokens[at..];
            let head: Vec<&Token> = rest.iter().take_while(|token| !token.is("do")).collect();
            // for NAME = FROM, TO: the bound is a number or a constant, which has capitals only.
            let is_bounded = match head.as_slice() {
                [_, _, equals, _, comma, to, ..] if equals.is("=") && comma.is(",") => {
                    let is_constant = to.text.chars().all(|c| c.is_ascii_uppercase() || c == '_');
                    to.kind == Kind::Number || (to.kind == Kind::Name && is_constant)
                }
                _ => false,
            };
            if !is_bounded {
                found.push((token.line, "a `for` without a constant bound".to_string()));
            }
        }
    }
    for (line, message) in found {
        script.say(line, "loops", message);
    }
}

fn whole_numbers(script: &mut Script) {
    let mut found = Vec::new();
    let mut floors: Vec<usize> = Vec::new(); // brackets open inside each math.floor( around this token
    for (at, token) in script.tokens.iter().enumerate() {
        let before = |back: usize| at.checked_sub(back).map(|at| &script.tokens[at]);
        if token.is("(") {
            let is_floor = before(1).is_some_and(|name| name.is("floor"));
            if is_floor || !floors.is_empty() {
                floors.push(at);
            }
        } else if token.is(")") {
            floors.pop();
        }
        let is_field = before(1).is_some_and(|dot| dot.is("."));
        let of_math = is_field && before(2).is_some_and(|name| name.is("math"));
        let is_exact = ["floor", "max", "min"].iter().any(|name| token.is(name));
        if of_math && !is_exact {
            found.push((token.line, format!("math.{}", token.text)));
        }
        let makes_fractions =
            (token.is("/") && floors.is_empty()) || token.is("^") || token.is("tostring");
        let is_hex = token.text.starts_with("0x");
        let is_fraction = token.kind == Kind::Number
            && !is_hex
            && !token.text.chars().all(|c| c.is_ascii_digit());
        let formats = token.kind == Kind::Text
            && ["%f", "%g", "%e", "%a"].iter().any(|wanted| {
                // `%a` is a class of patterns, too, but no pattern of ours needs letters.
                token.text.contains(wanted)
            });
        if makes_fractions || is_fraction || formats {
            found.push((token.line, format!("`{}`", token.text)));
        }
    }
    for (line, message) in found {
        script.say(line, "floats", message);
    }
}

/// Redis refuses unknown globals when it comes to them, which may be behind a write.
fn names(script: &mut Script) {
    let mut locals: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    let mut declares = false;
    for (at, token) in script.tokens.iter().enumerate() {
        if token.is("local") || token.is("for") {
            declares = true;
            continue;
        }
        if token.kind != Kind::Name || token.is_keyword() {
            declares &= token.is(",");
            continue;
        }
        let is_field = at > 0 && script.tokens[at - 1].is(".");
        if declares {
            locals.push(&token.text);
        } else if !is_field
            && !locals.contains(&token.text.as_str())
            && !GLOBALS.contains(&token.text.as_str())
        {
            found.push((token.line, format!("{} is no local", token.text)));
        }
    }
    for (line, message) in found {
        script.say(line, "names", message);
    }
}
