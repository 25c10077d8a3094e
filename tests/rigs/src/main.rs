//! `cargo rig NAME`: checks against software that this project did not write. `cargo rig` alone lists them.
//!
//! A rig prints what it does and ends in a line `N passed, N failed`; its exit status says whether anything failed.

mod apt;
mod bare_metal;
mod c_abi;
mod cards;
mod cargo_test;
mod circles;
mod drivers;
mod folder;
mod infiniband;
mod interop;
mod layouts;
mod loom;
mod outcome;
mod peers;
mod perftest;
mod process;
mod readme;
mod rust_src;
mod sanitizers;
mod stock_driver;
mod twin;
mod vfio;
mod wireshark;
#[cfg(test)]
mod words;

use outcome::Outcome;
use std::process::ExitCode;

struct Rig {
    name: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<Outcome, String>,
}

const RIGS: &[Rig] = &[
    Rig {
        name: "bare-metal",
        about: bare_metal::ABOUT,
        run: bare_metal::run,
    },
    Rig {
        name: "c-abi",
        about: c_abi::ABOUT,
        run: c_abi::run,
    },
    Rig {
        name: "cards",
        about: cards::ABOUT,
        run: cards::run,
    },
    Rig {
        name: "circles",
        about: circles::ABOUT,
        run: circles::run,
    },
    Rig {
        name: "drivers",
        about: drivers::ABOUT,
        run: drivers::run,
    },
    Rig {
        name: "infiniband",
        about: infiniband::ABOUT,
        run: infiniband::run,
    },
    Rig {
        name: "interop",
        about: interop::ABOUT,
        run: interop::run,
    },
    Rig {
        name: "kernel",
        about: stock_driver::kernel::ABOUT,
        run: stock_driver::kernel::run_rig,
    },
    Rig {
        name: "layouts",
        about: layouts::ABOUT,
        run: layouts::run,
    },
    Rig {
        name: "loom",
        about: loom::ABOUT,
        run: loom::run,
    },
    Rig {
        name: "peers",
        about: peers::ABOUT,
        run: peers::run,
    },
    Rig {
        name: "perftest",
        about: perftest::ABOUT,
        run: perftest::run,
    },
    Rig {
        name: "porting",
        about: bare_metal::porting::ABOUT,
        run: bare_metal::porting::run,
    },
    Rig {
        name: "rust-src",
        about: rust_src::ABOUT,
        run: rust_src::run,
    },
    Rig {
        name: "readme",
        about: readme::ABOUT,
        run: readme::run,
    },
    Rig {
        name: "sanitizers",
        about: sanitizers::ABOUT,
        run: sanitizers::run,
    },
    Rig {
        name: "stock-driver",
        about: stock_driver::ABOUT,
        run: stock_driver::run,
    },
    Rig {
        name: "twin",
        about: twin::ABOUT,
        run: twin::run,
    },
    Rig {
        name: "vfio",
        about: vfio::ABOUT,
        run: vfio::run,
    },
    Rig {
        name: "wireshark",
        about: wireshark::ABOUT,
        run: wireshark::run,
    },
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(name) = arguments.next() else {
        for rig in RIGS {
            println!("cargo rig {:<14} {}", rig.name, rig.about);
        }
        return ExitCode::SUCCESS;
    };
    let Some(rig) = RIGS.iter().find(|rig| rig.name == name) else {
        eprintln!("no rig {name:?}; `cargo rig` lists them");
        return ExitCode::from(2);
    };
    let arguments: Vec<String> = arguments.collect();
    match (rig.run)(&arguments) {
        Ok(Outcome { passed, failed }) => {
            println!("{passed} passed, {failed} failed");
            ExitCode::from(u8::from(failed != 0))
        }
        Err(why) => {
            println!("{name}: {why}");
            println!("0 passed, 1 failed");
            ExitCode::FAILURE
        }
    }
}
