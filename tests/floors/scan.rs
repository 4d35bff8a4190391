//! Rust source as tokens, and the paths that it names.

/// Source as identifiers and single punctuation characters; `::` is one token.
pub fn tokens(source: &str) -> Vec<String> {
    let chars: Vec<char> = source.chars().collect();
    let mut out: Vec<String> = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        let rest = &chars[i..];
        let next = rest.get(1).copied().unwrap_or(' ');
        match rest[0] {
            '/' if next == '/' => i += rest.iter().take_while(|&&c| c != '\n').count(),
            '/' if next == '*' => i += block_comment(rest),
            '"' => i += string(rest),
            'r' | 'b' if raw_string(rest).is_some() => i += raw_string(rest).unwrap(),
            '\'' => i += char_or_lifetime(rest),
            ':' if next == ':' => {
                out.push("::".into());
                i += 2;
            }
            c if c.is_alphanumeric() || c == '_' => {
                let word: String = rest
                    .iter()
                    .take_while(|c| c.is_alphanumeric() || **c == '_')
                    .collect();
                i += word.chars().count();
                out.push(word);
            }
            c => {
                if !c.is_whitespace() {
                    out.push(c.to_string());
                }
                i += 1;
            }
        }
    }
    out
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut i) = (0, 0);
    while i < rest.len() {
        match (rest[i], rest.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 2),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            break;
        }
    }
    i
}

