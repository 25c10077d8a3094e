# From the boot loader's 32-bit protected mode, without paging, to Rust in 64-bit mode.
#
# The loader (QEMU's, Xen's: the "PVH" protocol) finds the entry in an ELF note, and leaves the address of its start
# information in ebx. The first 4 GiB are mapped to themselves until Rust has made better tables.

.section .note.pvh, "a", @note
.balign 4
    .long 4                     # length of the name
    .long 8                     # length of the entry's address
    .long 18                    # XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad pvh_start

.section .bss.boot, "aw", @nobits
.balign 4096
boot_pml4: .skip 4096
boot_pdpt: .skip 4096
boot_directories: .skip 4 * 4096
boot_tsc: .skip 8

.section .rodata.boot, "a"
.balign 8
boot_gdt:
    .quad 0
    .quad 0x00209b0000000000    # 64-bit code
    .quad 0x0000930000000000    # data
boot_gdt_pointer:
    .word . - boot_gdt - 1
    .quad boot_gdt

.section .text.boot, "ax"
.code32
.global pvh_start
pvh_start:
    cld
    mov esp, offset stack_start
    mov esi, ebx
    rdtsc
    mov [boot_tsc], eax
    mov [boot_tsc + 4], edx

    mov eax, offset boot_pdpt
    or eax, 3                   # present, writable
    mov [boot_pml4], eax
    mov edi, offset boot_pdpt
    mov eax, offset boot_directories
    or eax, 3
    mov ecx, 4
2:  mov [edi], eax
    add eax, 4096
    add edi, 8
    loop 2b
    mov edi, offset boot_directories
    mov eax, 0x83               # present, writable, 2 MiB
    mov ecx, 2048
3:  mov [edi], eax
    add eax, 0x200000
    add edi, 8
    loop 3b
    mov eax, offset boot_pml4
    mov cr3, eax

    mov eax, cr4
    or eax, 0x20                # physical address extension
    mov cr4, eax
    mov ecx, 0xc0000080         # EFER
    rdmsr
    or eax, 0x900               # long mode, no-execute
    wrmsr
    mov eax, cr0
    or eax, 0x80010001          # paging, write protection, protected mode
    and eax, 0x9fffffff         # caches on
    mov cr0, eax
    lgdt [boot_gdt_pointer]
    # A far jump, in bytes because assemblers disagree how to write it.
    .byte 0xea
    .long long_mode
    .word 8

.code64
long_mode:
    mov ax, 16
    mov ds, ax
    mov es, ax
    mov ss, ax
    xor eax, eax
    mov fs, ax
    mov gs, ax
    mov ebp, esi

    # What of the stack was never used keeps this pattern.
    mov edi, offset stack_end
    mov ecx, offset stack_start
    sub ecx, edi
    shr ecx, 3
    mov rax, 0x5a5a5a5a5a5a5a5a
    rep stosq

    mov edi, ebp
    mov rsi, [boot_tsc]
    call start
    ud2
