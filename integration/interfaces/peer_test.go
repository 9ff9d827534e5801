//go:build linux

package interfaces_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/server"
)

// asPeer is set in the process that stands for another host: a network namespace of its own.
// It reads commands, and writes a line for each:
//
//	address NAME ADDRESS  gives an interface an address and brings it up
//	pull SERVER           pulls once from a server, and says the transport; the client stays
const asPeer = "TRYST_TEST_PEER"

// host is the other host.
type host struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// newHost starts the other host. Interfaces get there with take.
func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t}
	started, ended := make(chan error), make(chan struct{})
	over := make(chan struct{})
	go func() { // ends with the test
		runtime.LockOSThread() // the child dies with this thread
		defer runtime.UnlockOSThread()
		h.cmd = exec.Command(os.Args[0])
		h.cmd.Env = append(os.Environ(), asPeer+"=1")
		h.cmd.Stderr = os.Stderr
		h.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		h.in, _ = h.cmd.StdinPipe() // fails only when called twice
		out, _ := h.cmd.StdoutPipe()
		h.out = bufio.NewScanner(out)
		started <- h.cmd.Start()
		<-over
		close(ended)
	}()
	check(t, "start the other host", <-started)
	t.Cleanup(func() {
		h.in.Close()
		check(t, "the other host", h.cmd.Wait())
		close(over)
		<-ended
	})
	h.do("address lo 127.0.0.9/8")
	return h
}

// do sends a command and returns the answer.
func (h *host) do(format string, args ...any) string {
	h.t.Helper()
	fmt.Fprintf(h.in, format+"\n", args...)
	if !h.out.Scan() {
		h.t.Fatalf("%s: the other host does not answer", fmt.Sprintf(format, args...))
	}
	if err, failed := strings.CutPrefix(h.out.Text(), "error: "); failed {
		h.t.Fatalf("%s: %s", fmt.Sprintf(format, args...), err)
	}
	return h.out.Text()
}

// until pulls until the transport carries the pull.
func (h *host) until(transport, address string) {
	h.t.Helper()
	until(h.t, "a pull over "+transport, func() bool { return h.do("pull %s", address) == transport })
}

// cable makes an interface of this host whose other end is at the other host, and down.
func (h *host) cable(name, there string) {
	h.t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	check(h.t, "add "+name, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: there}))
	h.t.Cleanup(func() { remove(h.t, name) })
	check(h.t, "move "+there, netlink.LinkSetNsPid(link(h.t, there), h.cmd.Process.Pid))
	up(h.t, name)
}

// address gives an interface of this host an address, at once: no duplicate is looked for.
func address(name, address string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	a.Flags = syscall.IFA_F_NODAD
	if err := netlink.AddrAdd(l, a); err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

// bePeer carries out commands until the input ends.
func bePeer() error {
	clients := make(map[string]*server.Client)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		words := strings.Fields(in.Text())
		answer, err := "ok", error(nil)
		switch words[0] {
		case "address":
			err = address(words[1], words[2])
		case "pull":
			answer, err = pullOnce(clients, words[1])
		}
		if err != nil {
			answer = "error: " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(answer)
	}
	for _, c := range clients {
		if err := c.Close(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

func pullOnce(clients map[string]*server.Client, at string) (string, error) {
	ctx := context.Background()
	c := clients[at]
	if c == nil {
		var err error
		if c, err = server.Dial(ctx, settings(nil).ForClient(), at, server.Options{Logger: logger()}); err != nil {
			return "", err
		}
		clients[at] = c
	}
	before := c.Received()
	for x, err := range c.Puller().Pull(ctx, checkpoint.PullRequest{Publication: "p"}) {
		if err != nil {
			return "", err
		}
		x.Release()
	}
	for transport, n := range c.Received() {
		if n > before[transport] {
			return transport, nil
		}
	}
	return "", fmt.Errorf("no tensor came from %s", at)
}

// TestInterfaceWithoutCarrierAtTheStart: a server whose only interface has no carrier when it
// starts uses loopback, and takes the interface when it is up. A client on another host, which
// came too early, gets verbs within seconds.
func TestInterfaceWithoutCarrierAtTheStart(t *testing.T) {
	namespace(t)
	h := newHost(t)
	h.cable("vc1", "vc2")
	check(t, "address", address("vc1", "10.9.3.1/24"))
	s := serve(t, everywhere)
	if v, ok := s.Verbs(); !ok || v.Choice().Device != "roce-lo" {
		t.Fatalf("without a carrier it uses %v", v)
	}
	h.do("address vc2 10.9.3.2/24")
	h.until("verbs", "10.9.3.1:"+port(s))
}

// TestFamiliesMeet: two hosts with addresses of both families on one cable, and one whose
// preferred address is of the other family, reach each other by verbs. Likewise by addresses
// of the link.
func TestFamiliesMeet(t *testing.T) {
	namespace(t)
	h := newHost(t)
	h.cable("vd1", "vd2")
	check(t, "address", address("vd1", "10.9.4.1/24"))
	check(t, "address", address("vd1", "2001:db8:4::1/64"))
	check(t, "address", address("vd1", "fe80::41/64"))
	h.do("address vd2 10.9.4.2/24")
	h.do("address vd2 2001:db8:4::2/64")
	h.do("address vd2 fe80::42/64")
	s := serve(t, everywhere)
	for _, at := range []string{"10.9.4.1", "[2001:db8:4::1]", "[fe80::41%vd2]"} {
		t.Run(strings.Trim(at, "[]"), func(t *testing.T) {
			h.t = t
			defer func(was *testing.T) { h.t = was }(h.t)
			h.until("verbs", at+":"+port(s))
		})
	}
}

// TestAddressOfALink: a server that listens on an address of a link says it with its zone, and
// is reached by it.
func TestAddressOfALink(t *testing.T) {
	namespace(t)
	h := newHost(t)
	h.cable("ve1", "ve2")
	check(t, "address", address("ve1", "fe80::51/64"))
	h.do("address ve2 fe80::52/64")
	file := filepath.Join(t.TempDir(), "address")
	spec, err := cluster.ParseSpec("worker=[fe80::51%ve1]:4000")
	check(t, "a cluster with a zone", err)
	s := serve(t, func(c *server.Config) {
		c.Listen, c.AddressFile, c.Cluster = "[fe80::51%ve1]:4000", file, spec.Lists()
	})
	written, err := os.ReadFile(file)
	check(t, "address file", err)
	for what, got := range map[string]string{"Addr": s.Addr().String(), "the address file": strings.TrimSpace(string(written))} {
		if got != "[fe80::51%ve1]:4000" {
			t.Errorf("%s is %q, want the address with its zone", what, got)
		}
	}
	h.until("verbs", "[fe80::51%ve2]:4000")
}
