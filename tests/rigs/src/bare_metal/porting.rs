//! `cargo rig porting`: follows the page for integrators, `PORTING.md`, exactly, in an empty folder outside the
//! repository. Nothing that is not on the page is written there.

use super::super::stock_driver;
use super::setup::root;
use crate::outcome::Outcome;
use crate::rust_src;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) const ABOUT: &str =
    "PORTING.md followed step by step: a small kernel that connects (boots a machine)";

/// Building and booting, on a busy machine.
const MINUTES: &str = "12m";

/// The lines that the program on the page prints on success, and the meaning of each.
const SAYS: [(&str, &str); 4] = [
    ("conformance: BAR of ", "the platform passes"),
    ("bytes moved by the device; polled", "it polls"),
    ("received: good evening. :(", "the server's message arrives"),
    ("done", "the machine ends well"),
];

/// A piece of the page.
#[derive(Debug, PartialEq)]
enum Block {
    /// Commands.
    Shell(String),
    /// A file with its name.
    File(String, String),
}

pub(crate) fn run(_: &[String]) -> Result<Outcome, String> {
    let root = root().canonicalize().map_err(|error| error.to_string())?;
    let page = fs::read_to_string(root.join("PORTING.md"))
        .map_err(|error| format!("PORTING.md: {error}"))?;
    let script = script(&blocks(&page)?);
    let (provisions, _lock) = stock_driver::prepare()?;
    let library = rust_src::library()?;

    let folder = std::env::temp_dir().join(format!("porting-{}", std::process::id()));
    let programs = folder.join("bin");
    let log = root.join("target/rigs/porting.log");
    let console = root.join("target/rigs/porting-console.log");
    let scratch = folder.join("empty");
    let write = || -> std::io::Result<File> {
        fs::create_dir_all(&programs)?;
        fs::create_dir_all(&scratch)?;
        // The page has a checkout beside the new crate, and QEMU in the path.
        symlink(&root, scratch.join("bareverbs"))?;
        let qemu = programs.join("qemu-system-x86_64");
        fs::write(&qemu, wrapper(&provisions.qemu(), &console))?;
        fs::set_permissions(&qemu, Permissions::from_mode(0o755))?;
        fs::write(folder.join("page.sh"), script)?;
        File::create(&console)?;
        File::create(&log)
    };
    let output = write().map_err(|error| format!("{}: {error}", folder.display()))?;
    let status = follow(&folder, &scratch, &programs, &library, output)?;
    let read = |path| fs::read_to_string(path).map_err(|error| error.to_string());
    let printed = read(&log)? + &read(&console)?;

    let mut outcome = Outcome::default();
    outcome.check(status == Some(0), || {
        let last: Vec<&str> = printed.lines().rev().take(30).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        format!(
            "the page leads to exit status {status:?}:\n{}",
            last.join("\n")
        )
    });
    for (text, about) in SAYS {
        let line = printed.lines().find(|line| line.contains(text));
        println!("{about}: {}", line.unwrap_or("-").trim_end());
        outcome.check(line.is_some(), || {
            format!("{about}: no program printed {text:?}")
        });
    }
    fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(outcome)
}

/// Runs the script; its exit status, if it has one.
fn follow(
    folder: &Path,
    scratch: &Path,
    programs: &Path,
    library: &Path,
    output: File,
) -> Result<Option<i32>, String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let errors = output.try_clone().map_err(|error| error.to_string())?;
    let mut command = Command::new("timeout");
    // The reader of the page does not have this rig's environment variables.
    for variable in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_TARGET_DIR",
        "RUSTC_BOOTSTRAP",
    ] {
        command.env_remove(variable);
    }
    command
        .args(["--kill-after=10", MINUTES, "bash", "-eux"])
        .arg(folder.join("page.sh"))
        .current_dir(scratch)
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("__CARGO_TESTS_ONLY_SRC_ROOT", library)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors);
    let status = command
        .status()
        .map_err(|error| format!("{command:?}: {error}"))?;
    Ok(status.code())
}

/// A script that calls QEMU with some arguments before its own. The machine's serial port gives single bytes: into a file that
/// other programs print to as well, their lines would fall between those.
fn wrapper(command: &Command, console: &Path) -> String {
    let mut words = vec![command.get_program()];
    words.extend(command.get_args());
    let quoted = |word: &OsStr| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"));
    let all: Vec<String> = words.into_iter().map(quoted).collect();
    let console = quoted(console.as_os_str());
    format!("#!/bin/sh\nexec {} \"$@\" >{console}\n", all.join(" "))
}

/// The page as a script. What it leaves running ends with it.
fn script(blocks: &[Block]) -> String {
    let mut script = String::from("trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n");
    for block in blocks {
        match block {
            Block::Shell(commands) => script += commands,
            Block::File(name, text) => {
                script += &format!("cat > {name} <<'END OF THE FILE'\n{text}END OF THE FILE\n");
            }
        }
    }
    script
}

/// The code of a page, in order. A block that is not commands has the name of its file at the start of the paragraph
/// before it.
fn blocks(page: &str) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut paragraph = "";
    let mut begins = true;
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            if begins && !line.is_empty() {
                paragraph = line;
            }
            begins = line.is_empty();
            continue;
        };
        let code = lines.by_ref().take_while(|line| *line != "```");
        let text: String = code.flat_map(|line| [line, "\n"]).collect();
        // For the reader only.
        if language == "text" {
            continue;
        }
        if language == "sh" {
            blocks.push(Block::Shell(text));
            continue;
        }
        let name = paragraph
            .strip_prefix('`')
            .and_then(|rest| rest.split_once('`'));
        let (name, _) = name.ok_or_else(|| format!("which file is this: {text:.100}"))?;
        blocks.push(Block::File(name.to_string(), text));
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_files_in_order() {
        let page = "# Title\n\n```text\nnot a file\n```\n\n`a/b.rs`: the file\nwith `c`.\n\n```rust\nfn x() {}\n\n```\nthen\n\n```sh\nls\n```\n";
        let found = blocks(page).unwrap();
        let file = Block::File("a/b.rs".into(), "fn x() {}\n\n".into());
        assert_eq!(found, [file, Block::Shell("ls\n".into())]);
        let script = script(&found);
        assert!(
            script
                .ends_with("cat > a/b.rs <<'END OF THE FILE'\nfn x() {}\n\nEND OF THE FILE\nls\n")
        );
        assert!(blocks("text\n\n```toml\n[x]\n```\n").is_err());
    }

    #[test]
    fn words_are_quoted() {
        let mut command = Command::new("a b");
        command.args(["it's", "-L"]);
        assert_eq!(
            wrapper(&command, Path::new("c d")),
            "#!/bin/sh\nexec 'a b' 'it'\\''s' '-L' \"$@\" >'c d'\n"
        );
    }

    /// The page can be followed at all.
    #[test]
    fn the_page_has_a_crate() {
        let page = include_str!("../../../../PORTING.md");
        let blocks = blocks(page).unwrap();
        let has = |wanted: &str| {
            let is = |block: &Block| matches!(block, Block::File(name, _) if name == wanted);
            assert!(blocks.iter().any(is), "{wanted}");
        };
        has("Cargo.toml");
        has(".cargo/config.toml");
        has("src/platform.rs");
        has("src/main.rs");
    }
}
