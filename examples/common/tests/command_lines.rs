//! The command lines of all examples and tools of the workspace, which are found by cargo: a new one is among them.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use bareverbs_node::{DEVICE_VARIABLE, PORT_VARIABLE, REPORTS_VARIABLE};
use serde_json::Value;

/// `cargo rig` is for work on this repository, and takes the names of rigs; README's program stands for a user's, with words
/// of its own.
const NOT_TOOLS: [&str; 2] = ["bareverbs-rigs", "message"];
/// Functions that no machine has.
const NOWHERE: &str = "vfio:ffff:ff:1f.7";
const TWICE_NOWHERE: &str = "vfio:ffff:ff:1f.7,vfio:ffff:ff:1e.7";
/// SIGPIPE of Linux.
const SIGPIPE: i32 = 13;

/// A program, by its name.
struct Program {
    path: PathBuf,
    /// It is an example of this folder, and not a tool.
    uses_devices: bool,
}

/// Builds all of them, once.
fn programs() -> &'static BTreeMap<String, Program> {
    static PROGRAMS: OnceLock<BTreeMap<String, Program>> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let mut build = cargo("build");
        build.args([
            "--workspace",
            "--examples",
            "--bins",
            "--message-format=json",
        ]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        let examples = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let examples = examples.canonicalize().expect("a folder");
        let mut programs = BTreeMap::new();
        for line in stdout(&mut build).lines() {
            let message: Value = serde_json::from_str(line).expect("JSON");
            let Some(path) = message["executable"].as_str() else {
                continue;
            };
            let text = |value: &Value| value.as_str().expect("a string").to_owned();
            let source = PathBuf::from(text(&message["target"]["src_path"]));
            let name = text(&message["target"]["name"]);
            // This one reads files.
            let uses_devices = source.starts_with(&examples) && name != "profile";
            let path = path.into();
            programs.insert(name, Program { path, uses_devices });
        }
        assert_eq!(programs.keys().cloned().collect::<Vec<_>>(), names());
        programs
    })
}

/// The names of all examples and binaries that the manifests have, in order.
fn names() -> Vec<String> {
    let mut metadata = cargo("metadata");
    metadata.args(["--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&stdout(&mut metadata)).expect("JSON");
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let targets = list(&metadata["packages"])
        .into_iter()
        .flat_map(|package| list(&package["targets"]));
    let programs = targets.filter(|target| {
        let kinds = list(&target["kind"]);
        kinds.contains(&"example".into()) || kinds.contains(&"bin".into())
    });
    let mut names: Vec<String> = programs
        .map(|program| program["name"].as_str().expect("a name").into())
        .collect();
    names.sort();
    names
}

fn cargo(command: &str) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.arg(command).current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo
}

fn stdout(command: &mut Command) -> String {
    let done = command.output().expect("cargo");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{errors}");
    String::from_utf8(done.stdout).expect("text")
}

/// Returns the programs that the tests look at.
fn tools() -> impl Iterator<Item = (&'static str, &'static Program)> {
    let all = programs().iter().map(|(name, program)| (&**name, program));
    all.filter(|(name, _)| !NOT_TOOLS.contains(name))
}

impl Program {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(words).stdin(Stdio::null());
        command.env(REPORTS_VARIABLE, env!("CARGO_TARGET_TMPDIR"));
        for variable in [DEVICE_VARIABLE, PORT_VARIABLE] {
            command.env_remove(variable);
        }
        command
    }

    fn run(&self, words: &[&str]) -> Said {
        Said::from(self.command(words).output().expect("it starts"))
    }
}

#[derive(Debug)]
struct Said {
    code: Option<i32>,
    signal: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let [out, err] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"));
        let status = output.status;
        let (code, signal) = (status.code(), status.signal());
        Self {
            code,
            signal,
            out,
            err,
        }
    }
}

#[test]
fn help_says_what_a_program_is_for_and_is_no_error() {
    for (name, program) in tools() {
        let said = program.run(&["--help"]);
        assert_eq!((said.code, &*said.err), (Some(0), ""), "{name}");
        let usage = format!("Usage: {name}");
        let about = said.out.split_once(&usage).map(|(about, _)| about.trim());
        assert!(
            about.is_some_and(|about| about.len() > 20),
            "{name}: {said:?}"
        );
    }
}

#[test]
fn unknown_words_are_refused() {
    for (name, program) in tools() {
        let mut words = vec!["--no-such-option"];
        // These take files and programs.
        if !["decode", "bareverbs-run"].contains(&name) {
            words.push("no-such-word");
        }
        for word in words {
            let said = program.run(&[word]);
            assert_eq!(
                (said.code, &*said.out),
                (Some(2), ""),
                "{name} {word}: {said:?}"
            );
            assert!(said.err.starts_with(name), "{said:?}");
        }
    }
}

