package cluster_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

func TestListsReadBack(t *testing.T) {
	for _, text := range []string{"", "worker=h1:2222,h2:2222", "ps=7@h3:2222,h4:1;worker=h1:2222,9@[::1]:3", "a=2147483647@h:1"} {
		want, err := cluster.ParseSpec(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := cluster.ParseLists(want.Lists())
		if err != nil || !got.Equal(want) {
			t.Errorf("%q: lists %q give %v, %v", text, want.Lists(), got, err)
		}
	}
	spec, err := cluster.ParseLists(map[string][]string{"worker": {"a:1", " 4@b:2 ", "c:3"}, "none": nil})
	if err != nil || spec.String() != "worker=a:1,4@b:2,c:3" {
		t.Errorf("got %v, %v", spec, err)
	}
	if got, want := spec.Lists(), (map[string][]string{"worker": {"a:1", "4@b:2", "c:3"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParseListsNamesTheEntry(t *testing.T) {
	for want, jobs := range map[string]map[string][]string{
		`"a b"`:                  {"a b": {"h:1"}},
		`entry 1, "nowhere"`:     {"worker": {"h:1", "nowhere"}},
		`entry 0, "x@h:1"`:       {"worker": {"x@h:1"}},
		`entry 0, "-1@h:1"`:      {"worker": {"-1@h:1"}},
		`entry 1, "0@i:1": this`: {"worker": {"h:1", "0@i:1"}},
		`entry 1, "i:1"`:         {"worker": {"2147483647@h:1", "i:1"}},
		`entry 0, ""`:            {"worker": {""}},
	} {
		if _, err := cluster.ParseLists(jobs); status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want InvalidArgument with %s", jobs, err, want)
		}
	}
}
