//! A report: everything that a card shows of itself, in one file, for bug reports and for making a model of the card.
//!
//! It is collected part by part. A part that fails says why, and the others go on as far as they can; when the process is
//! interrupted, the file is written with what is there.

mod archive;
mod collection;
mod dumps;
mod firmware;
mod hide;
mod host;
mod identities;
mod latency;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::SystemTime;

use bareverbs::verbs::firmware_cmds::dump::LOG_TARGET;
use bareverbs::verbs::firmware_cmds::init_segment::{CMDIF_REV_FW_SUB, FW_REV, FirmwareVersion};
use bareverbs::verbs::{
    Config, Device, DeviceSlot, FlightRecorder, PageChunk, Platform, Record, Storage,
};
use bareverbs_examples::log_tap;
use bareverbs_vfio::PciAddress;
use log::{Level, Metadata};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::chunks::with_page_chunks;
use super::{conformance, selftest};
use bareverbs_examples::Result;
use collection::Collection;
use hide::Identifiers;
pub(crate) use host::vfio;

/// A platform that another thread may look at when the one that uses it waits for the device.
pub(crate) trait Shared: Platform + Clone + Send + Sync + 'static {}

impl<P: Platform + Clone + Send + Sync + 'static> Shared for P {}

/// The function of which a report is made.
pub(crate) struct Function<O> {
    /// The name, in the words of `--device`.
    pub(crate) name: String,
    /// The address, if it is a PCI function of this machine.
    pub(crate) address: Option<PciAddress>,
    /// Opens it with this number of interrupt vectors.
    pub(crate) open: O,
}

/// A function that was opened.
pub(crate) struct Opened<P> {
    pub(crate) platform: P,
    /// The text of `vfio.txt`.
    pub(crate) text: String,
    /// MSI-X vectors of the function, if known.
    pub(crate) vectors: Option<u32>,
}

/// A report and the identifiers in it.
pub(crate) struct Report {
    pub(crate) collection: Collection,
    identifiers: Mutex<Identifiers>,
    recorder: FlightRecorder<[Record; RECORDS]>,
    /// Reads the health buffer of a function that may not answer.
    look: Mutex<Option<Look>>,
}

type Look = Arc<dyn Fn(&Collection) -> Result<()> + Send + Sync>;

/// Records of the flight recorder.
const RECORDS: usize = 256;

impl Report {
    pub(crate) fn new(progress: bool) -> Self {
        Self {
            collection: Collection::new(progress),
            identifiers: Mutex::default(),
            recorder: FlightRecorder::new(),
            look: Mutex::default(),
        }
    }

    fn identify(&self, work: impl FnOnce(&mut Identifiers)) {
        let identifiers = self.identifiers.lock();
        work(&mut identifiers.unwrap_or_else(PoisonError::into_inner));
    }

    fn look(&self, look: Option<Look>) {
        *self.look.lock().unwrap_or_else(PoisonError::into_inner) = look;
    }

    /// Reads the health buffer of a function whose report was interrupted.
    pub(crate) fn interrupted(&self) {
        let look = self.look.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(look) = look.as_ref() {
            let found = look(&self.collection);
            self.collection.finish("health-after", found);
        }
    }

    /// The files as they are now, with identifiers replaced unless they are to stay, and the number of parts that failed.
    pub(crate) fn files(&self, identify: bool, why: Option<&str>) -> (Vec<(&str, String)>, usize) {
        self.identify(|known| identities::find(&self.collection.text("commands.txt"), known));
        let (mut files, failed) = self.collection.files(why);
        let recorder: &FlightRecorder = &self.recorder;
        let recorded = ("recorder.txt", recorder.to_string());
        files.insert(files.len().saturating_sub(1), recorded);
        let summary = latency::counted(&self.collection.text("commands.txt"));
        for (name, text) in &mut files {
            if *name == "about.txt" {
                let replaced = if identify { "no" } else { "yes" };
                text.push_str(&format!("identifiers replaced: {replaced}\n{summary}"));
            }
            if !identify {
                self.identify(|known| *text = known.hide(text));
            }
        }
        (files, failed)
    }
}

