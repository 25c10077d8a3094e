//! Memory and page chunks that are too few, and pages that the firmware keeps.

use super::*;

#[test]
fn memory_may_run_out_at_any_allocation() {
    let mut budget = 0;
    loop {
        let fake = Fake::with(|inner| inner.budget = budget);
        let mut memory = Memory::new();
        let result = Device::open(&fake, quick(), memory.storage());
        match result {
            Ok(_) => break,
            Err(error) => match error.failure {
                OpenFailure::Memory(DmaError::OutOfMemory) => {}
                OpenFailure::Command(command)
                    if command.failure == CommandFailure::Memory(DmaError::OutOfMemory) => {}
                other => panic!("budget {budget}: {other:?}"),
            },
        }
        fake.assert_clean();
        budget += 1;
    }
    assert!(budget >= 5, "bring-up allocates more often than that");
}

#[test]
fn a_firmware_that_requires_more_than_the_storage_holds_gets_a_refusal() {
    let fake = Fake::with(|inner| inner.boot_pages = 8 * 512 + 1);
    let error = open_error(&fake);
    assert_eq!(error.step, OpenStep::BootPages);
    let too_few = OpenFailure::PageChunks {
        pages: 4097,
        sufficient: 9,
    };
    assert_eq!(error.failure, too_few);
    let last = fake
        .lock()
        .history
        .iter()
        .rfind(|posted| posted.is(Opcode::ManagePages))
        .cloned();
    assert_eq!(
        last.expect("answered").op_mod,
        0,
        "the firmware gets the refusal of its page request"
    );
    fake.assert_clean();
    // A nonsensical number is not even tried.
    let fake = Fake::with(|inner| inner.boot_pages = u32::MAX);
    let error = open_error(&fake);
    assert!(matches!(
        error.failure,
        OpenFailure::Value {
            field: "num_pages",
            ..
        }
    ));
    fake.assert_clean();
}

/// As many page chunks as the refusal names are enough, one fewer is not; also where memory comes in short runs.
#[test]
fn too_few_page_chunks_are_refused_with_the_number_that_suffices() {
    for largest in [usize::MAX, 256 << 10] {
        for init_pages in [1, 500, 12_868, 70_000] {
            let open = |count: usize| {
                let fake = Fake::with(|inner| {
                    inner.init_pages = init_pages;
                    inner.largest = largest;
                });
                let mut slot = DeviceSlot::new();
                let mut chunks: Vec<_> = (0..count).map(|_| PageChunk::new()).collect();
                let storage = Storage::new(&mut slot, &mut [], &mut [], &mut [], &mut chunks);
                let opened = Device::open(&fake, quick(), storage).map(drop);
                fake.assert_clean();
                opened
            };
            let what = format!("{init_pages} pages, runs of {largest:#x} bytes");
            let mut count = 0;
            // The firmware asks twice, so there are two refusals at most.
            for _ in 0..2 {
                let Err(error) = open(count) else {
                    break;
                };
                let OpenFailure::PageChunks { pages, sufficient } = error.failure else {
                    panic!("{what}: {error}");
                };
                let asked = if error.step == OpenStep::BootPages {
                    700
                } else {
                    700 + init_pages
                };
                assert_eq!(pages, asked, "{what}");
                assert!(sufficient > count, "{what}");
                assert!(error.page_chunks() > Some(sufficient), "{what}");
                assert!(
                    error
                        .to_string()
                        .contains(&format!("{sufficient} page chunks"))
                );
                count = sufficient;
            }
            open(count).unwrap_or_else(|error| panic!("{what}, {count} chunks: {error}"));
            open(count - 1).expect_err("one chunk fewer was enough");
            if largest == usize::MAX {
                assert!(PageChunk::count_for(700 + init_pages) >= count, "{what}");
            }
        }
    }
}

#[test]
fn pages_that_the_firmware_keeps_are_reported() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = Device::open(&fake, quick(), memory.storage()).expect("bring-up");
    fake.lock().keep_pages = true;
    let error = device.close().unwrap_err();
    assert!(
        matches!(error.failure, CloseFailure::PagesKept { .. }),
        "{error}"
    );
    // It obeyed the order to disable itself, so the pages could be had all the same.
    assert_eq!(error.pages_lost, 0);
    fake.assert_clean();

    let fake = Fake::with(|inner| inner.obedient = false);
    let mut memory = Memory::new();
    let device = Device::open(&fake, quick(), memory.storage()).expect("bring-up");
    fake.lock().keep_pages = true;
    let error = device.close().unwrap_err();
    assert_eq!(error.pages_lost, 740);
    assert_eq!(error.bytes_quarantined, fake.live() as u64);
}
