//go:build linux

package storm_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// udpSockets returns the file descriptors of the UDP sockets of this process.
func udpSockets() []int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	var list []int
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && isUDP(fd) {
			list = append(list, fd)
		}
	}
	return list
}

func isUDP(fd int) bool {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil || kind != unix.SOCK_DGRAM {
		return false
	}
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	return err == nil && (domain == unix.AF_INET || domain == unix.AF_INET6)
}

// severShared breaks the connections by which this process shares memory, as if it were dying. With
// forGood it closes its listening sockets for connections, too. Nothing else here has sockets of
// this type.
func severShared(forGood bool) {
	shutDown(sharedSockets(forGood))
}

func shutDown(sockets []int) {
	for _, fd := range sockets {
		_ = unix.Shutdown(fd, unix.SHUT_RDWR) // it may have ended
	}
}

// sharedSockets returns the connections by which this process shares memory, and its listening sockets
// for them if asked for.
func sharedSockets(listening bool) (list []int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_SEQPACKET {
			continue
		}
		if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err == nil && (listens == 0 || listening) {
			list = append(list, fd)
		}
	}
	return list
}

// runOut leaves this process no descriptor: no connection, no memfd and no file can be opened. Then it
// breaks the connections by which it shares memory, so that it needs some. It returns what gives the
// descriptors back.
func runOut() (repair func(), err error) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		return nil, err
	}
	cut := sharedSockets(false)
	for { // each time a lower one is free, since a connection has ended meanwhile
		f, err := os.Open("/")
		if errors.Is(err, unix.EMFILE) {
			break
		}
		if err != nil {
			return nil, err
		}
		lowest := f.Fd() // the lowest free one, and all above
		f.Close()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(lowest), Max: old.Max}); err != nil {
			return nil, err
		}
	}
	shutDown(cut)
	return func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) }, nil
}

// Opcodes of the socket filter, and the address of the kernel's random number (linux/filter.h).
const (
	loadWord    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	jumpGreater = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	ret         = unix.BPF_RET | unix.BPF_K
	random      = 0xfffff000 + 56 // SKF_AD_OFF + SKF_AD_RANDOM
)

// dropPackets makes the kernel drop a share of the packets that arrive at sockets, in percent. A
// socket filter needs no privilege. 0 removes it.
func dropPackets(sockets []int, percent int) error {
	for _, fd := range sockets {
		if !isUDP(fd) {
			continue // it was closed
		}
		if percent == 0 {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); err != nil && err != unix.ENOENT {
				return fmt.Errorf("remove the filter: %w", err)
			}
			continue
		}
		limit := uint32(min(uint64(percent)*math.MaxUint32/100, math.MaxUint32)) //nolint:gosec // a percentage
		program := []unix.SockFilter{
			{Code: loadWord, K: random},
			{Code: jumpGreater, Jt: 1, K: limit},
			{Code: ret, K: 0},
			{Code: ret, K: math.MaxUint32},
		}
		if percent >= 100 {
			program = program[2:3]
		}
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}); err != nil { //nolint:gosec // at most 4
			return fmt.Errorf("attach a filter: %w", err)
		}
	}
	return nil
}

// maxProcessors is how many processors all processes of a storm may use together.
const maxProcessors = 2

// limitProcessors binds all threads of this process to the first processors that it may use. New
// threads inherit it.
func limitProcessors() {
	var may, take unix.CPUSet
	if unix.SchedGetaffinity(0, &may) != nil {
		return
	}
	for cpu, n := 0, 0; cpu < len(may)*64 && n < maxProcessors; cpu++ {
		if may.IsSet(cpu) {
			take.Set(cpu)
			n++
		}
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, e := range threads {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			_ = unix.SchedSetaffinity(tid, &take) // a thread that has ended
		}
	}
}