#[test]
fn a_card_that_is_not_there_is_named_and_no_model_takes_its_place() {
    let mut tried = 0;
    for (name, program) in tools().filter(|(_, program)| program.uses_devices) {
        let words: &[&str] = match name {
            "devinfo" | "loopback" | "subnet" => &[NOWHERE],
            "migration" => &[NOWHERE, "fe80::1", "4", "0011", "/cut", "/mended"],
            _ => &[TWICE_NOWHERE],
        };
        let refused = |said: Said| {
            assert_eq!((said.code, &*said.out), (Some(1), ""), "{name}: {said:?}");
            assert!(said.err.contains("ffff:ff:1f.7"), "{name}: {said:?}");
        };
        refused(program.run(&[&["--device"], words].concat()));
        let mut command = program.command(&words[1..]);
        refused(
            command
                .env(DEVICE_VARIABLE, words[0])
                .output()
                .expect("it starts")
                .into(),
        );
        tried += 1;
    }
    assert!(tried >= 15, "{tried}");
}

#[test]
fn options_of_the_model_are_refused_with_a_card() {
    for (name, program) in tools().filter(|(_, program)| program.uses_devices) {
        for option in [
            ["--card", "connectx-7"],
            ["--model-port", "infiniband"],
            ["--fault", "command=NOP,dropped"],
        ] {
            let said = program.run(&[&["--device", NOWHERE][..], &option].concat());
            assert_eq!((said.code, &*said.out), (Some(2), ""), "{name}: {said:?}");
        }
    }
}

/// Faults of commands reach the model of every program: bring-up fails as the line says.
#[test]
fn a_command_fails_as_the_command_line_says() {
    const FAULT: &str = "command=INIT_HCA,status=LIM_ERR,syndrome=0x3c5a71";
    let mut tried = 0;
    for (name, program) in tools().filter(|(_, program)| program.uses_devices) {
        let help = program.run(&["--help"]).out;
        let takes = options(&help)
            .iter()
            .any(|(option, _)| *option == "--fault");
        // These two manage a subnet, which a model alone does not have.
        assert_eq!(takes, !["migration", "subnet"].contains(&name), "{name}");
        if !takes {
            continue;
        }
        let words: &[&str] = match name {
            "devinfo" => &["--selftest", "--fault", FAULT],
            _ => &["--fault", FAULT],
        };
        let said = program.run(words);
        assert_eq!(said.code, Some(1), "{name}: {said:?}");
        for what in ["INIT_HCA", "LIM_ERR", "0x3c5a71"] {
            assert!(
                said.err.contains(what) || said.out.contains(what),
                "{name}: {said:?}"
            );
        }
        let said = program.run(&["--fault", "command=INIT_HCA,status=LIMERR"]);
        assert_eq!((said.code, &*said.out), (Some(2), ""), "{name}: {said:?}");
        assert!(said.err.contains("LIM_ERR"), "{name}: {said:?}");
        tried += 1;
    }
    assert!(tried >= 15, "{tried}");
}

/// A value that an option takes, by what its help calls it.
fn value(argument: &str) -> &'static str {
    match argument {
        "DEVICE" => NOWHERE,
        "ADDRESS" => "10.0.0.9",
        "ADDRESS[/PREFIX]" => "10.0.0.9/24",
        "FAMILY:LOCAL,REMOTE" => "udp:[::1]:7000,[::1]:7001",
        "udp:LOCAL,REMOTE" => "udp:[::1]:7000,[::1]:7001",
        "GID" => "fe80::1",
        "MAC" => "02:00:00:00:00:01",
        "NAME" | "NAME|FILE" => "connectx-7",
        "LAYER" => "infiniband",
        "VERB" => "write",
        "TEST" => "bw",
        "SPACE" => "udp",
        "KIND" => "region",
        "SHARE" => "1%",
        "TIME" => "5ms",
        "KIND=VALUE" | "KIND=VALUE,..." => "loss=0.1",
        "PORT_TYPE" => "ib",
        "BYTES" => "512",
        "VERSION" | "FUNCTION" => "1",
        _ => "20",
    }
}

/// The options that a help text lists, each with what it calls the argument.
fn options(help: &str) -> Vec<(&str, Option<&str>)> {
    let mut options = Vec::new();
    for line in help.lines() {
        let first = line.trim_start();
        let indent = line.len() - first.len();
        if !first.starts_with('-') || !(4..=8).contains(&indent) {
            continue;
        }
        // "-S, --sizes=BYTES  Bytes of ..."
        let names = first.split("  ").next().unwrap_or_default();
        let argument = names
            .split_once('=')
            .map(|(_, argument)| argument.trim_matches(['<', '>']));
        let name = names.split([',', '=', ' ']).next().unwrap_or_default();
        if name != "-h" {
            options.push((name, argument));
        }
    }
    options
}

