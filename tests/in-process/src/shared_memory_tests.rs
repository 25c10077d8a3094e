use super::*;
use crate::network::Network;
use connectx_model::link::datagram::{Address, Wire};
use connectx_model::link::fault::{Faulty, Rates};
use connectx_model::link::stream::{Connection, Wish};
use connectx_model::link::vswitch::VirtualSwitch;
use connectx_model::link::{Cable, Link};
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

#[test]
fn both_ends_have_the_same_memory_and_a_child_does_not() {
    let (near, far) = UnixStream::pair().unwrap();
    assert_eq!(
        SharedMemory.take(&far).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    let given = SharedMemory.give(&near, 7).unwrap();
    assert_eq!(
        SharedMemory
            .wait(&[near.as_fd(), far.as_fd()], None)
            .unwrap(),
        [false, true]
    );
    let (taken, number) = SharedMemory.take(&far).unwrap();
    assert_eq!(number, 7);
    given.words()[RING_WORDS - 1].store(9, Ordering::Relaxed);
    drop(given);
    assert_eq!(taken.words().len(), RING_WORDS);
    assert_eq!(taken.words()[RING_WORDS - 1].load(Ordering::Relaxed), 9);
    // SAFETY: the child only looks at memory, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let words = taken.words().len();
        // SAFETY: nothing of the test's shall run in the child.
        unsafe { libc::_exit(i32::from(words != 0)) };
    }
    let mut status = -1;
    // SAFETY: the kernel writes the status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(taken.words().len(), RING_WORDS);
}

/// No end of a wire is late within this time, so that no frame is lost.
const PATIENCE: Duration = Duration::from_secs(600);

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("bareverbs-shared-{}-{name}", std::process::id()))
}

/// A file of this size without seals.
fn file(len: u64) -> File {
    let path = path("file");
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(true);
    let file = file.open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.set_len(len).unwrap();
    file
}

#[test]
fn memory_that_could_be_taken_away_is_refused() {
    let (near, far) = UnixStream::pair().unwrap();
    let refused = || SharedMemory.take(&far).unwrap_err().kind();
    (&near).write_all(&[0; 8]).unwrap();
    assert_eq!(refused(), ErrorKind::InvalidData);
    send_file(&near, &file(BYTES as u64), 1).unwrap();
    assert!(SharedMemory.take(&far).is_err());
    // Too little, and sealed.
    // SAFETY: the name is a string of C. The descriptor is new, and nothing else has it.
    let small: File = unsafe {
        OwnedFd::from_raw_fd(libc::memfd_create(
            c"small".as_ptr(),
            libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
        ))
    }
    .into();
    small.set_len(4096).unwrap();
    // SAFETY: changes the file only.
    let sealed = unsafe { libc::fcntl(small.as_raw_fd(), libc::F_ADD_SEALS, SEALS) };
    assert_eq!(sealed, 0);
    send_file(&near, &small, 1).unwrap();
    assert_eq!(refused(), ErrorKind::InvalidData);
    drop(near);
    assert_eq!(refused(), ErrorKind::InvalidData);
}

/// A wire with its threads, and where it says that something has come.
struct Running<'scope> {
    wire: &'scope Wire,
    woken: Receiver<()>,
    sharing: thread::ScopedJoinHandle<'scope, ()>,
}

impl<'scope> Running<'scope> {
    fn new<'env>(scope: &'scope thread::Scope<'scope, 'env>, wire: &'scope Wire) -> Self {
        let (wake, woken): (Sender<()>, _) = mpsc::channel();
        let [read, resume, stir] = [(); 3].map(|()| {
            let wake = wake.clone();
            move || {
                let _ = wake.send(());
            }
        });
        scope.spawn(move || wire.read(read));
        scope.spawn(move || wire.write(resume));
        Self {
            wire,
            woken,
            sharing: scope.spawn(move || wire.share(&SharedMemory, stir)),
        }
    }

    /// The next frame; who waits for it sleeps.
    fn next(&self) -> Vec<u8> {
        let mut frame = Vec::new();
        while !self.wire.receive(&mut frame) {
            if self.wire.doze() {
                self.woken.recv().unwrap();
            }
        }
        frame
    }

    fn end(self) {
        self.wire.close();
        self.wire.stop_sharing();
        self.sharing.join().unwrap();
        if let Some(claim) = self.wire.claim() {
            claim.release();
        }
    }
}

