//! Page requests of the firmware.

use super::*;

fn request(fake: &Fake, pages: i32) {
    fake.event(page_request(0, pages));
}

#[test]
fn pages_are_given_and_taken_back_on_request() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    request(&fake, 600);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 620);
    assert_eq!(fake.lock().pages.len(), 620);
    request(&fake, -100);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 520);
    request(&fake, i32::MIN);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 0);
    assert!(fake.lock().pages.is_empty());
    request(&fake, 0);
    run(&fake, &device);
    // All chunks went back when they were empty, and come again.
    request(&fake, 1);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 1);
    device.close().expect("orderly");
    fake.assert_clean();
}

/// The firmware asks for pages, which a command waits for, while the driver is still taking back what it offered before.
#[test]
fn pages_asked_for_while_others_are_taken_back_are_given() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    request(&fake, -5);
    device.poll().expect("MANAGE_PAGES is under way");
    request(&fake, 8);
    device.poll().expect("and this comes before its answer");
    run(&fake, &device);
    assert_eq!(device.pages_given(), 20 - 5 + 8);
    // Nor does the one count against the other when both come at once.
    fake.lock().history.clear();
    request(&fake, -5);
    request(&fake, 8);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 23 - 5 + 8);
    let given: Vec<u32> = fake
        .lock()
        .history
        .iter()
        .filter(|posted| posted.op_mod == 1)
        .map(|posted| posted.dword(12))
        .collect();
    assert_eq!(given, [8]);
    device.close().expect("orderly");
    fake.assert_clean();
}

#[test]
fn a_request_that_cannot_be_met_is_answered() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    fake.lock().budget = 0;
    request(&fake, 1000);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 20);
    let posted = fake.lock().history.pop().expect("answered");
    assert!(
        posted.is(Opcode::ManagePages) && posted.op_mod == 0,
        "the firmware gets: cannot give"
    );
    assert_eq!(device.page_faults(), (1, 0));
    // And again when the storage is full: 3 chunks of 512 pages.
    fake.lock().budget = usize::MAX;
    request(&fake, 3 * 512);
    run(&fake, &device);
    assert_eq!(device.page_faults(), (2, 0));
    assert_eq!(device.pages_given(), 20);
    // Less is still possible.
    request(&fake, 600);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 620);
    device.close().expect("orderly");
    fake.assert_clean();
}

#[test]
fn an_address_that_the_firmware_does_not_have_frees_nothing() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    let live = fake.live();
    let page = *fake.lock().pages.first().expect("pages");
    // Not its own, not aligned, not there at all, and twice the same.
    fake.lock().foreign_pages = vec![
        0x1000,
        page + 4096 + 8,
        u64::MAX - 4095,
        page + (32 << 12),
        page,
        page,
    ];
    fake.lock().pages.remove(&page);
    request(&fake, -7);
    run(&fake, &device);
    assert_eq!(
        device.pages_given(),
        13,
        "seven real pages in the end, one of them among the lies"
    );
    assert_eq!(device.page_faults(), (0, 5));
    assert_eq!(fake.live(), live);
    device.close().expect("orderly");
    fake.assert_clean();
}

#[test]
fn only_as_many_pages_are_taken_back_as_the_firmware_says() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    let pages: Vec<u64> = fake.lock().pages.iter().copied().take(3).collect();
    let list = pages.clone();
    let mut answered = false;
    fake.script(move |posted| {
        if !posted.is(Opcode::ManagePages) || posted.op_mod != 2 || answered {
            return Action::Normal;
        }
        answered = true;
        // It says one, and leaves more behind it; the next time it says none.
        let mut output = vec![0; 16];
        output[11] = 1;
        output.extend(list.iter().flat_map(|page| page.to_be_bytes()));
        Action::Answer(output)
    });
    fake.lock().pages.remove(&pages[0]);
    fake.lock().keep_pages = true;
    request(&fake, -3);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 19);
    assert_eq!(device.page_faults(), (0, 0));
    // More than was asked for is ignored.
    let mut lied = false;
    fake.script(move |posted| {
        if !posted.is(Opcode::ManagePages) || posted.op_mod != 2 || lied {
            return Action::Normal;
        }
        lied = true;
        let mut output = vec![0; 16];
        output[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
        Action::Answer(output)
    });
    request(&fake, -3);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 19);
    fake.lock().keep_pages = false;
    fake.script(|_| Action::Normal);
    device.close().expect("orderly");
    fake.assert_clean();
}