/// As with getopt, repeating one is no error: what is wrong is what was wrong before, the word after them for most.
#[test]
fn options_may_be_repeated() {
    const WRONG: &str = "--no-such-option";
    let mut tried = 0;
    for (name, program) in tools() {
        let command: &[&str] = if name == "connectx-model" {
            &["serve"]
        } else {
            &[]
        };
        let help = program.run(&[command, &["--help"]].concat()).out;
        for (option, argument) in options(&help) {
            let mut once: Vec<&str> = [option].into_iter().chain(argument.map(value)).collect();
            // Each of its links is another function's.
            if (name, option) == ("connectx-model", "--link") {
                once.splice(0..0, ["--socket", "/a"]);
            }
            // What needs another one, and what a program is handed.
            let before: &[&str] = match (name, option) {
                ("devinfo", "--lines" | "--times") => &["--watch", "1"],
                ("connectx-model", _) => &["serve", "--socket", "/b"],
                ("profile", "--base") => &["--from", "/a"],
                _ => command,
            };
            let rest: &[&str] = match name {
                "bareverbs-run" => &["true"],
                _ => &[],
            };
            let said = |times: usize| {
                let words = [before, &once.repeat(times), &[WRONG], rest].concat();
                program.run(&words)
            };
            let [single, double] = [said(1), said(2)];
            assert_eq!(
                (single.code, double.code),
                (Some(2), Some(2)),
                "{name} {option}"
            );
            assert_eq!(single.err, double.err, "{name} {option}");
            assert!(!single.err.contains("couldn't parse"), "{name}: {single:?}");
            tried += 1;
        }
    }
    assert!(tried > 200, "{tried}");
}

#[test]
fn a_closed_pipe_ends_programs_quietly() {
    let closed = |program: &Program, words: &[&str]| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = program.command(words).stdout(writer).output();
        Said::from(output.expect("it starts"))
    };
    for (name, program) in tools() {
        let said = closed(program, &["--help"]);
        assert_eq!(
            (said.signal, &*said.err),
            (Some(SIGPIPE), ""),
            "{name} --help: {said:?}"
        );
    }
    // In the midst of their work; those without a model have nothing to print.
    for (name, program) in tools().filter(|(_, program)| program.uses_devices) {
        if ["migration", "subnet"].contains(&name) {
            continue;
        }
        let said = closed(program, &[]);
        assert_eq!(
            (said.signal, &*said.err),
            (Some(SIGPIPE), ""),
            "{name}: {said:?}"
        );
    }
}

/// Faults of a command of bring-up, or of a connection. The program ends within a second or so with each.
const FAULTS: [&str; 10] = [
    "command=ENABLE_HCA,status=LIM_ERR,syndrome=0x3c5a71",
    "command=MANAGE_PAGES,status=BAD_PARAM",
    "command=CREATE_EQ,status=NO_RES",
    "command=INIT_HCA,delivery=5",
    "command=ALLOC_UAR,half",
    "command=QUERY_HCA_CAP,nth=2,vanish",
    "command=CREATE_CQ,health=8",
    "command=CREATE_QP,vanish",
    "command=RST2INIT_QP,status=BAD_PARAM",
    "command=CREATE_QP,late=20ms",
];

/// The card that is made of a report tests itself, connects, and fails like the one that was reported.
#[test]
fn a_report_makes_a_card_that_does_the_same() {
    let [devinfo, profile, rping] = ["devinfo", "profile", "rping"].map(|name| &programs()[name]);
    let folder = std::env::temp_dir().join(format!("bareverbs-reports-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    // Returns the verdict and the name of each step.
    let steps = |card: &str| -> Vec<String> {
        let said = devinfo.run(&["--card", card, "--selftest"]);
        assert_eq!(said.code, Some(0), "{card}: {said:?}");
        let words = said.out.lines().map(|line| line.split_whitespace().take(2));
        words
            .map(|words| words.collect::<Vec<_>>().join(" "))
            .collect()
    };
    for name in ["connectx-4-lx", "connectx-5", "bluefield-ecpf"] {
        let report = folder.join(format!("{name}.tar.zst"));
        let report = report.to_str().expect("a path");
        let said = devinfo.run(&["--card", name, "--report", report]);
        assert_eq!(said.code, Some(0), "{name}: {said:?}");
        let said = profile.run(&["--from", report]);
        assert_eq!(said.code, Some(0), "{name}: {said:?}");
        let card = folder.join(format!("{name}.txt"));
        std::fs::write(&card, said.out).expect("a file");
        let card = card.to_str().expect("a path");

        let tested = steps(name);
        assert!(tested.iter().any(|step| step == "PASS close"), "{tested:?}");
        assert_eq!(tested, steps(card), "{name}");
        let pings = |card: &str| rping.run(&["--card", card, "-C", "3"]).code;
        assert_eq!([name, card].map(pings), [Some(0); 2], "{name}");
        let mut failed = 0;
        for fault in FAULTS {
            let ends = [name, card].map(|card| {
                let said = rping.run(&["--card", card, "-C", "3", "--fault", fault]);
                // The other end's thread may say more, or be cut off.
                let is_client = |line: &&str| line.starts_with("rping: client: ");
                let client = said.err.lines().find(is_client).map(str::to_owned);
                (said.code, client)
            });
            assert_eq!(ends[0], ends[1], "{name}: {fault}");
            failed += usize::from(ends[0].0 == Some(1));
        }
        assert_eq!(failed, FAULTS.len() - 1, "{name}: all but the late answer");
    }
    std::fs::remove_dir_all(&folder).expect("a folder");
}
