//! What programs are compiled against: functions, constants and the layout of structures, as the header says them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Command;

/// Each thing by its name: of a function its signature, of a constant its value, of a structure its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abi {
    pub items: BTreeMap<String, String>,
}

impl Abi {
    /// Reads a header that cbindgen made.
    pub fn of_header(header: &str) -> Abi {
        let lines = header.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
        let (mut items, mut text) = (BTreeMap::new(), String::new());
        for line in lines {
            if let Some(constant) = line.strip_prefix("#define ") {
                if let Some((name, value)) = constant.split_once(' ') {
                    items.insert(name.to_owned(), value.to_owned());
                }
            } else if !line.starts_with('#') && line != "extern \"C\" {" && !line.ends_with("// extern \"C\"") {
                text.push_str(line);
                text.push(' ');
            }
        }
        for item in statements(&text) {
            let name = match item.starts_with("typedef ") {
                true => item.rsplit(' ').next(),
                false => item.split('(').next().and_then(|head| head.rsplit([' ', '*']).next()),
            };
            items.insert(name.expect("a name").to_owned(), item);
        }
        Abi { items }
    }

    /// Reads what `Display` wrote.
    pub fn read(text: &str) -> Abi {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let item = |line: &str| line.split_once(": ").map(|(name, item)| (name.to_owned(), item.to_owned()));
        Abi { items: lines.map(|line| item(line).expect("NAME: ITEM")).collect() }
    }

    pub fn functions(&self) -> BTreeSet<String> {
        let functions = self.items.iter().filter(|(_, item)| item.contains('(') && !item.starts_with("typedef "));
        functions.map(|(name, _)| name.clone()).collect()
    }

    /// What of this is not in `now`, or not as it was.
    pub fn broken_by(&self, now: &Abi) -> Vec<String> {
        let changed = self.items.iter().filter(|(name, item)| now.items.get(*name) != Some(item));
        changed.map(|(name, item)| format!("{item} is now {:?}", now.items.get(name))).collect()
    }
}

/// The declarations of a text, each in one line; a structure is one.
fn statements(text: &str) -> Vec<String> {
    let (mut found, mut depth, mut current) = (Vec::new(), 0, String::new());
    for character in text.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ';' if depth == 0 => {
                found.push(current.split_whitespace().collect::<Vec<_>>().join(" "));
                current.clear();
                continue;
            }
            _ => {}
        }
        current.push(character);
    }
    assert!(current.trim().is_empty() && depth == 0, "no declaration: {current}");
    found
}

impl fmt::Display for Abi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# What programs were compiled against in the last release, ABI version 0: nothing of it may go or change"
        )?;
        writeln!(f, "# (`cargo test -p forebay-c --test header`). At a release, FOREBAY_ABI=1 writes what was added.")?;
        self.items.iter().try_for_each(|(name, item)| writeln!(f, "{name}: {item}"))
    }
}

/// The functions that a shared library has for others.
pub fn exported(library: &Path) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(library).output();
    let output = output.expect("nm runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}
