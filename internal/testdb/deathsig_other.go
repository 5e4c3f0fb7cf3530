//go:build !linux

package testdb

import "syscall"

// dieWithParent does nothing: only the watchdog stops the server here.
func dieWithParent(*syscall.SysProcAttr) {}
