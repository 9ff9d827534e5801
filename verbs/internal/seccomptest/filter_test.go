//go:build linux

package seccomptest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// call is a system call with constant arguments.
type call struct {
	Number uintptr
	Args   [6]uintptr
}

const callsVariable = "TRYST_TEST_SECCOMP_CALLS"

// TestChild makes the calls of another test, under its filter, and prints what each returns.
func TestChild(t *testing.T) {
	list := os.Getenv(callsVariable)
	if list == "" {
		return // the tests below start it
	}
	if os.Getenv(Variable) != entered {
		t.Fatal("no filter is on")
	}
	var calls []call
	if err := json.Unmarshal([]byte(list), &calls); err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		_, _, e := syscall.RawSyscall6(c.Number, c.Args[0], c.Args[1], c.Args[2], c.Args[3], c.Args[4], c.Args[5])
		fmt.Printf("result %d\n", e)
	}
}

// under makes calls in a process under a profile and returns their errors, 0 for none.
func under(t *testing.T, profile string, calls ...call) []syscall.Errno {
	t.Helper()
	list, err := json.Marshal(calls)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(Environment(profile), callsVariable+"="+string(list))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var results []syscall.Errno
	for line := range strings.Lines(string(out)) {
		var e syscall.Errno
		if n, _ := fmt.Sscanf(line, "result %d", &e); n == 1 {
			results = append(results, e)
		}
	}
	if len(results) != len(calls) {
		t.Fatalf("%d calls have %d results: %s", len(calls), len(results), out)
	}
	return results
}

// TestForbiddenCalls: under the profile of containers a process without capabilities makes the calls
// that it may, and no others.
func TestForbiddenCalls(t *testing.T) {
	profile := Profile(t)
	self := uintptr(os.Getpid()) // the child cannot know it beforehand, and its parent will do
	calls := []call{
		{unix.SYS_KCMP, [6]uintptr{self, self, 1}},                                        // for CAP_SYS_PTRACE
		{unix.SYS_PERSONALITY, [6]uintptr{0x0040000}},                                     // ADDR_NO_RANDOMIZE is not one of the allowed values
		{unix.SYS_SOCKET, [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}}, // two arguments together
		{unix.SYS_USERFAULTFD, [6]uintptr{1}},                                             // in no list of allowed calls
		{unix.SYS_PERSONALITY, [6]uintptr{0xffffffff}},                                    // asks for the present one
		{unix.SYS_SOCKET, [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}},
		{unix.SYS_GETPID, [6]uintptr{}},
	}
	results := under(t, profile, calls...)
	for i, e := range results {
		if forbidden := i < 4; (e != 0) != forbidden {
			t.Errorf("call %d: %d", i, e)
		}
	}
	t.Log(results)
}

