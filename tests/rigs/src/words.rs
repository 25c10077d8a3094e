//! The check of documentation comments: they are sentences in the field's terms, and none begins with a question's word, as
//! "What is read." does; and none refers to another one without a name, as "As there." does. Of the crates that still have
//! such comments, the number may only fall.

use std::path::Path;

/// The first words that are refused.
const REFUSED: [&str; 6] = ["What", "Which", "How", "Whether", "Who", "Whose"];

/// Whole comments that are refused: they do not name what they refer to.
const NAMELESS: [&str; 2] = ["As there.", "The same."];

/// Folders, and the most comments there that begin so. Seven of the examples' are texts of `--help`.
const CEILINGS: [(&str, usize); 13] = [
    ("c-abi", 0),
    ("cm", 2),
    ("core", 10),
    ("examples", 7),
    ("firmware-cmds", 0),
    ("node", 0),
    ("tests/bare-metal", 0),
    ("tests/bench", 0),
    ("tests/in-process", 0),
    ("tests/model", 0),
    ("tests/model-server", 0),
    ("tests/rigs", 0),
    ("vfio-driver", 0),
];

/// The comment on a line, and its mark.
fn comment(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    ["///", "//!"]
        .into_iter()
        .find_map(|mark| Some((mark, line.strip_prefix(mark)?.trim_start())))
}

/// Numbers of the lines on which a comment begins with a refused word, or that are a refused comment.
fn refused(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut before = None;
    for (number, line) in (1..).zip(text.lines()) {
        let here = comment(line);
        let begins = here.filter(|(mark, _)| before != Some(*mark));
        let first = begins.and_then(|(_, text)| text.split(|c: char| !c.is_alphanumeric()).next());
        let nameless = here.is_some_and(|(_, text)| NAMELESS.contains(&text.trim_end()));
        if nameless || first.is_some_and(|word| REFUSED.contains(&word)) {
            found.push(number);
        }
        before = here.map(|(mark, _)| mark);
    }
    found
}

/// The places in a folder, as `file:line`.
fn places(folder: &Path, into: &mut Vec<String>) {
    let entries = std::fs::read_dir(folder).expect("a folder of the project");
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            places(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source file");
            let lines = refused(&text).into_iter();
            into.extend(lines.map(|line| format!("{}:{line}", path.display())));
        }
    }
}

#[test]
fn documentation_begins_with_its_subject() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (folder, most) in CEILINGS {
        let mut found = Vec::new();
        places(&root.join(folder), &mut found);
        assert!(
            found.len() <= most,
            "{folder}: {} comments begin with one of {REFUSED:?} or are one of {NAMELESS:?}, {most} at most; begin them with \
             their subject:\n{}",
            found.len(),
            found.join("\n")
        );
    }
}

#[test]
fn only_first_words_and_whole_lines_are_looked_at() {
    let text = [
        "//! What it is.",
        "//! How it works.",
        "",
        "/// The way.",
        "/// Which one.",
        "///",
        "/// What follows is a paragraph.",
        "fn way() {}",
        "",
        "    /// Whether.",
        "    // What an ordinary comment says.",
        "    /// Whatever is asked for.",
        "fn other() {}",
        "/// Fails.",
        "///",
        "/// # Errors",
        "/// As there.",
        "/// As there is one.",
    ];
    assert_eq!(refused(&text.join("\n")), [1, 10, 17]);
}
