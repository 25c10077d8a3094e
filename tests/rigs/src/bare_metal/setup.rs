//! The set-up of scenarios: QEMU, the model's server, the images, and our programs on Linux.

use super::super::stock_driver::{self, Provisions};
use super::super::vfio::programs;
use super::image::{self, Machine};
use super::program::Program;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) struct Setup {
    provisions: Provisions,
    /// Where this repository's programs are.
    pub(super) ours: PathBuf,
    /// Where logs go.
    pub(super) logs: PathBuf,
    /// No other rig boots machines meanwhile.
    _lock: File,
}

/// The program that is the unikernel.
pub(super) const UNIKERNEL: &str = "bare-metal";

/// The repository.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where logs go.
pub(super) fn logs() -> PathBuf {
    root().join("target/rigs/bare-metal/log")
}

impl Setup {
    pub(super) fn new() -> Result<Self, String> {
        let (provisions, lock) = stock_driver::prepare()?;
        provisions.fetch_aarch64()?;
        image::build(&Machine::ALL)?;
        let ours = programs::examples(&root(), &["rping"])?;
        Ok(Self {
            provisions,
            ours,
            logs: logs(),
            _lock: lock,
        })
    }

    /// Boots the unikernel with a function of the model and a command line.
    pub(super) fn boot(
        &self,
        machine: Machine,
        logs: &Path,
        name: &str,
        socket: &Path,
        words: &str,
    ) -> Result<Program, String> {
        self.boot_program(machine, UNIKERNEL, logs, name, socket, words)
    }

    /// Boots another program of the unikernel's package.
    pub(super) fn boot_program(
        &self,
        machine: Machine,
        program: &str,
        logs: &Path,
        name: &str,
        socket: &Path,
        words: &str,
    ) -> Result<Program, String> {
        let mut command = qemu(machine, program, &self.provisions, socket, words)?;
        Program::start(&mut command, logs, name)
    }
}

/// QEMU's command line for a machine with one card and nothing that is not needed.
pub(super) fn qemu(
    machine: Machine,
    program: &str,
    provisions: &Provisions,
    socket: &Path,
    words: &str,
) -> Result<Command, String> {
    let memory = "memory-backend-memfd,id=memory,size=256M,share=on";
    let mut command = match machine {
        Machine::X86 => {
            let mut command = provisions.qemu();
            command
                .args(["-M", "q35", "-cpu", "Nehalem"])
                .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
            command
        }
        Machine::Arm => {
            let mut command = provisions.qemu_aarch64();
            command
                .args(["-M", "virt", "-cpu", "cortex-a72"])
                .args(["-semihosting-config", "enable=on,target=native"]);
            command
        }
    };
    command
        .args(["-accel", "tcg", "-m", "256", "-object", memory])
        .args(["-numa", "node,memdev=memory"])
        .args(["-nodefaults", "-no-reboot", "-display", "none"])
        .args(["-serial", "stdio"])
        .args(["-device", "pcie-root-port,id=port0,chassis=0,slot=0"]);
    let card = format!(
        r#"{{"driver":"vfio-user-pci","id":"card0","bus":"port0","socket":{{"type":"unix","path":"{}"}}}}"#,
        socket.display()
    );
    command.arg("-device").arg(card);
    let image = image::path(machine)?.with_file_name(program);
    command.arg("-kernel").arg(image);
    command.args(["-append", words]);
    Ok(command)
}