// TestRules: each part of the form of a profile decides what it says.
func TestRules(t *testing.T) {
	const personality, query = "personality", 0xffffffff
	equal := func(v uint64) argument { return argument{Value: v, Op: "SCMP_CMP_EQ"} }
	refused, number := "SCMP_ACT_ERRNO", func(e syscall.Errno) *uint { n := uint(e); return &n }
	high := call{unix.SYS_PERSONALITY, [6]uintptr{1<<32 | query}} // the kernel takes the lower half
	low := call{unix.SYS_PERSONALITY, [6]uintptr{query}}
	for name, c := range map[string]struct {
		rules []rule
		call  call
		want  syscall.Errno
	}{
		"no rule":              {nil, low, 0},
		"an error without one": {[]rule{{Action: refused}}, low, unix.EPERM},
		"an error":             {[]rule{{Action: refused, ErrnoRet: number(unix.EXDEV)}}, low, unix.EXDEV},
		"the first of two":     {[]rule{{Action: refused, ErrnoRet: number(unix.EXDEV)}, {Action: refused}}, low, unix.EXDEV},
		"equal":                {[]rule{{Action: refused, Args: []argument{equal(query)}}}, low, unix.EPERM},
		"equal, lower half":    {[]rule{{Action: refused, Args: []argument{equal(query - 1)}}}, low, 0},
		"equal, upper half":    {[]rule{{Action: refused, Args: []argument{equal(query)}}}, high, 0},
		"all arguments":        {[]rule{{Action: refused, Args: []argument{equal(query), {Index: 1, Value: 7, Op: "SCMP_CMP_EQ"}}}}, low, 0},
		"the next rule":        {[]rule{{Action: refused, Args: []argument{equal(7)}}, {Action: refused, ErrnoRet: number(unix.EXDEV)}}, low, unix.EXDEV},
		"not equal":            {[]rule{{Action: refused, Args: []argument{{Value: query, Op: "SCMP_CMP_NE"}}}}, low, 0},
		"not equal, lower":     {[]rule{{Action: refused, Args: []argument{{Value: 7, Op: "SCMP_CMP_NE"}}}}, low, unix.EPERM},
		"not equal, upper":     {[]rule{{Action: refused, Args: []argument{{Value: query, Op: "SCMP_CMP_NE"}}}}, high, unix.EPERM},
		"masked":               {[]rule{{Action: refused, Args: []argument{{Value: 0xf, ValueTwo: 0xf, Op: "SCMP_CMP_MASKED_EQ"}}}}, high, unix.EPERM},
		"masked, other":        {[]rule{{Action: refused, Args: []argument{{Value: 0xf, ValueTwo: 0xe, Op: "SCMP_CMP_MASKED_EQ"}}}}, low, 0},
		"with a capability":    {[]rule{{Action: refused, Includes: conditions{Caps: []string{"CAP_SYS_ADMIN"}}}}, low, 0},
		"without a capability": {[]rule{{Action: refused, Excludes: conditions{Caps: []string{"CAP_SYS_ADMIN"}}}}, low, unix.EPERM},
		"another architecture": {[]rule{{Action: refused, Includes: conditions{Arches: []string{"s390x"}}}}, low, 0},
		"a later kernel":       {[]rule{{Action: refused, Includes: conditions{MinKernel: "99.0"}}}, low, 0},
		"an earlier kernel":    {[]rule{{Action: refused, Includes: conditions{MinKernel: "2.6"}}}, low, unix.EPERM},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range c.rules {
				c.rules[i].Names = []string{"no such call", personality}
			}
			if results := under(t, write(t, profile{DefaultAction: "SCMP_ACT_ALLOW", Syscalls: c.rules}), c.call); !slices.Equal(results, []syscall.Errno{c.want}) {
				t.Errorf("the call ends with %d, want %d", results, c.want)
			}
		})
	}
}

// write writes a profile to a file.
func write(t *testing.T, p profile) string {
	t.Helper()
	content, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "seccomp.json")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUnknownForms: a profile with parts that are not known here is an error, not a weaker filter.
func TestUnknownForms(t *testing.T) {
	for name, p := range map[string]profile{
		"the default action": {DefaultAction: "SCMP_ACT_TRACE"},
		"an action":          {DefaultAction: "SCMP_ACT_ALLOW", Syscalls: []rule{{Names: []string{"read"}, Action: "SCMP_ACT_NOTIFY"}}},
		"a comparison": {DefaultAction: "SCMP_ACT_ALLOW", Syscalls: []rule{
			{Names: []string{"read"}, Action: "SCMP_ACT_ERRNO", Args: []argument{{Op: "SCMP_CMP_GE"}}},
		}},
		"an argument": {DefaultAction: "SCMP_ACT_ALLOW", Syscalls: []rule{
			{Names: []string{"read"}, Action: "SCMP_ACT_ERRNO", Args: []argument{{Index: 6, Op: "SCMP_CMP_EQ"}}},
		}},
		"a kernel": {DefaultAction: "SCMP_ACT_ALLOW", Syscalls: []rule{
			{Names: []string{"read"}, Action: "SCMP_ACT_ERRNO", Includes: conditions{MinKernel: "new"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := p.program(); err == nil {
				t.Error("it is accepted")
			}
		})
	}
}
