//! The thread that has the device: it answers calls, and between them lets the device run, looks at doorbell records, and
//! hands events out.

// UNSAFETY: signals, and pointers of callers that wait.
#![expect(unsafe_code)]

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use bareverbs_in_process::survive_gone_memory;
use bareverbs_node::verbs::{Device, Platform};
use bareverbs_node::{DeviceName, DevicePlatform as P, Error, Node, Options, UNIT_VARIABLE};
use libc::{c_int, c_void};

use crate::abi::{CORE_OUT, INVOKE_WRITE, OBJECT_DEVICE, WRITE_CMD, command};
use crate::attrs::Args;
use crate::cancel::Off;
use crate::clock::ClockPage;
use crate::cm::{Manager, Written};
use crate::events::EventQueue;
use crate::server::Server;
use crate::srq::Domains;
use crate::{dm, doorbells, netdev, trap};

/// Connections of the connection manager's at once.
const CONNECTIONS: usize = 1024;

/// A pointer of a caller that waits for the answer.
struct Argument(*mut c_void);

// SAFETY: the memory is the caller's, who waits.
unsafe impl Send for Argument {}

enum Work {
    Call(c_int, Argument),
    /// A command of the connection manager's, of this length.
    Written(c_int, Argument, usize),
    OpenedCm(c_int),
    ClosedCm(c_int),
    Closed(c_int),
    Duplicated(c_int, c_int),
}

struct Job {
    work: Work,
    done: SyncSender<c_int>,
}

/// The way to the thread.
struct Handle {
    jobs: Mutex<Sender<Job>>,
    platform: P,
    /// A child of this process has no such thread.
    process: u32,
}

thread_local! {
    /// The calling thread is the one that has the device.
    static IS_SERVER: Cell<bool> = const { Cell::new(false) };
}

static HANDLE: OnceLock<Option<Handle>> = OnceLock::new();

/// Answers `ioctl(RDMA_VERBS_IOCTL)`: 0, or an error number.
pub(crate) fn call(fd: c_int, argument: *mut c_void) -> c_int {
    let _off = Off::new();
    let first = Args::new(argument).and_then(|args| {
        let write = args.header.object == OBJECT_DEVICE && args.header.method == INVOKE_WRITE;
        let number = match write {
            true => args.number(WRITE_CMD)?,
            false => return Ok(false),
        };
        // libibverbs finds out with this whether commands can be sent so.
        if number == u64::from(command::QUERY_DEVICE) && args.buffer_size(CORE_OUT) == 0 {
            return Err(libc::ENOSPC);
        }
        Ok(number == u64::from(command::GET_CONTEXT))
    });
    let handle = match first {
        Ok(true) => HANDLE.get_or_init(start).as_ref(),
        Ok(false) => HANDLE.get().and_then(Option::as_ref),
        Err(errno) => return errno,
    };
    match handle {
        Some(handle) => handle.ask(Work::Call(fd, Argument(argument))),
        None if first == Ok(true) => libc::EIO,
        None => libc::EPROTONOSUPPORT,
    }
}

/// A descriptor is a file of the connection manager's from now on: 0, or an error number.
pub(crate) fn opened_cm(fd: c_int) -> c_int {
    let _off = Off::new();
    match HANDLE.get_or_init(start) {
        Some(handle) => handle.ask(Work::OpenedCm(fd)),
        None => libc::EIO,
    }
}

/// Answers a command of the connection manager's: 0, or an error number.
pub(crate) fn written(fd: c_int, at: *const c_void, len: usize) -> c_int {
    match HANDLE.get().and_then(Option::as_ref) {
        Some(handle) => handle.ask(Work::Written(fd, Argument(at.cast_mut()), len)),
        None => libc::EIO,
    }
}

/// A context's descriptor was closed, or one of the connection manager's.
pub(crate) fn closed(fd: c_int, cm: bool) {
    if let Some(handle) = HANDLE.get().and_then(Option::as_ref) {
        handle.ask(match cm {
            true => Work::ClosedCm(fd),
            false => Work::Closed(fd),
        });
    }
}

/// A context's descriptor has a copy: 0, or an error number.
pub(crate) fn duplicated(fd: c_int, copy: c_int) -> c_int {
    match HANDLE.get().and_then(Option::as_ref) {
        Some(handle) => handle.ask(Work::Duplicated(fd, copy)),
        None => libc::EIO,
    }
}

/// Returns `true` if the calling thread can ask the one that has the device: it is another one of the same process.
pub(crate) fn is_asked_here() -> bool {
    let handle = HANDLE.get().and_then(Option::as_ref);
    handle.is_some_and(Handle::is_here) && !IS_SERVER.get()
}

/// Looks at the doorbell records. The device is not that of a child.
pub(crate) fn ring() {
    let handle = HANDLE.get().and_then(Option::as_ref);
    if let Some(handle) = handle.filter(|handle| handle.is_here()) {
        let _off = Off::new();
        doorbells::ring(&handle.platform);
    }
}

impl Handle {
    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    fn ask(&self, work: Work) -> c_int {
        // The thread does not answer itself.
        if !self.is_here() || IS_SERVER.get() {
            return libc::EIO;
        }
        let _off = Off::new();
        let (done, answer) = sync_channel(1);
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.send(Job { work, done }).is_err() {
            return libc::EIO;
        }
        drop(jobs);
        self.platform.wake();
        answer.recv().unwrap_or(libc::EIO)
    }
}

