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

	"github.com/tryst-rdma/tryst/soft-roce/vm/internal/frame"
)

// The variables by which this test binary is told to be another program.
const (
	// playQEMU makes it an emulator. The value says how its guests behave, by accelerator: "kvm=hangs tcg=good".
	playQEMU = "TRYST_PLAY_QEMU"
	// playParent makes it a program that boots such an emulator and then waits to be killed.
	playParent = "TRYST_PLAY_PARENT"
	// playWitness is an address that the emulator calls; it says its accelerator, and holds the connection as long as it lives.
	playWitness = "TRYST_PLAY_WITNESS"
)

// played is true when this process was another program, which has ended.
func played() bool {
	switch {
	case os.Getenv(playParent) != "":
		beParent()
	case os.Getenv(playQEMU) != "":
		beQEMU()
	default:
		return false
	}
	return true
}

// beQEMU is an emulator with a guest: the port is descriptor 3, the console standard output.
func beQEMU() {
	if slices.Equal(os.Args[1:], []string{"--version"}) {
		fmt.Println("QEMU emulator version 0")
		return
	}
	accel, _, _ := strings.Cut(os.Args[slices.Index(os.Args, "-accel")+1], ",")
	witness, err := net.Dial("tcp", os.Getenv(playWitness))
	if err != nil {
		fmt.Println("no witness:", err)
		return
	}
	defer witness.Close()
	fmt.Fprintln(witness, accel)
	go func() { // However stubborn it is, it ends with the test.
		_, _ = witness.Read(make([]byte, 1))
		os.Exit(1)
	}()

	port := os.NewFile(3, "port")
	behaviour := map[string]string{}
	for word := range strings.FieldsSeq(os.Getenv(playQEMU)) {
		name, value, _ := strings.Cut(word, "=")
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
	case "gives-up": // As Init does: the words, then power off.
		_ = frame.Write(port, frame.Alive, nil)
		_ = frame.Write(port, frame.Failed, []byte("mount tryst.root (9p): no such device"))
		return
	case "babbles":
		_, _ = port.WriteString("GET / HTTP/1.1\r\n\r\n")
		select {}
	case "slow":
		_ = frame.Write(port, frame.Alive, nil)
		select {}
	}
	_ = frame.Write(port, frame.Alive, nil)
	_ = frame.Write(port, frame.Ready, nil)
	if behaviour[accel] == "leaves" {
		fmt.Println("[    7.1] Kernel panic - not syncing: Fatal exception")
		return
	}
	for {
		kind, payload, err := frame.Read(port)
		if err != nil {
			select {} // As QEMU does: the end of the port is not its end.
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
		case "talk and end":
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

// beParent boots an emulator, says so, and waits for its end.
func beParent() {
	dir := os.Getenv(playParent)
	if err := os.Unsetenv(playParent); err != nil { // The emulator is this program, too, and must not be a parent in its turn.
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

// fakeConfig is a machine whose emulator is this binary, with its files in dir.
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

// witness hears of every emulator.
type witness struct {
	t        *testing.T
	listener net.Listener
}

func newWitness(t *testing.T, behaviour string) *witness {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	t.Setenv(playQEMU, behaviour)
	t.Setenv(playWitness, listener.Addr().String())
	return &witness{t, listener}
}

// started waits for the next emulator to start and returns its accelerator, and a function that waits for its end.
func (w *witness) started() (accel string, ended func()) {
	w.t.Helper()
	conn, err := w.listener.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	lines := bufio.NewReader(conn)
	accel, err = lines.ReadString('\n')
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(accel), func() {
		w.t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			w.t.Fatal(err)
		}
		if _, err := lines.ReadByte(); err == nil || os.IsTimeout(err) {
			w.t.Errorf("the emulator (%s) still runs: %v", accel, err)
		}
	}
}
