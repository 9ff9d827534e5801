package sources

import (
	"testing"

	"github.com/tryst-rdma/tryst/internal/config"
)

const (
	ownTF      = `TF_CONFIG={"cluster":{"chief":["h0:1"],"worker":["h1:2","h2:3"]},"task":{"type":"worker","index":1}}`
	ownAddress = "h2:3"
)

// TestListensAtTheOwnAddressOfTheCluster gives cluster and task in each way, and the address in none
// or in one of the others.
func TestListensAtTheOwnAddressOfTheCluster(t *testing.T) {
	for name, c := range map[string]struct {
		w            world
		want, source string
		own          bool
	}{
		"TF_CONFIG": {world{environ: []string{ownTF}}, ownAddress, "TF_CONFIG", true},
		"flags":     {world{args: []string{"--cluster=worker=h1:2,h2:3", "--task=/job:worker/task:1"}}, ownAddress, "flag --cluster", true},
		"variables": {world{environ: []string{"TRYST_CLUSTER=worker=h1:2,h2:3", "TRYST_TASK=/job:worker/task:1"}}, ownAddress, "env TRYST_CLUSTER", true},
		"file":      {world{yaml: "cluster: worker=h1:2,h2:3\ntask: /job:worker/task:1\n"}, ownAddress, "file settings.yaml:1", true},
		"one task":  {world{args: []string{"--cluster=worker=:7"}}, ":7", "flag --cluster", true},

		"--listen says otherwise":       {world{environ: []string{ownTF}, args: []string{"--listen=:9"}}, ":9", "flag --listen", false},
		"--listen says the default":     {world{environ: []string{ownTF}, args: []string{"--listen=127.0.0.1:2222"}}, "127.0.0.1:2222", "flag --listen", false},
		"--listen says the same":        {world{environ: []string{ownTF}, args: []string{"--listen=" + ownAddress}}, ownAddress, "flag --listen", false},
		"TRYST_LISTEN says otherwise":   {world{environ: []string{ownTF, "TRYST_LISTEN=:9"}}, ":9", "env TRYST_LISTEN", false},
		"the file says otherwise":       {world{environ: []string{ownTF}, yaml: "listen: :9\n"}, ":9", "file settings.yaml:1", false},
		"an evaluator is not in it":     {world{args: []string{"--cluster=worker=h1:2", "--task=/job:evaluator/task:0"}}, "127.0.0.1:2222", "default", false},
		"a name of the site's resolver": {world{args: []string{"--cluster=worker=/bns/x"}}, "127.0.0.1:2222", "default", false},
	} {
		t.Run(name, func(t *testing.T) {
			c.w.use = ForServer
			got, err := c.w.load(t)
			if err != nil {
				t.Fatal(err)
			}
			if got.Listen != c.want || got.Source(config.ListenKey).String() != c.source || got.inCluster != c.own {
				t.Errorf("got %q from %v, own %v; want %q from %s, own %v", got.Listen, got.Source(config.ListenKey), got.inCluster, c.want, c.source, c.own)
			}
			if given, _ := got.Given(ForServer); (given.Listen == "") != (c.own || c.source == "default") {
				t.Errorf("%q is given", given.Listen)
			}
		})
	}
}

// TestOtherListenersAreApartFromTheOwnAddress: the rule holds for the address that is used.
func TestOtherListenersAreApartFromTheOwnAddress(t *testing.T) {
	_, err := world{environ: []string{ownTF}, args: []string{"--metrics-address=" + ownAddress}, use: ForServer}.load(t)
	wantErrors(t, err, []string{`--metrics-address "h2:3"`, "address of listen"})
}

// TestTaskIsSetByASource: the default task is no statement about this process.
func TestTaskIsSetByASource(t *testing.T) {
	for name, c := range map[string]struct {
		w    world
		want bool
	}{
		"TF_CONFIG": {world{environ: []string{ownTF}}, true},
		"flag":      {world{args: []string{"--cluster=worker=h1:2", "--task=/job:worker/task:0"}}, true},
		"variable":  {world{environ: []string{"TRYST_CLUSTER=worker=h1:2", "TRYST_TASK=/job:worker/task:0"}}, true},
		"file":      {world{yaml: "cluster: worker=h1:2\ntask: /job:worker/task:0\n"}, true},
		"none":      {world{args: []string{"--cluster=worker=h1:2"}}, false},
	} {
		c.w.use = ForServer
		got, err := c.w.load(t)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.IsMember() != c.want {
			t.Errorf("%s: %v", name, got.IsMember())
		}
	}
}
