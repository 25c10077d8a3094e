//! The cost of each part of the library: the image with one after the other, what it occupies, and what it uses of the
//! stack.

use super::image::{self, Machine};
use super::scenarios::{GOOD, LIMIT, Scene};

/// A part that is built, and its limits in KiB: a little more than it has.
struct Part {
    name: &'static str,
    /// Features of `tests/bare-metal`.
    features: &'static str,
    text: u64,
    rodata: u64,
    /// `.data` and `.bss`: what is there for as long as the machine runs.
    fixed: u64,
    stack: u64,
}

/// The machine whose code is measured: that of the others changes with it.
const MACHINE: Machine = Machine::X86;

const PARTS: [Part; 4] = [
    Part {
        name: "driver",
        features: "",
        text: 92,
        rodata: 23,
        fixed: 98,
        stack: 29,
    },
    Part {
        name: "driver and CM",
        features: "cm",
        text: 292,
        rodata: 62,
        fixed: 108,
        stack: 54,
    },
    Part {
        name: "driver, CM and rping",
        features: "rping",
        text: 312,
        rodata: 64,
        fixed: 108,
        stack: 54,
    },
    Part {
        name: "these with datagrams, InfiniBand and XRC",
        features: "rping,datagrams,infiniband,xrc",
        text: 352,
        rodata: 68,
        fixed: 108,
        stack: 54,
    },
];

/// The server with async/await.
const TASKS: Part = Part {
    name: "driver, CM and rping with tasks",
    features: "tasks",
    text: 332,
    rodata: 66,
    fixed: 109,
    stack: 70,
};

/// Builds and boots all of them. What is built afterwards is the usual image again.
pub(super) fn all(scene: &mut Scene<'_>) -> Result<(), String> {
    let done = PARTS
        .iter()
        .try_for_each(|part| one(scene, part, |scene| run(scene, part)));
    image::build(&[MACHINE])?;
    done?;
    let errors = image::refuses_alloc(MACHINE, scene.outcome)?;
    scene.say(&format!("  a program that names alloc: {errors:?}"));
    Ok(())
}

/// The image with tasks, at this work; otherwise as [`all`].
pub(super) fn tasks(
    scene: &mut Scene<'_>,
    work: fn(&mut Scene<'_>) -> Result<u64, String>,
) -> Result<(), String> {
    // Each task's state is on it.
    scene.stack = TASKS.stack << 10;
    let done = one(scene, &TASKS, work);
    image::build(&[MACHINE])?;
    done
}

/// Builds an image and judges its sizes. `run` boots it: the most of the stack that was used.
fn one(
    scene: &mut Scene<'_>,
    part: &Part,
    run: impl FnOnce(&mut Scene<'_>) -> Result<u64, String>,
) -> Result<(), String> {
    image::build_with(MACHINE, part.features)?;
    let sections = [".text", ".rodata", ".data", ".bss"];
    let [text, rodata, data, bss] = image::sizes(MACHINE, sections)?;
    scene.say(&format!("  {}", part.name));
    let stack = run(scene)?;
    for (what, bytes, budget) in [
        ("code", text, part.text),
        ("constants", rodata, part.rodata),
        ("static memory", data + bss, part.fixed),
        ("stack", stack, part.stack),
    ] {
        scene.say(&format!(
            "    {what:<13} {bytes:>7} bytes of {:>7}",
            budget << 10
        ));
        scene.outcome.check(bytes <= budget << 10, || {
            let name = part.name;
            format!("{name}: {what} has {bytes} bytes, and {budget} KiB are its budget")
        });
    }
    Ok(())
}

/// Boots the image: the driver alone, or with a second one at the other end of the cable. What was used of the stack at most.
fn run(scene: &mut Scene<'_>, part: &Part) -> Result<u64, String> {
    let model = scene.model(2, &[])?;
    let mut server = scene.boot(&model, 0, "server address=10.0.0.1 interrupts")?;
    let mut most = 0;
    if part.features.is_empty() {
        let driver = scene.check(part.name, server, GOOD)?;
        scene.expect(part.name, &driver, "the port is active");
        scene.expect(part.name, &driver, "done");
        most = most.max(driver.stack());
    } else {
        server.until("listening on", LIMIT)?;
        let words = "client=10.0.0.1 address=10.0.0.2 count=10 interrupts";
        let client = scene.boot(&model, 1, words)?;
        for (who, program) in [("client", client), ("server", server)] {
            let ended = scene.check(who, program, GOOD)?;
            scene.expect(who, &ended, "done");
            most = most.max(ended.stack());
        }
    }
    model.end(scene, &[])?;
    Ok(most)
}
