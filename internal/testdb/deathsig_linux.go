package testdb

import "syscall"

// dieWithParent has the kernel stop the process, at once, when the thread that
// starts it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGQUIT }
