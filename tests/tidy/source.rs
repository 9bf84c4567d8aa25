//! One Rust file as the rules see it: code and comments apart, test regions marked, functions found.
//!
//! A small lexer, not a parser: it knows comments (nested), strings (raw, byte, C), character literals and braces.
//! That is enough for rules that count lines and look for words, and it cannot fail on code that compiles.

/// One function: where it starts and how many lines of code its body has.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub line: usize,
    pub body_lines: usize,
}

/// A file taken apart. The vectors have one entry per line; line numbers in reports start at 1.
pub struct Source {
    /// Path from the root of the repository, with `/`.
    pub path: String,
    /// Comments and the insides of literals are blank.
    pub code: Vec<String>,
    /// Only comments; everything else is blank.
    pub comments: Vec<String>,
    /// The line has something that is no comment (a line inside a literal counts).
    pub has_code: Vec<bool>,
    /// The line belongs to an item under `#[cfg(test)]`, or the whole file is a test.
    pub is_test: Vec<bool>,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Source {
        let layers = Layers::of(text);
        let code: Vec<String> = lines(&layers.code);
        let has_code = lines(&layers.solid)
            .iter()
            .map(|line| !line.trim().is_empty())
            .collect();
        let whole_is_test = path
            .split('/')
            .any(|part| matches!(part, "tests" | "tests.rs"));
        let mut source = Source {
            path: path.to_string(),
            is_test: vec![whole_is_test; code.len()],
            comments: lines(&layers.comments),
            has_code,
            code,
        };
        if !whole_is_test {
            source.mark_test_items();
        }
        source
    }

    /// Lines of code outside tests.
    pub fn code_lines(&self) -> usize {
        (0..self.code.len())
            .filter(|&at| self.has_code[at] && !self.is_test[at])
            .count()
    }

    /// `(line, text)` of every line of code outside tests.
    pub fn shipped(&self) -> impl Iterator<Item = (usize, &str)> {
        self.every().filter(|&(line, _)| !self.is_test[line - 1])
    }

    /// `(line, text)` of every line of code.
    pub fn every(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code
            .iter()
            .enumerate()
            .map(|(at, text)| (at + 1, text.as_str()))
    }

    /// Every function with a body, nested ones too (their lines count for the outer one as well).
    pub fn functions(&self) -> Vec<Function> {
        let text = self.code.join("\n");
        let mut found = Vec::new();
        for (at, _) in words(&text).filter(|&(_, word)| word == "fn") {
            let Some(name) = words(&text[at + 2..])
                .next()
                .filter(|(gap, _)| text[at + 2..at + 2 + gap].trim().is_empty())
            else {
                continue; // `fn(u8) -> u8` is a type
            };
            let Some(open) = body_start(&text, at) else {
                continue;
            };
            let close = matching_brace(&text, open).unwrap_or(text.len());
            let (first, last) = (line_of(&text, open), line_of(&text, close));
            found.push(Function {
                name: name.1.to_string(),
                line: line_of(&text, at) + 1,
                body_lines: (first + 1..last)
                    .filter(|&line| self.has_code[line])
                    .count(),
            });
        }
        found
    }

    /// Marks what follows `#[cfg(test)]`: up to the closing brace of its item, or to its semicolon.
    fn mark_test_items(&mut self) {
        let text = self.code.join("\n");
        let mut from = 0;
        while let Some(found) = text[from..].find("#[cfg(test)]") {
            let start = from + found;
            let after = start + "#[cfg(test)]".len();
            let end = match body_start(&text, after) {
                Some(open) => matching_brace(&text, open).unwrap_or(text.len()),
                None => text[after..].find(';').map_or(text.len(), |at| after + at),
            };
            for line in line_of(&text, start)..=line_of(&text, end).min(self.is_test.len() - 1) {
                self.is_test[line] = true;
            }
            from = after.max(end);
        }
    }
}

/// Every word (identifier, keyword or number) with its byte offset.
pub fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].find(is_word)?;
        let end = text[start..]
            .find(|c| !is_word(c))
            .map_or(text.len(), |length| start + length);
        at = end;
        Some((start, &text[start..end]))
    })
}

/// The `{` of the item that starts at `from`, or None when a `;` ends it first. Brackets are stepped over, so that
/// the `;` of `[u8; 4]` ends nothing.
fn body_start(text: &str, from: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, byte) in text.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

fn matching_brace(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())]
        .iter()
        .filter(|&&byte| byte == b'\n')
        .count()
}

fn lines(text: &str) -> Vec<String> {
    text.split('\n').map(str::to_string).collect()
}

/// The same text three times, each with other parts blank.
struct Layers {
    code: String,
    comments: String,
    solid: String,
}

#[derive(Clone, Copy)]
enum Part {
    Code,
    Comment,
    Literal,
}

