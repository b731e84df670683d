/* engine/cli/writable_code.c - no memory of the program is writable and executable at once. oneDNN
 * writes a kernel, asks mprotect for all three rights and writes no more. Shared libraries find
 * this mprotect before the C library's; it drops the right to write (docs/decisions/0035). */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int mprotect(void *address, size_t n, int rights)
{
    const int both = PROT_WRITE | PROT_EXEC;
    if ((rights & both) == both) rights &= ~PROT_WRITE;
    return (int)syscall(SYS_mprotect, address, n, rights);
}
