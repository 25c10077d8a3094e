// From the boot loader, without paging, to Rust at EL1.
//
// QEMU enters an ELF image at its entry, with the processor as after a reset: at EL1, or at EL2 if the machine has
// virtualization, which is left for EL1 at once. 1 GiB of device registers and the 1 GiB of memory behind it are mapped to
// themselves until Rust has made better tables. Nothing is written before the caches are on, so that they hold nothing
// that is stale.

// The entries are not global and of address space 0: those of the better tables, of address space 1, never meet them.
.section .rodata.boot, "a"
.balign 4096
boot_level_0:
    .quad boot_level_1 + 3      // a table
    .fill 511, 8, 0
boot_level_1:
    // A block, accessed, not global, never executed: device registers without early acknowledgement.
    .quad 0x0060000000000c09
    // A block, accessed, outer shareable, not global: memory.
    .quad 0x0000000040000e01
    .fill 510, 8, 0

.balign 8
boot_refusal:
    .quad 0x20026
    .quad 37

.section .text.boot, "ax"
.global boot
boot:
    msr daifset, #15
    mrs x0, currentel
    cmp x0, #2 << 2
    b.lo at_el1
    b.hi refuse

    mov x0, #1 << 31            // EL1 has 64 bits
    msr hcr_el2, x0
    mov x0, #3                  // and the counters
    msr cnthctl_el2, x0
    msr cntvoff_el2, xzr
    mov x0, #0x33ff             // and floating point
    msr cptr_el2, x0
    ldr x0, =0x30d00800         // what has to be one, and nothing else
    msr sctlr_el1, x0
    mov x0, #0x3c5              // EL1, its own stack pointer, all interrupts masked
    msr spsr_el2, x0
    adr x0, at_el1
    msr elr_el2, x0
    eret

at_el1:
    mrs x20, cntvct_el0

    // Memory attributes: 0 write-back, 1 device nGnRE, 2 device nGnRnE, 3 normal memory that is not cached.
    ldr x0, =0x440004ff
    msr mair_el1, x0
    // 48 bits, 4 KiB pages, tables walked in write-back, outer shareable memory; no upper half; as many physical bits as
    // there are, up to 48.
    ldr x0, =0x00902510
    mrs x1, id_aa64mmfr0_el1
    and x1, x1, #15
    mov x2, #5
    cmp x1, x2
    csel x1, x1, x2, lo
    orr x0, x0, x1, lsl #32
    msr tcr_el1, x0
    adrp x0, boot_level_0
    msr ttbr0_el1, x0
    ic iallu
    tlbi vmalle1
    dsb nsh
    isb
    // Paging, caches, aligned stacks.
    ldr x0, =0x30d00800 | 1 << 0 | 1 << 2 | 1 << 3 | 1 << 12
    msr sctlr_el1, x0
    isb

    mov x0, #3 << 20            // floating point, which compiled code may use
    msr cpacr_el1, x0
    ldr x0, =vectors
    msr vbar_el1, x0
    isb

    // Exceptions have a stack of their own, as they may come because there is none.
    msr spsel, #1
    ldr x0, =emergency_stack_start
    mov sp, x0
    msr spsel, #0
    ldr x0, =stack_start
    mov sp, x0

    // What of the stack was never used keeps this pattern.
    ldr x1, =stack_end
    ldr x2, =0x5a5a5a5a5a5a5a5a
2:  str x2, [x1], #8
    cmp x1, x0
    b.lo 2b

    ldr x0, =device_tree
    mov x1, x20
    mov x29, xzr
    mov x30, xzr
    bl start

// EL3 is for firmware, which this is not: it ends with the status of a wrong program, by semihosting, or stops.
refuse:
    mov x0, #0x18
    ldr x1, =boot_refusal
    hlt #0xf000
stop:
    wfi
    b stop
