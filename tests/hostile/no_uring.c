/* Runs a command in which the io_uring calls are refused with EPERM, as a container's seccomp profile refuses them.
 *   no_uring all|setup|enter|register COMMAND [ARGUMENT...] */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENDS(of) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (of), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

/* The number of a call that is refused; a number that no call has when it is not. */
static unsigned refused(const char *which, const char *name, unsigned call)
{
    return strcmp(which, "all") == 0 || strcmp(which, name) == 0 ? call : ~0u;
}

int main(int count, char **arguments)
{
    const char *which = count > 2 ? arguments[1] : "";
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ENDS(refused(which, "setup", SYS_io_uring_setup)),
        ENDS(refused(which, "enter", SYS_io_uring_enter)),
        ENDS(refused(which, "register", SYS_io_uring_register)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};
    if (count < 3 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("no_uring");
        return 125;
    }
    execv(arguments[2], arguments + 2);
    perror(arguments[2]);
    return 126;
}
