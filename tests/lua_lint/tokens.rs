//! A Lua 5.1 text as tokens, and the calls of Redis in it: as much of the language as the rules need.

/// What a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Name,
    Number,
    /// Without its quotes.
    Text,
    Sign,
}

/// One token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    pub text: String,
    /// From 1.
    pub line: usize,
    /// Blocks (`if`, `for` ...) that are open around it.
    pub depth: usize,
}

impl Token {
    pub fn is(&self, text: &str) -> bool {
        self.text == text && self.kind != Kind::Text
    }

    pub fn is_keyword(&self) -> bool {
        const WORDS: [&str; 21] = [
            "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in",
            "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
        ];
        self.kind == Kind::Name && WORDS.contains(&self.text.as_str())
    }
}

/// One `redis.call` or `redis.pcall`.
#[derive(Debug)]
pub struct Call<'a> {
    /// The place of `redis` among the tokens.
    pub at: usize,
    pub line: usize,
    /// Errors of it are not passed on.
    pub is_protected: bool,
    /// The command, when it is a text.
    pub command: Option<&'a str>,
    /// What follows the command, each as its tokens.
    pub arguments: Vec<&'a [Token]>,
}

/// Long signs first, so that `..` is not two dots.
const SIGNS: [&str; 8] = ["...", "..", "==", "~=", "<=", ">=", "[[", "]]"];

/// The tokens of `text`; comments are left out.
pub fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut rest = line.trim_start();
        while !rest.is_empty() && !rest.starts_with("--") {
            let (kind, len) = first(rest);
            let inner = if kind == Kind::Text {
                &rest[1..len - 1]
            } else {
                &rest[..len]
            };
            found.push(Token {
                kind,
                text: inner.to_string(),
                line: number + 1,
                depth: 0,
            });
            rest = rest[len..].trim_start();
        }
    }
    set_depths(&mut found);
    found
}

fn first(rest: &str) -> (Kind, usize) {
    let start = rest.chars().next().unwrap();
    let while_it = |wanted: fn(char) -> bool| rest.find(|c| !wanted(c)).unwrap_or(rest.len());
    if start == '\'' || start == '"' {
        let end = rest[1..].find(start);
        return (Kind::Text, end.map_or(rest.len(), |end| end + 2));
    }
    if start.is_ascii_digit() {
        // `1..x` is not valid Lua, so a dot belongs to the number.
        return (
            Kind::Number,
            while_it(|c| c.is_ascii_alphanumeric() || c == '.'),
        );
    }
    if start.is_ascii_alphabetic() || start == '_' {
        return (
            Kind::Name,
            while_it(|c| c.is_ascii_alphanumeric() || c == '_'),
        );
    }
    let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
    (Kind::Sign, sign.map_or(start.len_utf8(), |sign| sign.len()))
}

fn set_depths(tokens: &mut [Token]) {
    let mut depth = 0;
    let mut in_loop_head = false;
    for token in tokens.iter_mut() {
        if token.is("end") || token.is("until") {
            depth = usize::saturating_sub(depth, 1);
        }
        token.depth = depth;
        if token.is("do") && in_loop_head {
            in_loop_head = false; // the loop's own
        } else if ["if", "for", "while", "function", "repeat", "do"]
            .iter()
            .any(|word| token.is(word))
        {
            depth += 1;
            in_loop_head = token.is("for") || token.is("while");
        }
    }
}

/// Every call of Redis.
pub fn calls(tokens: &[Token]) -> Vec<Call<'_>> {
    let mut found = Vec::new();
    for (at, window) in tokens.windows(4).enumerate() {
        let is_call = window[2].is("call") || window[2].is("pcall");
        if !(window[0].is("redis") && window[1].is(".") && is_call && window[3].is("(")) {
            continue;
        }
        let mut arguments = list(&tokens[at + 4..]);
        let command = arguments.first().and_then(|first| match first {
            [only] if only.kind == Kind::Text => Some(only.text.as_str()),
            _ => None,
        });
        if !arguments.is_empty() {
            arguments.remove(0);
        }
        found.push(Call {
            at,
            line: window[0].line,
            is_protected: window[2].is("pcall"),
            command,
            arguments,
        });
    }
    found
}

/// The expressions of a list, parted by commas, up to its end: a closing bracket or the next statement.
pub fn list(tokens: &[Token]) -> Vec<&[Token]> {
    let mut found = Vec::new();
    let (mut from, mut open) = (0, 0usize);
    for (at, token) in tokens.iter().enumerate() {
        let is_closing = token.is(")") || token.is("}") || token.is("]");
        let ends = open == 0 && (is_closing || at > 0 && begins_statement(&tokens[at - 1], token));
        if ends || (open == 0 && token.is(",")) {
            found.push(&tokens[from..at]);
            from = at + 1;
        }
        if ends {
            return found;
        }
        if token.is("(") || token.is("{") || token.is("[") {
            open += 1;
        } else if is_closing {
            open -= 1;
        }
    }
    found.push(&tokens[from..]);
    found
}

/// Two operands side by side: a new statement has begun.
fn begins_statement(before: &Token, token: &Token) -> bool {
    let joins = |token: &Token| token.is("and") || token.is("or") || token.is("not");
    let ends_operand = match before.kind {
        Kind::Name => !joins(before),
        Kind::Number | Kind::Text => true,
        Kind::Sign => before.is(")") || before.is("}") || before.is("]"),
    };
    ends_operand && token.kind == Kind::Name && !joins(token)
}