fn string(rest: &[char]) -> usize {
    let mut i = 1;
    while i < rest.len() && rest[i] != '"' {
        i += if rest[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

/// Length of `r"…"`, `r#"…"#`, `b"…"`, `br#"…"#` at the front.
fn raw_string(rest: &[char]) -> Option<usize> {
    let prefix = rest.iter().take_while(|c| matches!(c, 'r' | 'b')).count();
    if prefix > 2 {
        return None;
    }
    let raw = rest[..prefix].contains(&'r');
    let hashes = rest[prefix..].iter().take_while(|&&c| c == '#').count();
    if rest.get(prefix + hashes) != Some(&'"') || (!raw && hashes > 0) {
        return None;
    }
    if !raw {
        return Some(prefix + string(&rest[prefix..]));
    }
    let body = &rest[prefix + hashes + 1..];
    let closing: Vec<char> = std::iter::once('"')
        .chain(std::iter::repeat_n('#', hashes))
        .collect();
    let end = body.windows(closing.len()).position(|w| w == closing)?;
    Some(prefix + hashes + 1 + end + closing.len())
}

fn char_or_lifetime(rest: &[char]) -> usize {
    match rest {
        [_, '\\', _, more @ ..] => 3 + more.iter().take_while(|&&c| c != '\'').count() + 1,
        [_, _, '\'', ..] => 3,
        _ => 1,
    }
}

/// Index behind the item that begins at `at`: its `;` or its block.
fn item_end(tokens: &[String], at: usize) -> usize {
    let mut depth = 0_i32;
    for (i, token) in tokens.iter().enumerate().skip(at) {
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth -= 1;
                if depth == 0 && token == "}" {
                    return i + 1;
                }
            }
            ";" if depth == 0 => return i + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Without the items behind `#[cfg(test)]`.
pub fn without_tests(tokens: &[String]) -> Vec<String> {
    const ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut out = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        if tokens[i..].iter().take(7).eq(ATTRIBUTE.iter()) {
            i = item_end(tokens, i + 7);
        } else {
            out.push(tokens[i].clone());
            i += 1;
        }
    }
    out
}

/// A path as written, and whether it is an import (`use`).
pub struct Named {
    pub path: Vec<String>,
    pub import: bool,
    /// What an import makes known here: the last word, or the one behind `as`.
    pub name: String,
    /// Inline modules around it.
    pub depth: usize,
}

impl Named {
    /// The same path, longer.
    pub fn followed_by(&self, rest: &[String]) -> Named {
        Named {
            path: self.path.iter().chain(rest).cloned().collect(),
            name: self.name.clone(),
            ..*self
        }
    }
}

pub fn named_paths(tokens: &[String]) -> Vec<Named> {
    let mut found = Vec::new();
    // Brace depths at which inline modules were opened.
    let (mut braces, mut modules) = (0, Vec::new());
    let mut i = 0;
    while i < tokens.len() {
        match tokens[i].as_str() {
            "use" => {
                let end = item_end_of_use(tokens, i);
                let mut paths = Vec::new();
                use_tree(&tokens[i + 1..end], &mut Vec::new(), &mut paths);
                let depth = modules.len();
                found.extend(paths.into_iter().map(|(path, name)| Named {
                    path,
                    import: true,
                    name,
                    depth,
                }));
                i = end;
                continue;
            }
            "mod" if tokens.get(i + 2).is_some_and(|t| t == "{") => modules.push(braces),
            "{" => braces += 1,
            "}" => {
                braces -= 1;
                if modules.last() == Some(&braces) {
                    modules.pop();
                }
            }
            _ => {}
        }
        let begins = is_word(&tokens[i]) && (i == 0 || tokens[i - 1] != "::");
        if begins && tokens.get(i + 1).is_some_and(|t| t == "::") {
            let mut path = vec![tokens[i].clone()];
            let mut at = i + 1;
            while tokens.get(at).is_some_and(|t| t == "::")
                && tokens.get(at + 1).is_some_and(|t| is_word(t))
            {
                path.push(tokens[at + 1].clone());
                at += 2;
            }
            found.push(Named {
                path,
                import: false,
                name: String::new(),
                depth: modules.len(),
            });
            i = at;
        } else {
            i += 1;
        }
    }
    found
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn item_end_of_use(tokens: &[String], at: usize) -> usize {
    at + tokens[at..]
        .iter()
        .position(|t| t == ";")
        .unwrap_or(tokens.len() - at)
}

/// Expands `a::{b, c::*, d as e}` to paths with the names that they get; a glob ends in `*`.
fn use_tree(tokens: &[String], prefix: &mut Vec<String>, out: &mut Vec<(Vec<String>, String)>) {
    let length = prefix.len();
    let mut renamed = None;
    let mut i = 0;
    while i < tokens.len() {
        match tokens[i].as_str() {
            "::" => i += 1,
            "{" => {
                let end = item_end(tokens, i);
                for branch in split_at_commas(&tokens[i + 1..end - 1]) {
                    use_tree(branch, prefix, out);
                }
                prefix.truncate(length);
                return;
            }
            "as" => {
                renamed = tokens.get(i + 1).cloned();
                break;
            }
            word => {
                prefix.push(word.to_owned());
                i += 1;
            }
        }
    }
    if prefix.len() > length {
        if prefix.last().is_some_and(|w| w == "self") {
            prefix.pop();
        }
        let name = renamed.or(prefix.last().cloned()).unwrap_or_default();
        out.push((prefix.clone(), name));
    }
    prefix.truncate(length);
}

fn split_at_commas(tokens: &[String]) -> Vec<&[String]> {
    let mut depth = 0;
    tokens
        .split(|t| {
            match t.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            depth == 0 && t == ","
        })
        .filter(|branch| !branch.is_empty())
        .collect()
}

/// Modules that a file of src/ stands for: `http/request.rs` → `[http, request]`.
pub fn module_path(file: &str) -> Vec<String> {
    let mut path: Vec<String> = file
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect();
    if matches!(
        path.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        path.pop();
    }
    path
}

/// A path from the crate's root; `None` when it is not one of this crate. `Err` when it cannot be
/// told where it leads.
pub fn from_root(named: &Named, module: &[String]) -> Result<Option<Vec<String>>, String> {
    let shown = named.path.join("::");
    let first = named.path.first().map_or("", String::as_str);
    let rest = match first {
        "crate" => named.path[1..].to_vec(),
        "super" => {
            let ups = named.path.iter().take_while(|w| *w == "super").count();
            // Up through inline modules first, then through the file's own place.
            let ups_of_file = ups.saturating_sub(named.depth);
            let kept = module
                .len()
                .checked_sub(ups_of_file)
                .ok_or(format!("{shown} leaves src/"))?;
            let mut path = module[..kept].to_vec();
            path.extend(named.path[ups..].iter().cloned());
            path
        }
        _ => return Ok(None),
    };
    match rest.first().map(String::as_str) {
        Some("*") | None => Err(format!("{shown}: takes all of the crate's root")),
        Some(_) => Ok(Some(rest)),
    }
}
