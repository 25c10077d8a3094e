//! The function is taken away, or reset, while it is in use.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use bareverbs_core::{CqInit, DeviceError, Inline, Platform, SendFlags, WcStatus};
use bareverbs_vfio::{OpenError, Options, Rebinding, Removal, VfioDevice};

use crate::pair::{ALL, pair};
use crate::{LONG, address, open, sysfs, with_device};

/// The loop of every waiter until it is notified that the device is gone.
fn wait_for_the_end<T>(mut step: impl FnMut() -> Result<T, DeviceError>) -> DeviceError {
    let start = Instant::now();
    loop {
        if let Err(error) = step() {
            return error;
        }
        assert!(start.elapsed() < LONG, "the waiter was not notified");
    }
}

/// The kernel requests the function back while some threads sleep, some poll, and some work: each is notified. The
/// kernel requests it back because it is unbound, or because of what the shell command in `BAREVERBS_LEAVE` does.
#[test]
#[ignore = "needs a function bound to vfio-pci"]
fn waiters_are_notified_that_the_function_is_to_leave() {
    let from_outside = std::env::var("BAREVERBS_LEAVE").ok();
    for vectors in [0, 1] {
        let platform = VfioDevice::open_with(address(), Options::with_vectors(vectors));
        let platform = platform.expect("opened");
        assert_eq!(platform.removal(), None);
        let plan = Rebinding::to_kernel(address()).expect("a way back");
        let leaver = with_device(platform, vectors != 0, |device| {
            let pd = device.alloc_pd().expect("PD");
            let [mut a, mut b] = pair(device, &pd);
            let buffer = pd.alloc_buffer(64, ALL).expect("buffer");
            let mut idle = device.create_cq(CqInit::new(15)).expect("CQ");
            let far = device.platform().now() + Duration::from_secs(3600);
            let commands = || match device.query_port() {
                Ok(_) => Ok(()),
                Err(error) => {
                    // A command's error has more to say; what it says in the end is the same.
                    assert!(!format!("{error}").is_empty());
                    device.poll()
                }
            };
            let mut rounds = 0;
            // Sends to the other queue pair, which takes each.
            let mut traffic = || {
                let sge = buffer.sge(0, 64).expect("in the buffer");
                b.qp.recv_queue().post(rounds, &[sge]).expect("queue space");
                let mut batch = a.qp.send_queue().batch();
                batch
                    .send(rounds, SendFlags::SIGNALED, Inline(b"work"))
                    .expect("queue space");
                drop(batch);
                for cq in [&mut a.cq, &mut b.cq] {
                    loop {
                        if let Some(completion) = cq.poll().expect("the CQ works") {
                            assert_eq!(completion.to_wc().status, WcStatus::Success);
                            break;
                        }
                        device.wait(far)?;
                    }
                }
                rounds += 1;
                Ok(())
            };
            traffic().expect("works before");
            // Blocks until the device is dropped.
            let leaver = match &from_outside {
                None => Some(std::thread::spawn(move || plan.carry_out())),
                Some(command) => {
                    let leaving = Command::new("sh").args(["-c", command]).status();
                    assert!(leaving.expect("a shell").success(), "{command}");
                    None
                }
            };
            let errors = std::thread::scope(|scope| {
                idle.arm(false);
                let waiters = [
                    scope.spawn(|| wait_for_the_end(|| idle.wait_event(far))),
                    scope.spawn(|| wait_for_the_end(|| device.wait(far))),
                    scope.spawn(|| wait_for_the_end(|| device.poll())),
                    scope.spawn(|| wait_for_the_end(commands)),
                    scope.spawn(|| wait_for_the_end(traffic)),
                ];
                waiters.map(|waiter| waiter.join().expect("its error"))
            });
            assert_eq!(errors, [DeviceError::Gone; 5]);
            println!("{} waiters, {rounds} rounds of traffic", errors.len());
            assert_eq!(device.platform().removal(), Some(Removal::Requested));
            if let Some(leaver) = &leaver {
                assert!(!leaver.is_finished());
            }
            leaver
        });
        let Some(leaver) = leaver else {
            // Not to come back.
            return;
        };
        leaver.join().unwrap().expect("unbound");
        assert!(matches!(
            VfioDevice::open(address()).unwrap_err(),
            OpenError::NotBound { .. } | OpenError::BoundTo { .. }
        ));
        let plan = Rebinding::to_vfio(address()).expect("a way to vfio-pci");
        plan.carry_out().expect("bound");
        drop(open());
    }
}

/// Another process resets the function while it works.
#[test]
#[ignore = "needs a function bound to vfio-pci"]
fn a_reset_by_another_process_is_reported() {
    with_device(open(), false, |device| {
        fs::write(sysfs("reset"), "1").expect("reset");
        let deadline = device.platform().now() + LONG;
        let error = loop {
            match device.wait(deadline) {
                Ok(true) => {}
                Ok(false) => panic!("the reset was not detected"),
                Err(error) => break error,
            }
        };
        assert_eq!(error, DeviceError::WasReset);
        assert!(device.query_port().is_err());
    });
    // It works again for the next one.
    with_device(open(), false, |device| {
        device.query_port().expect("the port");
    });
}
