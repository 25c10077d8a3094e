//! Shows what a device can do, as `ibv_devinfo -v` does: from the capabilities that bring-up negotiated.
//!
//! ```text
//! cargo run --example devinfo                                  the device model, which is built in
//! cargo run --example devinfo -- --device vfio:0000:3b:00.0    a card that is bound to vfio-pci
//! cargo run --example devinfo -- --selftest                    does it work? No cable is needed
//! cargo run --example devinfo -- --conformance                 does what is below the driver work?
//! cargo run --example devinfo -- --resources                   QPs and CQs, as `rdma resource show` lists them
//! cargo run --example devinfo -- --report card.tar.zst         all that a card shows of itself, for a bug report
//! cargo run --example devinfo -- --watch 1                     what the port counts and how warm it is, each second
//! ```
//!
//! It also hands a card over to vfio-pci and back (`--bind`, `--unbind`), and says what that takes.

mod attributes;
mod card_report;
mod chunks;
mod conformance;
mod infiniband;
mod report;
mod resources;
mod selftest;
mod settings;
mod watch;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bareverbs_command_line::{EMPTY, is_path};
use bareverbs_examples::Result;
use bareverbs_examples::devices::{ONLY_MODELS, open};
use bareverbs_examples::plugged::{Model, ModelPort, model};
use bareverbs_examples::program;
use bareverbs_in_process::{Builder, World};
use bareverbs_node::{DEVICE_VARIABLE, DeviceName, DevicePlatform, inspect};
use bareverbs_vfio::Rebinding;
use bpaf::Bpaf;
use chunks::with_page_chunks;
use connectx_model::Config as Card;
use watch::Watch;

/// Shows what an RDMA device can do, and whether it does.
#[derive(Bpaf, Debug)]
#[bpaf(
    options,
    guard(|it| it.device == DeviceName::Model || !it.model.is_given(), ONLY_MODELS),
    guard(
        |it| it.socket.is_none() || matches!(it.action, Action::Watch { .. } | Action::Resources { .. }),
        "--socket is for --watch and --resources"
    )
)]
struct Arguments {
    /// `model`, the device model; or `vfio:ADDRESS`, a PCI function that is bound to vfio-pci.
    #[bpaf(
        long,
        env(DEVICE_VARIABLE),
        argument("DEVICE"),
        last,
        fallback(DeviceName::Model),
        display_fallback
    )]
    device: DeviceName,
    /// With --watch and --resources: looks at the device that another process has in use and serves at this Unix socket,
    /// instead of opening one.
    #[bpaf(long, argument("PATH"), last, guard(is_path, EMPTY), optional)]
    socket: Option<PathBuf>,
    #[bpaf(external, many, parse(one_action))]
    action: Action,
    /// Says what --bind or --unbind would do, and does not do it.
    #[bpaf(switch, last)]
    dry_run: bool,
    #[bpaf(external)]
    model: Model,
}

/// One of these, or the device is shown as text.
#[derive(Bpaf, Debug, Clone, PartialEq, Eq)]
enum Action {
    #[bpaf(skip)]
    Show,
    /// Takes the function from its kernel driver and binds it to vfio-pci, after saying what that takes; shows nothing
    /// else.
    Bind,
    /// Gives the function back to the kernel.
    Unbind,
    /// Prints JSON.
    Json,
    Watch {
        /// Shows what the port counts, if it is not zero, and how many a second, again and again.
        #[bpaf(
            long("watch"),
            argument::<f64>("SECONDS"), last,
            parse(interval)
        )]
        interval: Duration,
        /// Looks so many times with --watch, and not until it is interrupted.
        #[bpaf(long, argument("NUMBER"), last, optional)]
        times: Option<NonZeroU32>,
        /// Prints a line of JSON each time with --watch.
        #[bpaf(switch, last)]
        lines: bool,
    },
    Resources {
        /// Connects two queue pairs inside the device, and lists the QPs and CQs that are alive then, with what the firmware
        /// says of them.
        #[bpaf(long("resources"), req_flag(()), last)]
        _resources: (),
        /// Prints a line of JSON for each object with --resources.
        #[bpaf(switch, last)]
        lines: bool,
    },
    /// Tries the device out: memory, queue pairs in force loopback, every operation, interrupts, errors, teardown. No cable
    /// is needed.
    Selftest,
    /// Holds the platform below the driver (VFIO, or the device model's) against its requirements, polled and with interrupts.
    Conformance,
    Report {
        /// Writes all that the card shows of itself to this file, a tar compressed by zstd: for a bug report. It is
        /// written even if the card fails half way, or when it is interrupted.
        #[bpaf(long("report"), argument("FILE.tar.zst"), last, guard(is_path, EMPTY))]
        path: PathBuf,
        /// Leaves MAC addresses, GUIDs and serial numbers as they are with --report. Otherwise each is replaced by
        /// another one, the same everywhere in the file.
        #[bpaf(switch, last)]
        identify: bool,
    },
}

