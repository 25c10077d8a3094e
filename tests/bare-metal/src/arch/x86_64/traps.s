# Where the processor goes at exceptions and interrupts. Each entry pushes its number, exceptions without an error code a
# zero before it.

.macro trap number
    .balign 16
trap_\number:
.ifeq (\number - 8) * (\number - 10) * (\number - 11) * (\number - 12) * (\number - 13) * (\number - 14) * (\number - 17) * (\number - 21) * (\number - 29) * (\number - 30)
.else
    push 0
.endif
    push \number
.if \number < 32
    jmp exception_common
.else
    jmp interrupt_common
.endif
.endm

.section .text.traps, "ax"
.balign 16
.global traps
traps:
.altmacro
.set index, 0
.rept 64
    trap %index
    .set index, index + 1
.endr
.noaltmacro

exception_common:
    pop rdi
    pop rsi
    mov rdx, [rsp]
    mov rcx, cr2
    and rsp, -16
    call exception
    ud2

interrupt_common:
    push rax
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    cld
    mov rdi, [rsp + 72]
    call interrupt
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rax
    add rsp, 16
    iretq
