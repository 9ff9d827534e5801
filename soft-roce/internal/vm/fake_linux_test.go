package vm

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/soft-roce/internal/vm/internal/frame"
)

// Environment variables that make this test binary another program.
const (
	// fakeQEMU makes it an emulator. The value has the behaviour of the guest for each accelerator,
	// for instance "kvm=hangs tcg=boots".
	fakeQEMU = "TRYST_FAKE_QEMU"
	// fakeParent makes it a program that boots such an emulator and then waits to be killed. The
	// value is its directory.
	fakeParent = "TRYST_FAKE_PARENT"
	// fakeObserver is the address that the emulator connects to. It sends its accelerator, and keeps
	// the connection open while it lives.
	fakeObserver = "TRYST_FAKE_OBSERVER"
)

// runProgram runs the program that the environment selects. It returns false if there is none.
func runProgram() bool {
	switch {
	case os.Getenv(fakeParent) != "":
		runParent()
	case os.Getenv(fakeQEMU) != "":
		runQEMU()
	default:
		return false
	}
	return true
}

// runQEMU is an emulator with a guest. The port is descriptor 3, and the console is the standard
// output.
func runQEMU() {
	if slices.Equal(os.Args[1:], []string{"--version"}) {
		fmt.Println("QEMU emulator version 0")
		return
	}
	accel, _, _ := strings.Cut(os.Args[slices.Index(os.Args, "-accel")+1], ",")
	conn, err := net.Dial("tcp", os.Getenv(fakeObserver))
	if err != nil {
		fmt.Println("connect to the observer:", err)
		return
	}
	defer conn.Close()
	fmt.Fprintln(conn, accel)
	go func() { // ends the emulator with the test, whatever its behaviour
		_, _ = conn.Read(make([]byte, 1))
		os.Exit(1)
	}()

	port := os.NewFile(3, "port")
	behaviour := map[string]string{}
	for field := range strings.FieldsSeq(os.Getenv(fakeQEMU)) {
		name, value, _ := strings.Cut(field, "=")
		behaviour[name] = value
	}
	fmt.Println("SeaBIOS\r")
	fmt.Println("\x1bc\x1b[?7lBooting from ROM...\r")
	switch behaviour[accel] {
	case "aborts":
		fmt.Fprintln(os.Stderr, "failed to set MSR 0x10a")
		os.Exit(134)
	case "hangs":
		select {}
	case "fails":
		_ = frame.Write(port, frame.Alive, nil)
		_ = frame.Write(port, frame.Failed, []byte("mount tryst.root (9p): no such device"))
		select {}
	case "fails-and-ends": // as Init does: it sends Failed, then powers off
		_ = frame.Write(port, frame.Alive, nil)
		_ = frame.Write(port, frame.Failed, []byte("mount tryst.root (9p): no such device"))
		return
	case "garbage":
		_, _ = port.WriteString("GET / HTTP/1.1\r\n\r\n")
		select {}
	case "slow":
		_ = frame.Write(port, frame.Alive, nil)
		select {}
	}
	_ = frame.Write(port, frame.Alive, nil)
	_ = frame.Write(port, frame.Ready, nil)
	if behaviour[accel] == "panics" {
		fmt.Println("[    7.1] Kernel panic - not syncing: Fatal exception")
		return
	}
	for {
		kind, payload, err := frame.Read(port)
		if err != nil {
			select {} // as QEMU does: it does not end with the port
		}
		if kind != frame.Run {
			continue
		}
		var c frame.Command
		if err := frame.Decode(kind, payload, &c); err != nil {
			fmt.Println(err)
			return
		}
		switch c.Args[0] {
		case "panic":
			fmt.Println("[    7.1] Kernel panic - not syncing: Fatal exception")
			return
		case "print and end":
			for i := range 100 {
				_ = frame.Write(port, frame.Output, fmt.Appendln(nil, "line", i))
			}
			return
		case "hang":
			fmt.Println("[    7.1] rcu: INFO: rcu_preempt detected stalls")
			select {}
		case "missing":
			_ = frame.WriteJSON(port, frame.Exit, frame.Result{Status: 127, Reason: "not found"})
		case "alive":
			_ = frame.Write(port, frame.Alive, nil)
		default:
			_ = frame.Write(port, frame.Output, []byte("out "+strings.Join(c.Args[1:], ",")+" "+c.Dir+"\n"))
			_ = frame.Write(port, frame.Errors, []byte("err "+strings.Join(c.Env, ",")+"\n"))
			_ = frame.WriteJSON(port, frame.Exit, frame.Result{Status: 3})
		}
	}
}

// runParent boots an emulator, prints the result, and waits to be killed.
func runParent() {
	dir := os.Getenv(fakeParent)
	if err := os.Unsetenv(fakeParent); err != nil { // or the emulator would be a parent, too
		fmt.Println(err)
		return
	}
	c, k, initramfs, err := fakeConfig(dir)
	if err == nil {
		_, err = c.boot(context.Background(), k, initramfs)
	}
	fmt.Println("booted", err)
	select {}
}

// fakeConfig returns the configuration of a machine whose emulator is this binary. Its files are in
// dir.
func fakeConfig(dir string) (Config, kernel, *os.File, error) {
	self, err := os.Executable()
	if err != nil {
		return Config{}, kernel{}, nil, err
	}
	initramfs, err := os.CreateTemp(dir, "initramfs")
	if err != nil {
		return Config{}, kernel{}, nil, err
	}
	kvm := dir + "/kvm"
	if err := os.WriteFile(kvm, nil, 0o644); err != nil {
		return Config{}, kernel{}, nil, err
	}
	c := Config{Cache: dir, Share: dir, Log: &strings.Builder{}, host: host{qemu: self, kvm: kvm, kvmDeadline: kvmDeadline}}
	return c, kernel{dir: dir}, initramfs, nil
}

// observer observes the start and the end of each emulator.
type observer struct {
	t        *testing.T
	listener net.Listener
}

func newObserver(t *testing.T, behaviour string) *observer {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	t.Setenv(fakeQEMU, behaviour)
	t.Setenv(fakeObserver, listener.Addr().String())
	return &observer{t, listener}
}

// started waits for the start of the next emulator. It returns the accelerator, and a function that
// waits until the emulator has ended.
func (o *observer) started() (accel string, ended func()) {
	o.t.Helper()
	conn, err := o.listener.Accept()
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { conn.Close() })
	lines := bufio.NewReader(conn)
	accel, err = lines.ReadString('\n')
	if err != nil {
		o.t.Fatal(err)
	}
	return strings.TrimSpace(accel), func() {
		o.t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			o.t.Fatal(err)
		}
		if _, err := lines.ReadByte(); err == nil || os.IsTimeout(err) {
			o.t.Errorf("the emulator (%s) has not ended: %v", accel, err)
		}
	}
}
