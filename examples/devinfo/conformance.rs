//! Holds the platform under the driver against its requirements: on a card, VFIO; without one, the model's.

use bareverbs::verbs::conformance::{self, ConformanceError, MEMORY_LEN, Options, Report};
use bareverbs::verbs::{CqSlot, DeviceSlot, Platform, QpSlot, Storage};
use bareverbs_examples::Result;

use super::chunks::with_page_chunks;
use super::selftest::{Print, Skipped};

/// The card's lack, for which a part of the test is skipped.
const NO_LOOPBACK: &str = "the card has no force loopback (fl_rc_qp_when_roce_enabled, _disabled), without which it cannot \
                           be asked what it sees; what the host sees and bring-up passed";

/// Has a platform judged twice: without interrupts, and with as many vectors as `judge` gets. Returns what the card does not
/// allow, if the platform did not fail.
pub(crate) fn run(print: Print<'_>, judge: impl Fn(u16) -> Result<Report>) -> Result<Vec<Skipped>> {
    let mut skipped = Vec::new();
    for (how, vectors) in [("polled", 0), ("interrupts", 2)] {
        match judge(vectors) {
            Ok(report) => print(&format!("PASS  {how:<12}{report}\n")),
            Err(error) if lacks_loopback(&*error) => {
                skipped.push(Skipped::new(print, how, NO_LOOPBACK));
            }
            Err(error) => {
                print(&format!("FAIL  {how:<12}{error}\n"));
                return Err("the platform does not keep to its requirements".into());
            }
        }
    }
    if !skipped.is_empty() {
        print(&format!("{} of 2 were skipped\n", skipped.len()));
    }
    Ok(skipped)
}

/// Tells a card without force loopback from a platform that fails.
fn lacks_loopback(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref();
    matches!(error, Some(ConformanceError::NoLoopback))
}

/// Runs the test on a platform, and reports its result.
pub(crate) fn judge<P: Platform>(platform: &P) -> Result<Report> {
    with_page_chunks(|mut chunks| {
        let mut slot = DeviceSlot::new();
        let mut qps = [const { QpSlot::new() }; 2];
        let mut cqs = [const { CqSlot::new() }; 2];
        let storage = Storage::new(&mut slot, &mut qps, &mut cqs, &mut [], &mut chunks);
        // After a failure the device may still use it.
        let memory = vec![0; MEMORY_LEN].leak().try_into()?;
        conformance::run(platform, memory, storage, Options::DEFAULT).map_err(|error| match error {
            ConformanceError::Open(error) if error.page_chunks().is_some() => error.into(),
            error => error.into(),
        })
    })
}
