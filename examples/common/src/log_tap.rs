//! The logger of all programs: `env_logger`, beside which a thread can record messages.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Once;

use log::{LevelFilter, Log, Metadata, Record, SetLoggerError};

thread_local! {
    static RECORDER: RefCell<Option<Rc<Recorder>>> = const { RefCell::new(None) };
}

/// The messages that are recorded, and the function that takes them.
struct Recorder {
    wanted: fn(&Metadata<'_>) -> bool,
    take: Box<dyn Fn(&Record<'_>)>,
}

fn recorder() -> Option<Rc<Recorder>> {
    RECORDER.with(|recorder| recorder.try_borrow().ok()?.clone())
}

struct Tap(env_logger::Logger);

impl Log for Tap {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.enabled(metadata) || recorder().is_some_and(|it| (it.wanted)(metadata))
    }

    fn log(&self, record: &Record<'_>) {
        if self.0.matches(record) {
            self.0.log(record);
        }
        if let Some(recorder) = recorder().filter(|it| (it.wanted)(record.metadata())) {
            (recorder.take)(record);
        }
    }

    fn flush(&self) {
        self.0.flush();
    }
}

/// Makes this the logger of the process.
///
/// # Errors
///
/// The process has a logger already.
pub fn install(logger: env_logger::Logger) -> Result<(), SetLoggerError> {
    let level = logger.filter();
    log::set_boxed_logger(Box::new(Tap(logger)))?;
    log::set_max_level(level);
    Ok(())
}

/// Gives `take` each message that this thread logs while `work` runs and that is `wanted`, whatever else is logged.
pub fn record<T>(
    wanted: fn(&Metadata<'_>) -> bool,
    take: impl Fn(&Record<'_>) + 'static,
    work: impl FnOnce() -> T,
) -> T {
    // The programs' main function has installed it; tests have none.
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let _ = install(env_logger::Builder::from_default_env().build());
    });
    struct Restore(Option<Rc<Recorder>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            RECORDER.with(|recorder| recorder.replace(self.0.take()));
        }
    }
    let take = Box::new(take);
    let recorder = Rc::new(Recorder { wanted, take });
    let _restore = Restore(RECORDER.with(|it| it.replace(Some(recorder))));
    // `enabled` refuses the messages that neither wants.
    log::set_max_level(LevelFilter::Trace);
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_records_its_own_messages() {
        let heard = Rc::new(RefCell::new(Vec::new()));
        let hears = heard.clone();
        let wanted = |it: &Metadata<'_>| it.target() == "wanted";
        let take = move |it: &Record<'_>| hears.borrow_mut().push(it.args().to_string());
        record(wanted, take, || {
            log::trace!(target: "wanted", "one");
            log::trace!(target: "unwanted", "two");
            let other = std::thread::spawn(|| log::trace!(target: "wanted", "three"));
            other.join().unwrap();
        });
        log::trace!(target: "wanted", "four");
        assert_eq!(*heard.borrow(), ["one"]);
    }
}
