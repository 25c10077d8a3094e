//! Each requirement broken, one at a time: each is found, by its own error.

use bareverbs_core::conformance::{self, ConformanceError, Path, Requirement, Violation};
use bareverbs_core::{Cqs, PageChunks, Qps, Resources, Srqs};
use bareverbs_in_process::Builder;
use connectx_model::Config as Card;

use super::broken::{Broken, Fault};
use super::passes::{OPTIONS, memory};

/// The test's verdict on a platform with this fault.
fn judge(fault: Fault) -> Result<(), ConformanceError> {
    judge_with(fault, 2)
}

fn judge_with(fault: Fault, vectors: u16) -> Result<(), ConformanceError> {
    let world = Builder::new()
        .function(Card::new(1))
        .interrupts(vectors)
        .stepped();
    let platform = Broken::new(world.platform(0), fault);
    let mut resources = Resources::<Qps<2>, Cqs<2>, Srqs<0>, PageChunks<64>>::new();
    let report = conformance::run(&platform, memory(), resources.storage(), OPTIONS);
    report.map(drop)
}

#[track_caller]
fn violation(fault: Fault) -> Violation {
    match judge(fault) {
        Err(ConformanceError::Violation(violation)) => {
            println!("{fault:?}: {violation}");
            violation
        }
        other => panic!("{fault:?}: {other:?}"),
    }
}

/// That a fault is found as a violation of this form.
macro_rules! found {
    ($($fault:ident => $requirement:ident, $violation:pat,)*) => {
        $({
            let violation = violation(Fault::$fault);
            assert!(matches!(violation, $violation), "{:?}: {violation:?}", Fault::$fault);
            assert_eq!(violation.requirement(), Requirement::$requirement, "{violation:?}");
        })*
    };
}

#[test]
fn the_wrapper_itself_breaks_nothing() {
    assert_eq!(judge(Fault::None), Ok(()));
}

#[test]
fn registers() {
    found! {
        ShortBar => BarLen, Violation::BarTooShort { len: 4096, .. },
        NoDevice => ReadBe32, Violation::NoDevice { offset: 0 },
        UnstableRegister => ReadBe32, Violation::RegisterChanges { offset: 0, .. },
        ReadSwapped => ReadBe32, Violation::ReadOrder { offset: 4, .. },
        ReadWrapsAround => ReadBe32, Violation::ReadOutside { .. },
        ReadRoundsDown => ReadBe32, Violation::ReadUnaligned { offset: 1, .. },
        WriteSwapped => WriteBe32, Violation::WriteOrder { .. },
        WriteWrapsAround => WriteBe32, Violation::WriteNotIgnored { size: 4, .. },
        WriteRoundsDown => WriteBe32, Violation::WriteNotIgnored { offset: 0x12, size: 4, .. },
        DoorbellWritesOutside => WriteBe64, Violation::WriteNotIgnored { size: 8, .. },
        HalvesSwapped => WriteBe64, Violation::NoCompletion { path: Path::Doorbell, .. },
        BytesSwapped => WriteBe64, Violation::NoCompletion { path: Path::Doorbell, .. },
        HighHalfLost => WriteBe64, Violation::NoEvent { .. },
    }
}

#[test]
fn clock() {
    found! {
        ClockBack => Now, Violation::ClockWentBack { .. },
        ClockStands => Relax, Violation::ClockStands { .. },
        ClockCoarse => Now, Violation::ClockCoarse { .. },
    }
}

#[test]
fn allocated_memory() {
    found! {
        NoMemory => DmaAlloc, Violation::AllocRefused { .. },
        Dirty => DmaAlloc, Violation::NotZeroed { found: 1, again: false, .. },
        DirtyAgain => DmaAlloc, Violation::NotZeroed { found: 1, again: true, .. },
        OtherLayout => DmaAlloc, Violation::OtherLayout { size: 8, found_size: 72, .. },
        PointerUnaligned => DmaAlloc, Violation::PointerAlignment { .. },
        IovaUnaligned => DmaAlloc, Violation::IovaAlignment { align: 8, .. },
        IovaUnalignedForLarge => DmaAlloc, Violation::IovaAlignment { align: 8192, .. },
        IovaWraps => DmaAlloc, Violation::IovaWraps { .. },
        SamePointer => DmaAlloc, Violation::PointersOverlap { .. },
        SameIova => DmaAlloc, Violation::IovasOverlap { .. },
        IovaOverlaps => DmaAlloc, Violation::IovasOverlap { .. },
        Aliased => DmaAlloc, Violation::MemoryShared { .. },
        Absurd => DmaAlloc, Violation::AllocAbsurd { .. },
        FreeLeaks => DmaFree, Violation::FreeKeeps { .. },
        LargeNotContiguous => DmaAlloc, Violation::Refused { path: Path::AllocatedToAllocated, .. },
    }
}

/// Before the device is up it cannot say what it does not reach.
#[test]
fn memory_where_the_device_does_not_look() {
    let judged = judge(Fault::IovaElsewhere);
    assert!(
        matches!(judged, Err(ConformanceError::Open(_))),
        "{judged:?}"
    );
}

#[test]
fn mapped_memory() {
    found! {
        NoMap => DmaMap, Violation::MapRefused { .. },
        MapsOther => DmaMap, Violation::MappedOther { len: 1, found_len: 2, .. },
        SmallPages => DmaMap, Violation::PageShift { shift: 9 },
        PageTooFew => DmaMap, Violation::Pages { .. },
        PageUnaligned => PageIova, Violation::PageIova { index: 0, .. },
        PagesSame => PageIova, Violation::PagesOverlap { .. },
        PagesReversed => PageIova, Violation::Moved { path: Path::MappedToAllocated, .. },
        PagesElsewhere => PageIova, Violation::Refused { path: Path::MappedToAllocated, .. },
        FirstPageOnly => PageIova, Violation::Refused { path: Path::MappedToAllocated, .. },
        UnmapLeaks => DmaUnmap, Violation::UnmapKeeps { .. },
    }
}

#[test]
fn interrupts() {
    found! {
        WaitEarly => WaitInterrupt, Violation::WaitEarly { .. },
        WaitLate => WaitInterrupt, Violation::WaitLate { .. },
        PastWaitsToo => WaitInterrupt, Violation::WaitLate { .. },
        InterruptNever => WaitInterrupt, Violation::InterruptMissing { vector: 0, .. },
        InterruptForgotten => WaitInterrupt, Violation::InterruptForgotten { vector: 1, .. },
        OnlyVectorZero => WaitInterrupt, Violation::InterruptMissing { vector: 1, .. },
        OnlyVectorOne => WaitInterrupt, Violation::InterruptMissing { vector: 0, .. },
    }
}

#[test]
fn a_doorbell_that_only_events_need_is_found_without_interrupts_too() {
    let judged = judge_with(Fault::HighHalfLost, 0);
    assert!(
        matches!(
            judged,
            Err(ConformanceError::Violation(Violation::NoEvent { .. }))
        ),
        "{judged:?}"
    );
}