/// Brings the device up.
fn start() -> Option<Handle> {
    crate::start_log();
    let (jobs, receiver) = channel();
    let (up, is_up) = channel();
    let spawned = thread::Builder::new()
        .name("bareverbs-uverbs".into())
        .spawn(move || {
            IS_SERVER.set(true);
            block_signals();
            survive_gone_memory();
            let done = address().and_then(|address| {
                run(address, &receiver, &up).map_err(|error| error.to_string())
            });
            if let Err(error) = done {
                log::error!("{error}");
            }
        });
    spawned.ok()?;
    let platform = is_up.recv().ok()?;
    match platform.is_card() {
        true => trap::leave_to_card(),
        false => trap::start(ring),
    }
    Some(Handle {
        jobs: Mutex::new(jobs),
        platform,
        process: std::process::id(),
    })
}

/// The program's handlers do not run in this thread.
fn block_signals() {
    // SAFETY: the set is whole. Faults are not blocked by it.
    unsafe {
        libc::pthread_sigmask(
            libc::SIG_SETMASK,
            &trap::all_but_faults(),
            std::ptr::null_mut(),
        );
    }
}

/// The device's folder.
pub(crate) fn device_folder() -> PathBuf {
    let root = std::env::var("BAREVERBS_PATHS").unwrap_or_default();
    PathBuf::from(format!("{root}/sys/class/infiniband/mlx5_0"))
}

/// The number by which librdmacm knows the device: it is in a file, where libibverbs reads it as well.
pub(crate) fn node_guid(folder: &Path) -> [u8; 8] {
    let text = std::fs::read_to_string(folder.join("node_guid")).unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

/// The device's address: the first one that the environment names.
fn address() -> std::result::Result<IpAddr, String> {
    let unit = std::env::var(UNIT_VARIABLE).ok();
    let unit: Option<u8> = match &unit {
        Some(text) => Some(
            text.parse()
                .map_err(|_| format!("{UNIT_VARIABLE}: {text}?"))?,
        ),
        None => None,
    };
    let unit = unit.unwrap_or(1);
    let Ok(given) = std::env::var("BAREVERBS_ADDRESS") else {
        return Ok([10, 0, 0, unit].into());
    };
    let first = given.split([',', '/']).next().unwrap_or_default();
    let first = first.replace("{unit}", &unit.to_string());
    let parsed = first.parse();
    parsed.map_err(|_| format!("BAREVERBS_ADDRESS: {given} is no address"))
}

/// Writes what a card's firmware says of itself into the device's folder, which is this process's.
fn describe(device: &Device<'_, P>) {
    let board = device
        .query_adapter()
        .map(|adapter| adapter.board_id().to_owned());
    let firmware = device.capabilities().firmware.to_string();
    for (name, text) in [
        ("board_id", board.unwrap_or_default()),
        ("fw_ver", firmware),
    ] {
        let path = device_folder().join(name);
        if let Err(error) = std::fs::write(&path, format!("{text}\n")) {
            log::warn!("{}: {error}", path.display());
        }
    }
}

fn run(address: IpAddr, jobs: &Receiver<Job>, up: &Sender<P>) -> std::result::Result<(), Error> {
    let mut options = Options::for_connections(CONNECTIONS);
    options.interrupts = true;
    let device = match DeviceName::from_env()?[..] {
        [device] => device,
        ref devices => return Err(Error::NotOneDevice(devices.len())),
    };
    if device == DeviceName::Model {
        dm::start();
    }
    Node::open_with(device, address, options)?.run(|cm| {
        let device = cm.device();
        if let Some((_, entry)) = device.gid_table().next() {
            netdev::appear(entry.mac);
        }
        if device.platform().is_card() {
            describe(device);
        }
        let mut server = match EventQueue::create(device) {
            Ok(events) => Server {
                cm,
                device,
                contexts: HashMap::new(),
                copies: HashMap::new(),
                manager: Manager::default(),
                node_guid: node_guid(&device_folder()),
                events,
                on_demand: !device.platform().is_card(),
                clock: ClockPage::new(device),
                domains: Domains::default(),
                umr: None,
                rules: None,
            },
            Err(error) => {
                log::error!("{error}");
                return Ok(());
            }
        };
        if up.send(device.platform().clone()).is_ok() {
            server.serve(jobs);
        }
        Ok(())
    })
}

impl Server<'_, '_, '_> {
    fn serve(&mut self, jobs: &Receiver<Job>) {
        loop {
            let wait = match jobs.try_recv() {
                Ok(Job { work, done }) => {
                    let errno = match work {
                        Work::Call(fd, Argument(argument)) => {
                            let fd = self.named(fd);
                            let done =
                                Args::new(argument).and_then(|mut args| self.answer(fd, &mut args));
                            done.err().unwrap_or(0)
                        }
                        Work::Written(fd, Argument(at), len) => {
                            let written = Written::new(at, len);
                            self.cm_command(fd, &written).err().unwrap_or(0)
                        }
                        Work::OpenedCm(fd) => self.open_cm(fd).err().unwrap_or(0),
                        Work::ClosedCm(fd) => {
                            self.close_cm(fd);
                            0
                        }
                        Work::Closed(fd) => {
                            self.closed(fd);
                            0
                        }
                        Work::Duplicated(fd, copy) => self.duplicated(fd, copy).err().unwrap_or(0),
                    };
                    // A caller that was cancelled is not there.
                    let _ = done.send(errno);
                    // There may be another, whose call to wake up was that of this one.
                    false
                }
                Err(TryRecvError::Empty) => true,
                Err(TryRecvError::Disconnected) => return,
            };
            self.turn(wait);
        }
    }
}