#[test]
fn pages_that_the_firmware_refuses_are_not_given() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    let live = fake.live();
    fake.script(|posted| {
        if posted.is(Opcode::ManagePages) && posted.op_mod == 1 {
            Action::Fail(Status::BadParameter, 3)
        } else {
            Action::Normal
        }
    });
    request(&fake, 600);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 20);
    assert_eq!(fake.live(), live, "their memory was given back");
    device.close().expect("orderly");
    fake.assert_clean();
}

#[test]
fn several_functions_are_kept_apart() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    for function_id in [0, 5] {
        fake.event(page_request(function_id, 8));
    }
    run(&fake, &device);
    assert_eq!(device.pages_given(), 36);
    let ids: Vec<u32> = fake
        .lock()
        .history
        .iter()
        .map(|posted| posted.dword(8) & 0xffff)
        .collect();
    assert_eq!(ids, [0, 5]);
    // The function goes. The firmware knows no pages of it any more, so that there is nothing to ask for.
    let live = fake.live();
    fake.lock().history.clear();
    fake.lock().release_function(5);
    run(&fake, &device);
    assert_eq!(device.pages_given(), 28);
    assert!(fake.live() < live, "its memory is free");
    assert!(fake.opcodes().is_empty(), "{:?}", fake.opcodes());
    // It may come again.
    fake.event(page_request(5, 8));
    run(&fake, &device);
    assert_eq!(device.pages_given(), 36);
    // A function that never had pages has none to release, and the driver's own function is not gone.
    for other in [9, 0] {
        fake.event(Event::PageRequest {
            function_id: other,
            embedded_cpu: false,
            release_all: true,
            pages: 0,
        });
    }
    run(&fake, &device);
    assert_eq!(device.pages_given(), 36);
    device.close().expect("orderly");
    fake.assert_clean();
}

fn page_request(function_id: u16, pages: i32) -> Event {
    Event::PageRequest {
        function_id,
        embedded_cpu: false,
        release_all: false,
        pages,
    }
}

/// A function goes while the firmware still works on pages for it, and comes again at once.
#[test]
fn a_function_that_goes_leaves_no_pages_behind() {
    let fake = Fake::new();
    let mut memory = Memory::new();
    let device = open(&fake, &mut memory);
    let live = fake.live();
    fake.script(|posted| {
        if posted.is(Opcode::ManagePages) && posted.op_mod == 1 {
            return Action::After(Duration::from_micros(5), Box::new(Action::Normal));
        }
        Action::Normal
    });
    fake.event(page_request(3, 8));
    device.poll().expect("MANAGE_PAGES is under way");
    fake.event(page_request(3, -8));
    fake.event(Event::PageRequest {
        function_id: 3,
        embedded_cpu: false,
        release_all: true,
        pages: 0,
    });
    fake.event(page_request(3, 4));
    run(&fake, &device);
    assert_eq!(device.pages_given(), 24);
    let posted = |fake: &Fake| -> Vec<(u16, u32)> {
        let history = &fake.lock().history;
        let each = history.iter().map(|one| (one.op_mod, one.dword(12)));
        each.collect()
    };
    assert_eq!(posted(&fake), [(1, 8), (1, 4)]);
    // More functions come and go than can have pages at a time.
    for function in 10..60 {
        fake.event(page_request(function, 3));
        run(&fake, &device);
        fake.lock().release_function(function);
        run(&fake, &device);
    }
    assert_eq!(device.page_faults(), (0, 0));
    fake.lock().release_function(3);
    run(&fake, &device);
    assert_eq!(fake.live(), live);
    device.close().expect("orderly");
    fake.assert_clean();
}
