//! `cargo rig readme`: a new project from the text of `README.md` alone, in an empty folder with the checkout beside it. Its
//! program has to work at the first attempt, in one process and in two; and to say what went wrong, if something does.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::outcome::Outcome;

pub(crate) const ABOUT: &str =
    "README.md's program in an empty folder: built, run, and made to fail";

/// The two ends print these lines.
const SERVER: &str = "the server got \"hello\"\n";
const CLIENT: &str = "the client's Send was acknowledged\n";

/// The program's buffer for messages, and one that is too short, which is what users do wrong.
const BUFFER: (&str, &str) = ("reg_msgs(id, 16)", "reg_msgs(id, 3)");

pub(crate) fn run(_: &[String]) -> Result<Outcome, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().map_err(|error| error.to_string())?;
    let page = fs::read_to_string(root.join("README.md")).map_err(|error| error.to_string())?;
    let manifest = block(&page, "toml").ok_or("README.md shows no Cargo.toml")?;
    let program = block(&page, "rust").ok_or("README.md shows no program")?;

    let folder = std::env::temp_dir().join(format!("readme-{}", std::process::id()));
    let project = Project {
        folder: folder.join("hello"),
        target: root.join("target/readme"),
    };
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(project.folder.join("src"))?;
        symlink(&root, folder.join("bareverbs"))?;
        fs::write(project.folder.join("Cargo.toml"), manifest)
    };
    write().map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut outcome = Outcome::default();
    let done = project.check(&program, &mut outcome);
    fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    done.map(|()| outcome)
}

/// The first code block of a page in this language.
fn block(page: &str, language: &str) -> Option<String> {
    let (_, rest) = page.split_once(&format!("```{language}\n"))?;
    Some(rest.split_once("```\n")?.0.to_owned())
}

struct Project {
    folder: PathBuf,
    target: PathBuf,
}

impl Project {
    fn check(&self, program: &str, outcome: &mut Outcome) -> Result<(), String> {
        self.write(program)?;
        let built = output(self.command("cargo").arg("build"))?;
        outcome.check(built.status.success(), || {
            shown("it does not build", &built)
        });
        if !built.status.success() {
            return Ok(());
        }
        let warned = String::from_utf8_lossy(&built.stderr).contains("warning: unused");
        outcome.check(!warned, || shown("it builds with warnings", &built));
        let binary = self.target.join("debug/hello");
        let hello = || self.command(&binary);

        let both = output(&mut hello())?;
        let said = String::from_utf8_lossy(&both.stdout).replace("ready\n", "");
        outcome.check(
            both.status.success() && said.contains(SERVER) && said.contains(CLIENT),
            || shown("both ends in one process", &both),
        );
        self.two_processes(&hello, outcome)?;

        // There is no server, and no wire.
        let alone = output(hello().arg("client"))?;
        let why = "Error: resolving 10.0.0.1:7471: ";
        fails_with(outcome, "a client alone", &alone, &[why]);
        let absent =
            output(hello().env("BAREVERBS_DEVICE", "vfio:ffff:ff:1f.7,vfio:ffff:ff:1f.6"))?;
        fails_with(outcome, "cards that are absent", &absent, &["ffff:ff:1f.7"]);

        let (whole, short) = BUFFER;
        let there = program.matches(whole).count();
        if there != 1 {
            return Err(format!("README.md's program has {whole:?} {there} times"));
        }
        self.write(&program.replace(whole, short))?;
        let failed = output(self.command("cargo").args(["run", "--quiet"]))?;
        // Of whichever end's was seen first.
        let reasons = [
            "Error: local length error (vendor syndrome 0x",
            "Error: remote invalid request error (vendor syndrome 0x",
        ];
        fails_with(outcome, "a receive of 3 bytes", &failed, &reasons);

        let manifest = self.folder.join("Cargo.toml");
        let whole = fs::read_to_string(&manifest).map_err(|error| error.to_string())?;
        let without = whole.replace(", features = [\"model\"]", "");
        fs::write(&manifest, without).map_err(|error| error.to_string())?;
        let failed = output(self.command("cargo").args(["run", "--quiet"]))?;
        let why = "bareverbs-node = { ..., features = [\"model\"] }";
        fails_with(outcome, "without the feature", &failed, &[why]);
        Ok(())
    }

    fn write(&self, program: &str) -> Result<(), String> {
        let main = self.folder.join("src/main.rs");
        fs::write(&main, program).map_err(|error| format!("{}: {error}", main.display()))
    }

    /// The reader of the page has no variables of this rig's.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=10", "10m"])
            .arg(program.as_ref())
            .current_dir(&self.folder)
            .env("CARGO_TARGET_DIR", &self.target)
            .stdin(Stdio::null());
        for (name, _) in std::env::vars() {
            if name.starts_with("BAREVERBS_") || name == "RUSTFLAGS" {
                command.env_remove(name);
            }
        }
        command
    }

    /// An end in each of two processes, on a wire.
    fn two_processes(
        &self,
        hello: &dyn Fn() -> Command,
        outcome: &mut Outcome,
    ) -> Result<(), String> {
        let [one, two] = ["1", "2"].map(|name| self.folder.join(name).display().to_string());
        let mut server = hello()
            .arg("server")
            .env("BAREVERBS_LINK", format!("unix:{one},{two}"))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut printed = BufReader::new(server.stdout.take().ok_or("no output")?);
        let mut said = String::new();
        printed
            .read_line(&mut said)
            .map_err(|error| error.to_string())?;
        let mut client = hello();
        let wire = format!("unix:{two},{one}");
        let client = output(client.arg("client").env("BAREVERBS_LINK", wire))?;
        printed
            .read_to_string(&mut said)
            .map_err(|error| error.to_string())?;
        let served = server.wait().map_err(|error| error.to_string())?;
        outcome.check(
            client.status.success() && client.stdout == CLIENT.as_bytes(),
            || shown("the client of two processes", &client),
        );
        outcome.check(
            served.success() && said == format!("ready\n{SERVER}"),
            || format!("the server of two processes: {served}: {said}"),
        );
        Ok(())
    }
}

fn output(command: &mut Command) -> Result<Output, String> {
    command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))
}

/// That a program ends with 1, and gives one of these reasons in a line.
fn fails_with(outcome: &mut Outcome, what: &str, output: &Output, reasons: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    println!("{what}: {}", said.trim_end());
    let says = said.lines().count() == 1 && reasons.iter().any(|reason| said.contains(reason));
    outcome.check(output.status.code() == Some(1) && says, || {
        shown(what, output)
    });
}

fn shown(what: &str, output: &Output) -> String {
    format!(
        "{what}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