impl Layers {
    fn of(text: &str) -> Layers {
        let mut layers = Layers {
            code: String::new(),
            comments: String::new(),
            solid: String::new(),
        };
        let mut rest = text;
        let mut before = ' ';
        while let Some(first) = rest.chars().next() {
            let (part, length) = next_part(rest, before);
            let length = if length == 0 {
                first.len_utf8()
            } else {
                length
            };
            for c in rest[..length].chars() {
                layers.push(part, c);
                before = c;
            }
            rest = &rest[length..];
        }
        layers
    }

    fn push(&mut self, part: Part, c: char) {
        let blank = if c == '\n' { '\n' } else { ' ' };
        let show = |wanted: bool| if wanted { c } else { blank };
        self.code.push(show(matches!(part, Part::Code)));
        self.comments.push(show(matches!(part, Part::Comment)));
        self.solid.push(show(!matches!(part, Part::Comment)));
    }
}

/// What stands at the start of `text` and how many bytes of it belong together (0: one character of code).
fn next_part(text: &str, before: char) -> (Part, usize) {
    if text.starts_with("//") {
        return (Part::Comment, text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return (Part::Comment, block_comment(text));
    }
    let inside_word = before.is_alphanumeric() || before == '_';
    if !inside_word && let Some(length) = string(text) {
        return (Part::Literal, length);
    }
    if !inside_word && let Some(length) = character(text) {
        return (Part::Literal, length);
    }
    (Part::Code, 0)
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of the string literal at the start of `text`, prefix and quotes included.
fn string(text: &str) -> Option<usize> {
    let prefix = text.find(|c| !matches!(c, 'b' | 'c' | 'r'))?;
    let is_raw = text[..prefix].ends_with('r');
    let hashes = text[prefix..]
        .bytes()
        .take_while(|&byte| byte == b'#')
        .count();
    if prefix > 2 || (!is_raw && hashes > 0) || !text[prefix + hashes..].starts_with('"') {
        return None;
    }
    let body = prefix + hashes + 1;
    if is_raw {
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(
            text[body..]
                .find(&end)
                .map_or(text.len(), |at| body + at + end.len()),
        );
    }
    let mut escaped = false;
    for (at, c) in text[body..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(body + at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

/// The length of the character or byte literal at the start of `text`; a lifetime is none.
fn character(text: &str) -> Option<usize> {
    let prefix = usize::from(text.starts_with("b'"));
    let body = text[prefix..].strip_prefix('\'')?;
    let mut chars = body.char_indices();
    let (_, first) = chars.next()?;
    if first == '\\' {
        let end = body[2..].find('\'')?;
        return Some(prefix + 1 + 2 + end + 1);
    }
    let (at, second) = chars.next()?;
    (second == '\'').then_some(prefix + 1 + at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::new("src/x.rs", text).code.join("\n")
    }

    #[test]
    fn comments_and_literals_are_no_code() {
        assert_eq!(code("a // unsafe").trim(), "a");
        assert_eq!(code("/* a /* b */ c */ d").trim(), "d");
        assert_eq!(code(r#"f("un\"safe{") + 1"#).replace(' ', ""), "f()+1");
        assert_eq!(
            code("f(r#\"a\"b{\"#, br\"{\", c\"{\", b'{', '{', '\\'', '\\u{7d}')").replace(' ', ""),
            "f(,,,,,,)"
        );
        assert_eq!(code("fn f<'a>(x: &'a str) {}"), "fn f<'a>(x: &'a str) {}");
        assert_eq!(code("for_loop_r\"").replace(' ', ""), "for_loop_r\"");
    }

    #[test]
    fn lines_keep_their_numbers() {
        let source = Source::new("src/x.rs", "a\n/* b\nc */\n\"d\n\ne\"\n\nf");
        assert_eq!(
            source.has_code,
            [true, false, false, true, false, true, false, true]
        );
        assert_eq!(source.comments[2].trim(), "c */");
        assert_eq!(source.code_lines(), 4);
    }

    #[test]
    fn functions_are_measured_between_their_braces() {
        let text = "impl A {\n  fn a(x: [u8; 2], f: fn(u8)) -> B\n  where T: C,\n  {\n    // why\n    one();\n\n    if x {\n      two('}');\n    }\n  }\n  fn b();\n}\nfn c() {}\n";
        let found = Source::new("src/x.rs", text).functions();
        let seen: Vec<_> = found
            .iter()
            .map(|f| (f.name.as_str(), f.line, f.body_lines))
            .collect();
        assert_eq!(seen, [("a", 2, 4), ("c", 14, 0)]);
    }

    #[test]
    fn test_items_are_marked_to_their_end() {
        let text = "fn a() {}\n#[cfg(test)]\nuse x::y;\nfn b() {}\n#[cfg(test)]\nmod tests {\n  fn c() {}\n}\nfn d() {}";
        let source = Source::new("src/x.rs", text);
        assert_eq!(
            source.is_test,
            [false, true, true, false, true, true, true, true, false]
        );
        assert!(Source::new("proto/tests/x.rs", "fn a() {}").is_test[0]);
    }
}
