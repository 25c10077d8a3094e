// Where the processor goes at exceptions. None of them returns: interrupts stay masked, and are asked for.

.macro vector number
    .balign 128
    mov x0, #\number
    b exception_common
.endm

.section .text.vectors, "ax"
.balign 2048
.global vectors
vectors:
.altmacro
.set index, 0
.rept 16
    vector %index
    .set index, index + 1
.endr
.noaltmacro

exception_common:
    msr spsel, #1
    ldr x4, =emergency_stack_start
    mov sp, x4
    mrs x1, esr_el1
    mrs x2, elr_el1
    mrs x3, far_el1
    b exception

.section .bss.emergency_stack, "aw", @nobits
.balign 16
    .skip 8192
.global emergency_stack_start
emergency_stack_start:
