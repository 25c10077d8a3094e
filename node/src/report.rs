//! The flight recorder of a device, and the file to which its records are written when the device has failed.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bareverbs_core::{FlightRecorder, Record};

/// The environment variable with the folder for reports of failed devices; if it is empty, none are written. The default is the
/// folder for temporary files.
pub const REPORTS_VARIABLE: &str = "BAREVERBS_REPORTS";

/// The number of records that are kept: they have room for bring-up with its answers, and some hundred more.
const RECORDS: usize = 512;
/// The most reports of one process: a program that opens a failing device again and again must not fill the disk.
const MOST: u32 = 16;

/// A flight recorder on the heap. If the device that was opened last has failed, or has not answered a command, dropping the
/// recorder writes its records to a file, whose name is logged.
#[derive(Debug)]
pub(crate) struct ReportingRecorder(Box<FlightRecorder<[Record; RECORDS]>>);

impl ReportingRecorder {
    /// A recorder without records.
    pub(crate) fn new() -> Self {
        Self(Box::default())
    }

    /// The recorder for [`Storage::record`](bareverbs_core::Storage::record).
    pub(crate) fn recorder(&self) -> &FlightRecorder {
        &*self.0
    }
}

impl Drop for ReportingRecorder {
    fn drop(&mut self) {
        write_report(self.recorder());
    }
}

/// Writes the records of a flight recorder to a file of their own, if the device that was opened last has failed or
/// has not answered a command. The file's name is logged, as an error, and returned.
///
/// The folder is that of [`REPORTS_VARIABLE`].
pub fn write_report(recorder: &FlightRecorder) -> Option<PathBuf> {
    if !recorder.has_failure() {
        return None;
    }
    let folder = match std::env::var_os(REPORTS_VARIABLE) {
        None => std::env::temp_dir(),
        Some(none) if none.is_empty() => return None,
        Some(folder) => folder.into(),
    };
    match write_in(&folder, recorder) {
        Ok(path) => {
            log::error!("what led to the device's failure is in {}", path.display());
            Some(path)
        }
        Err(error) => {
            log::error!(
                "what led to the device's failure was not written to {}: {error}",
                folder.display()
            );
            None
        }
    }
}

/// A new file for each report: others' files are not touched, whatever their names are.
fn write_in(folder: &Path, recorder: &FlightRecorder) -> io::Result<PathBuf> {
    let process = std::process::id();
    for number in 1..=MOST {
        let path = folder.join(format!("bareverbs-report-{process}-{number}.txt"));
        let mut file = match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            file => file?,
        };
        write!(file, "{recorder}")?;
        return Ok(path);
    }
    Err(io::Error::other("this process has written enough of them"))
}

#[cfg(all(test, feature = "model"))]
mod tests {
    use super::*;
    use crate::{DeviceStorage, PageChunks};
    use bareverbs_core::firmware_cmds::domain::AllocPdIn;
    use bareverbs_core::{Config, Device, DeviceError};
    use bareverbs_in_process::Builder;

    /// The reports of this process in the usual folder.
    fn reports() -> Vec<PathBuf> {
        let prefix = format!("bareverbs-report-{}-", std::process::id());
        let entries = std::env::temp_dir().read_dir().expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths
            .filter(|path| {
                let name = path.file_name().and_then(|name| name.to_str());
                name.is_some_and(|name| name.starts_with(&prefix))
            })
            .collect()
    }

    #[test]
    fn a_device_that_failed_leaves_a_file() {
        assert_eq!(reports(), Vec::<PathBuf>::new());
        let world = Builder::new()
            .function(connectx_model::Config::new(1))
            .stepped();
        for fails in [false, true] {
            let chunks = PageChunks::new(256).allocate();
            let mut memory = DeviceStorage::for_connections(1, chunks);
            let storage = memory.storage();
            let device = Device::open(world.platform(0), Config::DEFAULT, storage).expect("open");
            if fails {
                world.with_model(0, |model| model.vanish());
                assert!(device.execute(&AllocPdIn::new()).is_err());
                assert_eq!(device.poll(), Err(DeviceError::Gone));
            }
            drop(device);
            drop(memory);
        }
        let reports = reports();
        let [path] = &reports[..] else {
            panic!("{reports:?}");
        };
        let text = std::fs::read_to_string(path).expect("the report");
        std::fs::remove_file(path).expect("removed");
        let first = text.lines().next().unwrap_or_default();
        assert!(
            first.contains("ALLOC_PD(0x800)") && first.ends_with("under way"),
            "{text}"
        );
        assert!(text.contains("failed: the device is gone"), "{text}");
        assert!(text.contains("] ENABLE_HCA(0x104) op_mod 0x0"), "{text}");
    }
}