/// The last of what is asked for, which has to be the same each time.
fn one_action(actions: Vec<Action>) -> std::result::Result<Action, &'static str> {
    let kinds = actions.iter().map(std::mem::discriminant);
    if kinds
        .clone()
        .zip(kinds.skip(1))
        .any(|(one, next)| one != next)
    {
        return Err("one thing is done at a time");
    }
    Ok(actions.last().cloned().unwrap_or(Action::Show))
}

fn main() -> ExitCode {
    program::main("devinfo", &arguments(), |arguments| {
        match &arguments.action {
            Action::Bind | Action::Unbind => rebind(arguments),
            Action::Selftest => try_out(arguments),
            Action::Conformance => conform(arguments),
            Action::Show | Action::Json => show(arguments),
            Action::Resources { lines, .. } => list(arguments, *lines),
            Action::Watch {
                interval,
                times,
                lines,
            } => count(
                arguments,
                Watch {
                    interval: *interval,
                    times: *times,
                    json: *lines,
                },
            ),
            Action::Report { path, identify } => write_report(arguments, path, *identify),
        }
    })
}

/// Binds the function to another driver.
fn rebind(arguments: &Arguments) -> Result<()> {
    let DeviceName::Vfio(address) = arguments.device else {
        return Err("--device vfio:ADDRESS: which function?".into());
    };
    let plan = if arguments.action == Action::Bind {
        Rebinding::to_vfio(address)?
    } else {
        Rebinding::to_kernel(address)?
    };
    print!("{plan}");
    if !arguments.dry_run {
        plan.carry_out()?;
        for (index, [function, space]) in plan.device_files().iter().enumerate() {
            let begin = if index == 0 {
                "# opened through"
            } else {
                "# or"
            };
            println!("{begin} {} and {}", function.display(), space.display());
        }
    }
    Ok(())
}

/// A world with a card that is not there.
fn world(arguments: &Arguments, vectors: u16) -> World {
    let world = Builder::new()
        .function(card(arguments))
        .interrupts(vectors)
        .threaded();
    arguments.model.damage(&world, 1, 0);
    world
}

/// Its tests need no cable, and it has none then.
fn card(arguments: &Arguments) -> Card {
    let mut card = arguments.model.card().config(1);
    card.link_up = !matches!(arguments.action, Action::Selftest | Action::Conformance);
    if arguments.model.port() == ModelPort::Infiniband {
        card = card.infiniband();
    }
    card
}

fn show(arguments: &Arguments) -> Result<()> {
    let report = match arguments.device {
        DeviceName::Model => {
            let world = world(arguments, 1);
            let part = card(arguments).device_id;
            attributes::report(world.platform(0), "model0", part)?
        }
        DeviceName::Vfio(address) => {
            let device = open(address, 0)?;
            let part = device.device_id();
            attributes::report(device, &address.to_string(), part)?
        }
    };
    if arguments.action == Action::Json {
        println!("{}", report.to_json());
    } else {
        print!("{}", report.to_text());
    }
    Ok(())
}

/// Lists what is alive.
fn list(arguments: &Arguments, json: bool) -> Result<()> {
    if let Some(path) = &arguments.socket {
        let text = inspect::ask_resources(path, json);
        print!(
            "{}",
            text.map_err(|error| format!("{}: {error}", path.display()))?
        );
        return Ok(());
    }
    let text = match arguments.device {
        DeviceName::Model => {
            let world = world(arguments, 1);
            with_page_chunks(|chunks| resources::show(world.platform(0), chunks, "model0/1", json))
        }
        DeviceName::Vfio(address) => with_page_chunks(|chunks| {
            let link = format!("{address}/1");
            resources::show(open(address, 0)?, chunks, &link, json)
        }),
    }?;
    print!("{text}");
    Ok(())
}

