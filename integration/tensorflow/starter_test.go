//go:build interop

package tensorflow_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
)

// starter is the process of starter.py, which has imported TensorFlow and forks the Python processes of the tests.
type starter struct {
	mu   sync.Mutex // guards conn: one request at a time
	conn *net.UnixConn
}

// theStarter runs until the process of the tests ends.
var theStarter = sync.OnceValues(newStarter)

func newStarter() (*starter, error) {
	python := os.Getenv("TENSORFLOW_PYTHON")
	if python == "" {
		return nil, errors.New("TENSORFLOW_PYTHON is not set to a Python with TensorFlow: run make interop")
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "requests"), os.NewFile(uintptr(pair[1]), "requests")
	defer ours.Close()
	defer theirs.Close()
	cmd := exec.Command(python, "starter.py")
	cmd.Stdin, cmd.Stderr = theirs, os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("a socket pair is a %T, want a *net.UnixConn", conn)
	}
	return &starter{conn: unixConn}, nil
}

// start starts a program with its arguments and files, which the caller closes, and returns the ID of the process.
func (s *starter) start(args []string, stdin, stdout, stderr *os.File) (pid int, err error) {
	request, err := json.Marshal(args)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rights := syscall.UnixRights(int(stdin.Fd()), int(stdout.Fd()), int(stderr.Fd()))
	if _, _, err := s.conn.WriteMsgUnix(request, rights, nil); err != nil {
		return 0, fmt.Errorf("ask starter.py for %q: %w", args, err)
	}
	answer := make([]byte, 20)
	n, err := s.conn.Read(answer)
	if err != nil {
		return 0, fmt.Errorf("starter.py, asked for %q: %w", args, err)
	}
	return strconv.Atoi(string(answer[:n]))
}
