//! Each top-level module ("room") uses only the modules that the list in `src/lib.rs` allows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Reads which modules each room may use, and the order of the rooms.
struct Table {
    order: Vec<String>,
    allowed: BTreeMap<String, Vec<String>>,
}

impl Table {
    fn read(root: &str) -> Self {
        let list = root
            .lines()
            .filter_map(|line| line.strip_prefix("//     "))
            .map(|line| line.split_whitespace().map(str::to_owned));
        let mut table = Self {
            order: Vec::new(),
            allowed: BTreeMap::new(),
        };
        for mut words in list {
            let room = words.next().expect("a room's name");
            table.order.push(room.clone());
            let earlier = table.allowed.insert(room.clone(), words.collect());
            assert_eq!(earlier, None, "{room} is twice in the list");
        }
        table
    }

    /// Returns the reason why `module` may not use a room or an item of the crate's root.
    fn refuses(&self, module: &[String], used: &str) -> Option<String> {
        let room = &module[0];
        let Some(allowed) = self.allowed.get(room) else {
            return Some(format!("{room} is not in the list of src/lib.rs"));
        };
        let is_test = module.iter().any(|name| name == "tests");
        let is_allowed =
            used == room || allowed.iter().any(|name| name == used) || is_test && used == "testing";
        (!is_allowed).then(|| match self.allowed.contains_key(used) {
            true => format!("{room} may not use {used}"),
            false => format!("{used} is not a room: use the path through its room"),
        })
    }
}

/// Finds the names after `crate::`, and after as many `super::` as lead to the crate's root, everywhere:
/// `use`, types, expressions, macros.
struct Reader<'a> {
    table: &'a Table,
    file: &'a Path,
    module: Vec<String>,
    used: BTreeSet<String>,
    faults: Vec<String>,
}

impl Reader<'_> {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            if let Some((name, body)) = inline_module(&tokens[at..]) {
                self.module.push(name);
                self.read(body);
                self.module.pop();
                at += 3;
                continue;
            }
            match &tokens[at] {
                TokenTree::Group(group) => self.read(group.stream()),
                TokenTree::Ident(word) if *word == "crate" && !is_behind(&tokens[..at], '$') => {
                    self.used(&tokens[at + 1..]);
                }
                TokenTree::Ident(word) if *word == "super" && !is_behind(&tokens[..at], ':') => {
                    let up = supers(&tokens[at..]);
                    if up == self.module.len() {
                        self.used(&tokens[at + 1 + 3 * (up - 1)..]);
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Handles the tokens after a path to the crate's root.
    fn used(&mut self, tokens: &[TokenTree]) {
        let [TokenTree::Punct(first), TokenTree::Punct(second), next, ..] = tokens else {
            return;
        };
        if first.as_char() != ':' || second.as_char() != ':' {
            return;
        }
        match next {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                let mut is_first = true;
                for token in group.stream() {
                    if is_first {
                        self.check(&token);
                    }
                    is_first = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ',');
                }
            }
            // A macro of the crate is at its root.
            _ if matches!(tokens.get(3), Some(TokenTree::Punct(punct)) if punct.as_char() == '!') =>
                {}
            token => self.check(token),
        }
    }

    fn check(&mut self, token: &TokenTree) {
        self.used.insert(token.to_string());
        if let Some(why) = self.table.refuses(&self.module, &token.to_string()) {
            let (file, line) = (self.file.display(), token.span().start().line);
            self.faults.push(format!("{file}:{line}: {why}"));
        }
    }
}

/// Returns the name and body of `mod NAME { … }`.
fn inline_module(tokens: &[TokenTree]) -> Option<(String, TokenStream)> {
    match tokens {
        [
            TokenTree::Ident(word),
            TokenTree::Ident(name),
            TokenTree::Group(body),
            ..,
        ] if *word == "mod" && body.delimiter() == Delimiter::Brace => {
            Some((name.to_string(), body.stream()))
        }
        _ => None,
    }
}

/// Returns how many `super` a path begins with.
fn supers(tokens: &[TokenTree]) -> usize {
    tokens
        .chunks(3)
        .take_while(|chunk| matches!(&chunk[0], TokenTree::Ident(word) if *word == "super"))
        .count()
}

fn is_behind(tokens: &[TokenTree], sign: char) -> bool {
    matches!(tokens.last(), Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Returns the rooms that a file of `src` uses, and its faults.
fn read(table: &Table, file: &Path, text: &str) -> (BTreeSet<String>, Vec<String>) {
    let module = file
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    let mut reader = Reader {
        table,
        file,
        module,
        used: BTreeSet::new(),
        faults: Vec::new(),
    };
    let tokens: TokenStream = text.parse().expect("a file that compiles has tokens");
    reader.read(tokens);
    (reader.used, reader.faults)
}

#[test]
fn each_room_uses_only_those_that_the_list_allows() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let root = fs::read_to_string(source.join("lib.rs")).unwrap();
    let table = Table::read(&root);
    let mut found = Vec::new();
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (index, room) in table.order.iter().enumerate() {
        for used in &table.allowed[room] {
            if !table.order[..index].contains(used) {
                found.push(format!("src/lib.rs: {used} is not below {room}"));
            }
        }
    }
    for file in files(&source) {
        let text = fs::read_to_string(&file).unwrap();
        let file = file.strip_prefix(&source).unwrap();
        if file == Path::new("lib.rs") {
            continue;
        }
        let room = file.with_extension("");
        let room = room.iter().next().unwrap().to_string_lossy();
        if !table.allowed.contains_key(room.as_ref()) {
            found.push(format!("{}: {room} is not in the list", file.display()));
            continue;
        }
        let (names, faults) = read(&table, file, &text);
        used.entry(room.into_owned()).or_default().extend(names);
        found.extend(faults);
    }
    for (room, allowed) in &table.allowed {
        let names = used.get(room);
        for allowed in allowed {
            if !names.is_some_and(|names| names.contains(allowed)) {
                found.push(format!(
                    "src/lib.rs: {room} does not use {allowed}: take it from the list"
                ));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_forbidden_path_is_found_wherever_it_stands() {
    let table =
        Table::read("//     low\n//     middle low\n//     high low middle\n//     testing high\n");
    let found = |text: &str| read(&table, Path::new("middle/part.rs"), text).1.len();
    for allowed in [
        "use crate::low::A; use super::super::{low::A, middle};",
        "use super::high; pub(crate) fn f() {} pub(in crate::low) fn g() {}",
        "mod tests { use crate::testing; use super::super::high; }",
        "fn f() { crate::some_macro!(); }",
        "macro_rules! m { () => { $crate::high::A } }",
    ] {
        assert_eq!(found(allowed), 0, "{allowed}");
    }
    for (text, count) in [
        ("use crate::high::A;", 1),
        ("use crate::{low, high::{self, low}, High};", 2),
        ("use super::super::high;", 1),
        (
            "fn f() -> crate::high::A { crate::high::a::<super::super::high::A>() }",
            3,
        ),
        (
            "mod inner { mod deep { use super::super::super::super::high; } }",
            1,
        ),
        ("fn f() { assert!(matches!(1, crate::high::A)); }", 1),
        ("#[cfg(test)] mod tests { use crate::high::A; }", 1),
        ("use crate::testing;", 1),
    ] {
        assert_eq!(found(text), count, "{text}");
    }
    assert_eq!(
        read(&table, Path::new("other.rs"), "use crate::low;")
            .1
            .len(),
        1
    );
}
