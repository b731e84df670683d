/* engine/cli/writable_code.c - no memory of the program is writable and executable at the same
 * time.
 *
 * oneDNN writes a kernel into read-write memory, then asks mprotect for all three rights and writes
 * no more. Shared libraries find the program's mprotect before the C library's; this one drops the
 * right to write. */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int mprotect(void *address, size_t n, int rights)
{
    const int both = PROT_WRITE | PROT_EXEC;
    if ((rights & both) == both) rights &= ~PROT_WRITE;
    return (int)syscall(SYS_mprotect, address, n, rights);
}
