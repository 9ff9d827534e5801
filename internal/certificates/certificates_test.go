package certificates

import (
	"math/big"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/internal/certificates/certtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTLSFollowsItsFiles(t *testing.T) {
	a := certtest.New(t)
	first, _ := a.Make("server", certtest.Loopback)
	pair, err := loadPair(Files(a.Pair("server")))
	if err != nil {
		t.Fatal(err)
	}
	serial := func() *big.Int {
		c, err := pair.current()
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf.SerialNumber
	}
	if serial().Cmp(first.SerialNumber) != 0 {
		t.Error("not the first certificate")
	}
	renewed, _ := a.Make("server", certtest.Loopback)
	later := time.Now().Add(time.Second)
	for _, f := range []string{"server.pem", "server.key"} {
		if err := os.Chtimes(a.Path(f), later, later); err != nil {
			t.Fatal(err)
		}
	}
	if serial().Cmp(renewed.SerialNumber) != 0 {
		t.Error("the renewed certificate is not used")
	}
	if err := os.WriteFile(a.Path("server.pem"), []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if serial().Cmp(renewed.SerialNumber) != 0 {
		t.Error("a file that is being written took the certificate away")
	}
}
