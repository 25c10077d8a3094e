//! What scenarios need: QEMU, the model's server, the image, and our programs on Linux.

use super::super::stock_driver::{self, Provisions};
use super::super::vfio::programs;
use super::image;
use super::program::Program;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) struct Setup {
    provisions: Provisions,
    pub(super) image: PathBuf,
    /// Where this repository's programs are.
    pub(super) ours: PathBuf,
    /// Where logs go.
    pub(super) logs: PathBuf,
    /// No other rig boots machines meanwhile.
    _lock: File,
}

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
        let image = image::build()?;
        let ours = programs::examples(&root(), &["rping"])?;
        Ok(Self {
            provisions,
            image,
            ours,
            logs: logs(),
            _lock: lock,
        })
    }

    /// Boots the unikernel with a function of the model and a command line.
    pub(super) fn boot(
        &self,
        logs: &Path,
        name: &str,
        socket: &Path,
        words: &str,
    ) -> Result<Program, String> {
        let mut command = machine(&self.provisions, &self.image, socket, words);
        Program::start(&mut command, logs, name)
    }
}

/// QEMU's command line for a machine with one card and nothing that is not needed.
pub(super) fn machine(
    provisions: &Provisions,
    image: &Path,
    socket: &Path,
    words: &str,
) -> Command {
    let mut command = provisions.qemu();
    let memory = "memory-backend-memfd,id=memory,size=256M,share=on";
    command
        .args(["-M", "q35", "-accel", "tcg", "-cpu", "Nehalem"])
        .args([
            "-m",
            "256",
            "-object",
            memory,
            "-numa",
            "node,memdev=memory",
        ])
        .args(["-nodefaults", "-no-reboot", "-display", "none"])
        .args(["-serial", "stdio"])
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"])
        .args(["-device", "pcie-root-port,id=port0,chassis=0,slot=0"]);
    let card = format!(
        r#"{{"driver":"vfio-user-pci","id":"card0","bus":"port0","socket":{{"type":"unix","path":"{}"}}}}"#,
        socket.display()
    );
    command.arg("-device").arg(card);
    command.arg("-kernel").arg(image).args(["-append", words]);
    command
}