/// Shows what the port counts.
fn count(arguments: &Arguments, watch: Watch) -> Result<()> {
    let print = |text: &str| print!("{text}");
    if let Some(path) = &arguments.socket {
        return watch.of_socket(path, print);
    }
    match arguments.device {
        DeviceName::Model => {
            let world = world(arguments, 1);
            with_page_chunks(|chunks| watch.run(world.platform(0), chunks, print))
        }
        DeviceName::Vfio(address) => {
            with_page_chunks(|chunks| watch.run(open(address, 0)?, chunks, print))
        }
    }
}

/// Between two looks: more than nothing, and not more than a day.
fn interval(seconds: f64) -> std::result::Result<Duration, String> {
    let seconds = Some(seconds).filter(|seconds| (0.001..=86_400.0).contains(seconds));
    let seconds = seconds.ok_or("not 0.001 to 86400")?;
    Ok(Duration::from_secs_f64(seconds))
}

/// On standard output, at once.
const PRINT: fn(&str) = |line| print!("{line}");

fn try_out(arguments: &Arguments) -> Result<()> {
    match arguments.device {
        DeviceName::Model => {
            let world = world(arguments, 1);
            selftest::run(&PRINT, || Ok(world.platform(0)))?;
        }
        DeviceName::Vfio(address) => {
            selftest::run(&PRINT, || Ok(open(address, 1)?))?;
        }
    }
    Ok(())
}

/// Collects all that the card shows of itself.
fn write_report(arguments: &Arguments, path: &Path, identify: bool) -> Result<()> {
    match arguments.device {
        DeviceName::Model => {
            let open = |vectors| {
                let card = card(arguments);
                Ok(card_report::Opened {
                    platform: DevicePlatform::model(&Arc::new(world(arguments, vectors)), 0),
                    text: format!("the built-in model of a {}\n", arguments.model.card()),
                    vectors: Some(card.msix_vectors.into()),
                })
            };
            let name = "model".into();
            let function = card_report::Function {
                name,
                address: None,
                open,
            };
            card_report::run(&function, path, identify)
        }
        DeviceName::Vfio(address) => {
            let open = |vectors| {
                let platform = open(address, vectors)?;
                Ok(card_report::Opened {
                    text: card_report::vfio(&platform),
                    vectors: Some(platform.limits().msix_vectors),
                    platform: DevicePlatform::from(platform),
                })
            };
            let name = arguments.device.to_string();
            let function = card_report::Function {
                name,
                address: Some(address),
                open,
            };
            card_report::run(&function, path, identify)
        }
    }
}

fn conform(arguments: &Arguments) -> Result<()> {
    conformance::run(&PRINT, |vectors| match arguments.device {
        DeviceName::Model => {
            let world = world(arguments, vectors);
            conformance::judge(&world.platform(0))
        }
        DeviceName::Vfio(address) => conformance::judge(&open(address, vectors)?),
    })
    .map(drop)
}

#[cfg(test)]
mod tests {
    use bareverbs_command_line::parse_line;

    use super::{Action, ModelPort, arguments};

    #[test]
    fn one_thing_is_done_at_a_time() {
        arguments().check_invariants(true);
        let resources = |lines| Action::Resources {
            _resources: (),
            lines,
        };
        let actions = [
            ("--bind", Action::Bind),
            ("--resources", resources(false)),
            ("--unbind", Action::Unbind),
            ("--json", Action::Json),
            ("--selftest", Action::Selftest),
            ("--conformance", Action::Conformance),
        ];
        let action = |line: &str| parse_line(&arguments(), line).map(|found| found.action);
        assert_eq!(action("--dry-run"), Ok(Action::Show));
        assert_eq!(action("--resources --lines"), Ok(resources(true)));
        for (option, alone) in &actions {
            assert_eq!(action(option), Ok(alone.clone()));
            for (other, _) in &actions {
                let line = format!("{option} {other}");
                match action(&line) {
                    Ok(same) => assert_eq!((&same, other), (alone, option)),
                    Err(_) => assert_ne!(other, option),
                }
            }
        }
    }

    #[test]
    fn there_is_one_device_and_its_port_is_of_one_kind() {
        let port = |line: &str| parse_line(&arguments(), line).map(|found| found.model.port());
        assert_eq!(port(""), Ok(ModelPort::Ethernet));
        assert_eq!(port("--model-port infiniband"), Ok(ModelPort::Infiniband));
        for line in [
            "--model-port eth",
            "--device model,model",
            "--device=",
            "--card connectx-3",
        ] {
            port(line).expect_err(line);
        }
    }
}