/// Selects the messages of a thread's log that belong to the report.
fn is_wanted(metadata: &Metadata<'_>) -> bool {
    let ours = metadata.target().starts_with("bareverbs");
    metadata.target() == LOG_TARGET
        || metadata.level() <= if ours { Level::Debug } else { Level::Warn }
}

/// The end of a report: it is complete, or a signal has come.
enum End {
    Done,
    Signal(i32),
}

/// Collects everything and writes it to the file. An interrupt ends the process.
pub(crate) fn run<P: Shared, O: Fn(u16) -> Result<Opened<P>> + Sync>(
    function: &Function<O>,
    path: &Path,
    identify: bool,
) -> Result<()> {
    let shown = path.display();
    // The file is created before the card is touched.
    let file = File::create(path).map_err(|error| format!("{shown}: {error}"))?;
    let report = Arc::new(Report::new(true));
    let (ended, end) = mpsc::channel();
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let signalled = ended.clone();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if signalled.send(End::Signal(signal)).is_err() {
                break;
            }
        }
    });
    let write = |why: Option<&str>| -> Result<()> {
        let (files, failed) = report.files(identify, why);
        archive::write(&files, &file).map_err(|error| format!("{shown}: {error}"))?;
        println!("{shown}: {} files, {failed} parts failed", files.len());
        Ok(())
    };
    std::thread::scope(|scope| {
        let collected = report.clone();
        let worker = scope.spawn(move || {
            collect(function, &collected);
            // The receiver is gone only if the process ends.
            let _ = ended.send(End::Done);
        });
        loop {
            match end.recv_timeout(std::time::Duration::from_millis(200)) {
                Ok(End::Signal(signal)) => {
                    let name = if signal == SIGINT {
                        "SIGINT"
                    } else {
                        "SIGTERM"
                    };
                    report.interrupted();
                    if let Err(error) = write(Some(&format!("interrupted by {name}"))) {
                        eprintln!("devinfo: {error}");
                    }
                    // The kernel gives the function back.
                    std::process::exit(128 + signal);
                }
                Ok(End::Done) => return write(None),
                Err(_) if worker.is_finished() => return write(Some("the program panicked")),
                Err(_) => {}
            }
        }
    })
}

/// Collects all parts, in this thread.
pub(crate) fn collect<P: Shared, O: Fn(u16) -> Result<Opened<P>>>(
    function: &Function<O>,
    report: &Arc<Report>,
) {
    let log = report.clone();
    let take = move |record: &log::Record<'_>| {
        let (level, target, text) = (record.level(), record.target(), record.args());
        match target {
            LOG_TARGET => {
                let text = text.to_string();
                log.collection.append_stamped("commands.txt", &text);
            }
            _ => {
                let text = format!("{level} {target}: {text}");
                log.collection.append_stamped("log.txt", &text);
            }
        }
    };
    log_tap::record(is_wanted, take, || parts(function, report));
}

/// Vectors that are asked for: the tests use two.
const VECTORS: u16 = 2;