/// A frame with a number, from the station `from` to the station `to`.
fn frame(to: u8, from: u8, number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Sends frames from one to the other and back, more than a ring holds, until they go through memory: none is lost, and they
/// keep their order.
fn exchange(a: &Running<'_>, b: &Running<'_>) {
    let len = |number: u32| 60 + number as usize * 31 % 4100;
    let mut number = 0;
    let mut open = 0;
    while open < 3 {
        let numbers = number..number + 1500;
        let (from_a, from_b) = (a.wire, b.wire);
        thread::scope(|scope| {
            scope.spawn(|| {
                for at in numbers.clone() {
                    from_a.transmit(&frame(2, 1, at, len(at)));
                    from_b.transmit(&frame(1, 2, at, len(at)));
                }
            });
            for at in numbers.clone() {
                assert!(b.next() == frame(2, 1, at, len(at)), "{at}");
                assert!(a.next() == frame(1, 2, at, len(at)), "{at}");
            }
        });
        number += 1500;
        open += usize::from(a.wire.ways_through_memory() + b.wire.ways_through_memory() >= 2);
    }
}

fn unix(local: &Path, remote: &Path) -> Wire {
    let (local, remote) = (local.into(), remote.into());
    let wire = Wire::open(0, &Address::Unix { local, remote }).unwrap();
    wire.with_patience(PATIENCE).unwrap()
}

#[test]
fn frames_between_two_processes_go_through_memory_in_order() {
    let paths = [path("one"), path("two")];
    let wires = [unix(&paths[0], &paths[1]), unix(&paths[1], &paths[0])];
    let again = std::sync::OnceLock::new();
    thread::scope(|scope| {
        let [one, two] = [0, 1].map(|index: usize| Running::new(scope, &wires[index]));
        exchange(&one, &two);
        // One that has gone, and comes back.
        two.end();
        while one.wire.ways_through_memory() > 0 {
            thread::yield_now();
        }
        one.wire.transmit(&frame(2, 1, 0, 60));
        let wire = again.get_or_init(|| unix(&paths[1], &paths[0]));
        let two = Running::new(scope, wire);
        while one.wire.ways_through_memory() == 0 {
            one.wire.transmit(&frame(2, 1, 0, 60));
            assert_eq!(two.next().len(), 60);
        }
        one.wire.transmit(&frame(2, 1, 1, 61));
        while two.next().len() != 61 {}
        one.end();
        two.end();
    });
}

#[test]
fn a_switch_joins_processes_by_memory() {
    let path = path("switch");
    let switch = VirtualSwitch::bind(&path).unwrap();
    let serving = thread::spawn(move || switch.serve());
    let wires = [(); 3].map(|()| {
        let connection = Connection::open(&path, Wish::None).unwrap();
        let wire = Wire::on_switch(0, connection).unwrap();
        wire.with_patience(PATIENCE).unwrap()
    });
    thread::scope(|scope| {
        let [one, two, three] = [0, 1, 2].map(|index: usize| Running::new(scope, &wires[index]));
        // Each has an address, which the switch knows: no frame goes to all by then.
        let all = |from: u8| frame(0xff, from, 0, 60);
        for (from, wire) in [(1, &one), (2, &two), (3, &three)] {
            let mut others = vec![&one, &two, &three];
            others.retain(|other| !std::ptr::eq(other.wire, wire.wire));
            // The switch sends nothing to those that it has not begun with yet.
            let mut waiting = others.clone();
            while !waiting.is_empty() {
                wire.wire.transmit(&all(from));
                thread::yield_now();
                waiting.retain(|other| !other.wire.receive(&mut Vec::new()));
            }
            wire.wire.transmit(&frame(0xff, from, 0, 61));
            for other in others {
                while other.next().len() != 61 {}
            }
        }
        exchange(&one, &two);
        assert_eq!(three.wire.ways_through_memory(), 0);
        // What goes to all still does.
        one.wire.transmit(&all(1));
        assert_eq!(two.next(), all(1));
        assert_eq!(three.next(), all(1));
        for running in [one, two, three] {
            running.end();
        }
    });
    drop(wires);
    serving.join().unwrap().unwrap();
}

/// The abstract name at which a process is offered rings whose socket is at a path.
fn name_at(local: &Path) -> SocketAddr {
    let about = std::fs::symlink_metadata(local).unwrap();
    let made = (about.mtime(), about.mtime_nsec());
    let name = format!(
        "bareverbs socket {:x} {:x} {made:x?}",
        about.dev(),
        about.ino()
    );
    SocketAddr::from_abstract_name(name).unwrap()
}

#[test]
fn a_ring_whose_mark_is_lost_ends() {
    let paths = [path("marks"), path("no-socket")];
    let wire = unix(&paths[0], &paths[1]);
    thread::scope(|scope| {
        let one = Running::new(scope, &wire);
        let socket = UnixDatagram::bind(&paths[1]).unwrap();
        let listener = UnixListener::bind_addr(&name_at(&paths[1])).unwrap();
        one.wire.transmit(&frame(2, 1, 0, 60));
        let (mut stream, _) = listener.accept().unwrap();
        drop(listener);
        SharedMemory.wait(&[stream.as_fd()], None).unwrap();
        let (_memory, _) = SharedMemory.take(&stream).unwrap();
        drop(socket);
        std::fs::remove_file(&paths[1]).unwrap();
        stream.write_all(&[1]).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        one.end();
    });
}

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> std::ffi::c_int;
    fn pthread_setcancelstate(
        state: std::ffi::c_int,
        before: *mut std::ffi::c_int,
    ) -> std::ffi::c_int;
}

