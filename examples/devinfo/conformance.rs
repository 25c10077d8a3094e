//! Holds the platform under the driver against its duties: on a card, VFIO; without one, the model's.

use bareverbs::verbs::conformance::{self, MEMORY_LEN, Options, Report};
use bareverbs::verbs::{Platform, Resources};

use super::Result;

/// Has a platform judged twice: without interrupts, and with so many vectors as `judge` is told.
pub(crate) fn run(judge: impl Fn(u16) -> Result<Report>) -> Result<()> {
    for (how, vectors) in [("polled", 0), ("interrupts", 2)] {
        match judge(vectors) {
            Ok(report) => println!("PASS  {how:<12}{report}"),
            Err(error) => {
                println!("FAIL  {how:<12}{error}");
                return Err("the platform does not keep to its duties".into());
            }
        }
    }
    Ok(())
}

/// What the test says of a platform.
pub(crate) fn judge<P: Platform>(platform: &P) -> Result<Report> {
    let mut resources = Box::new(Resources::<2, 2, 0, 64>::new());
    // After a failure the device may still use it.
    let memory = vec![0; MEMORY_LEN].leak().try_into()?;
    let report = conformance::run(platform, memory, resources.storage(), Options::DEFAULT)?;
    Ok(report)
}