fn parts<P: Shared, O: Fn(u16) -> Result<Opened<P>>>(function: &Function<O>, report: &Report) {
    let collection = &report.collection;
    collection.part("about", || {
        let now = humantime::format_rfc3339_seconds(SystemTime::now());
        let version = env!("CARGO_PKG_VERSION");
        let name = &function.name;
        let text = format!("bareverbs version: {version}\ndate: {now}\ndevice: {name}\n");
        collection.append("about.txt", &text);
        collection.append("about.txt", &host::kernel());
        Ok(())
    });
    match function.address {
        Some(address) => {
            collection.part("pci", || {
                let pci = host::pci(address)?;
                report.identify(|known| pci.identify(known));
                collection.append("pci.txt", &pci.text);
                Ok(())
            });
            collection.part("iommu", || {
                collection.append("iommu.txt", &host::iommu(address)?);
                Ok(())
            });
        }
        None => {
            for part in ["pci", "iommu"] {
                collection.leave_out(part, "the model is no PCI function of this machine");
            }
        }
    }
    let opened = collection.part("vfio", || {
        let opened = (function.open)(VECTORS)?;
        let platform = &opened.platform;
        let mut about = String::new();
        if let Some(device) = platform.device_id() {
            about.push_str(&format!("pci ids: 15b3:{device:04x}\n"));
        }
        about.push_str(&format!("bar size: {:#x}\n", platform.bar_len()));
        if let Some(vectors) = opened.vectors {
            about.push_str(&format!("msix vectors: {vectors}\n"));
        }
        let revision = platform.read_be32(CMDIF_REV_FW_SUB);
        let firmware = FirmwareVersion::from_registers(platform.read_be32(FW_REV), revision);
        about.push_str(&format!("firmware version: {firmware}\n"));
        collection.append("about.txt", &about);
        collection.append("vfio.txt", &opened.text);
        Ok(opened)
    });
    let brought_up = match opened {
        Some(opened) => on_card(opened.platform, report),
        None => {
            let after = collection::PARTS.iter().skip_while(|part| **part != "vfio");
            for part in after.skip(1) {
                collection.leave_out(part, "the function was not opened");
            }
            return;
        }
    };
    if brought_up {
        collection.part("conformance", || {
            let print = |line: &str| collection.append("conformance.txt", line);
            conformance::run(&print, |vectors| {
                conformance::judge(&(function.open)(vectors)?.platform)
            })
            .map(drop)
        });
    } else {
        // The test would wait twice as long as bring-up did.
        collection.leave_out("conformance", "bring-up failed");
    }
    collection.part("latency", || {
        let text = latency::table(&collection.text("commands.txt"));
        collection.append("latency.txt", &text);
        Ok(())
    });
}

/// The parts for which the function was opened. Returns whether it came up.
fn on_card<P: Shared>(platform: P, report: &Report) -> bool {
    let collection = &report.collection;
    collection.part("init-segment", || {
        firmware::init_segment(&platform, collection)
    });
    collection.part("health-before", || {
        firmware::health(&platform, "before", collection)
    });
    let function = platform.clone();
    let health = move |collection: &Collection| firmware::health(&function, "after", collection);
    report.look(Some(Arc::new(health)));
    collection.begin("bring-up");
    let brought_up = with_page_chunks(|chunks| brought_up(&platform, report, chunks));
    let is_up = brought_up.is_ok();
    if is_up {
        collection.part("selftest", || {
            let print = |line: &str| collection.append("selftest.txt", line);
            selftest::run(&print, || Ok(&platform))?;
            Ok(())
        });
    } else {
        collection.finish("bring-up", brought_up);
        let parts = collection::PARTS.iter();
        let parts = parts.skip_while(|part| **part != "capabilities");
        for part in parts.take_while(|part| **part != "health-after") {
            collection.leave_out(part, "bring-up failed");
        }
    }
    report.look(None);
    collection.part("health-after", || {
        firmware::health(&platform, "after", collection)
    });
    is_up
}

/// The parts between bring-up and teardown. It fails only if bring-up does.
fn brought_up<P: Platform>(
    platform: &P,
    report: &Report,
    mut chunks: Vec<PageChunk>,
) -> Result<()> {
    let collection = &report.collection;
    let mut slot = DeviceSlot::new();
    let storage = Storage::new(&mut slot, &mut [], &mut [], &mut [], &mut chunks);
    let storage = storage.record(&report.recorder);
    let device = Device::open(platform, Config::DEFAULT, storage)?;
    collection.finish("bring-up", Ok(()));
    collection.part("capabilities", || {
        firmware::capabilities(&device, collection)
    });
    collection.part("contexts", || firmware::contexts(&device, collection));
    collection.part("port", || firmware::port(&device, collection));
    collection.part("registers", || {
        firmware::access_registers(&device, collection)
    });
    collection.part("module", || {
        let identify = |serial: &[u8]| report.identify(|known| known.serial(serial));
        firmware::module(&device, collection, identify)
    });
    collection.part("temperature", || firmware::temperature(&device, collection));
    collection.part("close", || Ok(device.close()?));
    Ok(())
}
