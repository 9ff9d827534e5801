package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// peerVariable makes the test binary the second process, in a way.
const peerVariable = "TRYST_BENCH_TEST_PEER"

func TestMain(m *testing.M) {
	switch os.Getenv(peerVariable) {
	case "":
		if os.Getenv("GORACE") == "" { // by default each second process would take a second to end
			_ = os.Setenv("GORACE", "atexit_sleep_ms=50")
		}
		goleak.VerifyTestMain(m)
	case "serve":
		if err := Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "foreign": // speaks as peers/nixl.py does
		in, out := io.Pipe()
		go func() {
			lines := bufio.NewScanner(os.Stdin)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				line := strings.Replace(lines.Text(), `"baseline":"`+NIXLRead+`","conns":0`, `"baseline":"`+RawTCP+`","conns":1`, 1)
				fmt.Fprintln(out, line)
			}
			_ = out.Close()
		}()
		if err := Serve(context.Background(), in, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case "gloo":
		speakAsGloo(os.Stdin, os.Stdout)
		os.Exit(0)
	case "busy":
		fmt.Fprintln(os.Stderr, "listen tcp 127.0.0.1:1: bind: address already in use")
		os.Exit(1)
	case "fail":
		fmt.Fprintln(os.Stderr, "no port is free")
		os.Exit(1)
	case "babble":
		fmt.Println("hello, world")
		for { // not select {}: a program whose goroutines all wait ends by itself
			<-time.After(time.Hour)
		}
	}
}

// peerCommand starts the test binary as the second process.
func peerCommand(way string) func(context.Context) *exec.Cmd {
	return func(ctx context.Context) *exec.Cmd {
		c := exec.CommandContext(ctx, os.Args[0])
		c.Env = append(os.Environ(), peerVariable+"="+way)
		return c
	}
}