/// The C library would end it where the other process is woken.
#[test]
fn a_cancelled_thread_sends_before_it_ends() {
    let paths = [path("ends"), path("reads")];
    let [first, second] = [0, 1].map(|at: usize| Arc::new(unix(&paths[at], &paths[1 - at])));
    let cable = Faulty::new(Box::new(Cable::new()) as _, 0, Rates::default());
    let network = Network::new(cable, vec![first.clone()], 1, true);
    thread::scope(|scope| {
        let [one, two] = [&*first, &*second].map(|wire| Running::new(scope, wire));
        exchange(&one, &two);
        assert!(second.doze());
        let sent = scope.spawn(|| {
            // SAFETY: of the calling thread, which nothing after the frame may end.
            unsafe { pthread_cancel(libc::pthread_self()) };
            network.with(|wire| wire.send(0, &frame(2, 1, 7, 60), Duration::ZERO));
            network.leave(Duration::from_secs(1));
            // SAFETY: the number can be written.
            unsafe { pthread_setcancelstate(1, &mut 0) };
        });
        sent.join().unwrap();
        assert_eq!(two.next(), frame(2, 1, 7, 60));
        one.end();
        two.end();
    });
}

/// Offers a ring to a wire, with whatever is in it; returns the connection and the memory.
fn stranger(local: &Path, number: u64, words: &[(usize, u64)]) -> (UnixStream, Box<dyn Words>) {
    let stream = UnixStream::connect_addr(&name_at(local)).unwrap();
    let memory = SharedMemory.give(&stream, number).unwrap();
    for &(at, word) in words {
        memory.words()[at].store(word, Ordering::SeqCst);
    }
    (stream, memory)
}

#[test]
fn who_writes_nonsense_into_a_ring_is_cut_off_and_harms_nobody() {
    let paths = [path("good"), path("peer")];
    let wires = [unix(&paths[0], &paths[1]), unix(&paths[1], &paths[0])];
    thread::scope(|scope| {
        let [one, two] = [0, 1].map(|index: usize| Running::new(scope, &wires[index]));
        exchange(&one, &two);
        for (number, words) in [
            // The writer's index, and the length of the first frame.
            (1, &[(0, u64::MAX)][..]),
            (2, &[(0, 8), (64, 1 << 40)]),
            (3, &[(0, 8), (64, 60)]),
        ] {
            let (mut stream, _memory) = stranger(&paths[0], number, words);
            // It is taken, and read from its mark on.
            let mut said = [0; 1];
            stream.read_exact(&mut said).unwrap();
            let mut mark = [0; 60];
            mark[6..14].copy_from_slice(&[3, 0, 0, 0, 0, 1, 0x88, 0xb5]);
            mark[14..22].copy_from_slice(&u64::to_be_bytes(number));
            let socket = UnixDatagram::unbound().unwrap();
            socket.send_to(&mark, &paths[0]).unwrap();
            stream.set_nonblocking(true).unwrap();
            let mut frame = Vec::new();
            loop {
                assert!(!one.wire.receive(&mut frame), "{words:?}");
                match stream.read(&mut said) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
                thread::yield_now();
            }
        }
        // Wake-ups without frames, and a ring that has the number of another.
        for number in [4, 4, 5] {
            let (mut stream, _memory) = stranger(&paths[0], number, &[]);
            let _ = stream.write_all(&[1; 1000]);
        }
        exchange(&one, &two);
        one.end();
        two.end();
    });
}
