//! What is wrong with a configuration, for the operator: where, what, what is allowed, what to do.
//!
//! Made by every step of [`super::load`]; all problems of a file are reported together. Never holds a secret.

use std::fmt;
use std::path::{Path, PathBuf};

/// One problem. `Display` is one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line of the file, from 1; `None` when no line is to blame (a missing key, the host).
    pub line: Option<usize>,
    /// Full name of the key, such as `activity[0].sku[0].stock`; empty when the file as a whole is meant.
    pub key: String,
    /// What is wrong, what is allowed and what to do, as one sentence or two.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// All problems of one file, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    /// The file as the operator named it.
    pub file: PathBuf,
    /// In order of discovery.
    pub list: Vec<Problem>,
}

impl Problems {
    /// One problem of the file as a whole.
    pub fn of_file(file: &Path, message: impl Into<String>) -> Self {
        let problem = Problem {
            line: None,
            key: String::new(),
            message: message.into(),
        };
        Self {
            file: file.to_owned(),
            list: vec![problem],
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.list.as_slice() {
            [only] => write!(f, "{}: {only}", self.file.display()),
            list => {
                write!(f, "{}: {} problems", self.file.display(), list.len())?;
                list.iter()
                    .try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

impl std::error::Error for Problems {}
