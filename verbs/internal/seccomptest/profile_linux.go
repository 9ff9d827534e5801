package seccomptest

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// profile is the part of a container engine's seccomp profile that decides what a container without
// capabilities may call. The form is that of github.com/containers/common, pkg/seccomp, types.go.
type profile struct {
	DefaultAction   string `json:"defaultAction"`
	DefaultErrnoRet *uint  `json:"defaultErrnoRet"`
	Syscalls        []rule `json:"syscalls"`
}

// rule is what happens to some calls. All of its arguments must match.
type rule struct {
	Names    []string   `json:"names"`
	Action   string     `json:"action"`
	ErrnoRet *uint      `json:"errnoRet"`
	Args     []argument `json:"args"`
	Includes conditions `json:"includes"`
	Excludes conditions `json:"excludes"`
}

// conditions say for which containers a rule is.
type conditions struct {
	Caps      []string `json:"caps"`
	Arches    []string `json:"arches"`
	MinKernel string   `json:"minKernel"`
}

// argument is a condition on an argument of a call.
type argument struct {
	Index    uint   `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo"`
	Op       string `json:"op"`
}

// load reads a profile.
func load(path string) (*profile, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p := new(profile)
	if err := json.Unmarshal(content, p); err != nil {
		return nil, fmt.Errorf("seccomp profile %s: %w", path, err)
	}
	return p, nil
}

// applies reports whether a rule is for a container without capabilities on this machine.
func (r *rule) applies(kernel version) (bool, error) {
	in, out := r.Includes, r.Excludes
	if len(in.Caps) > 0 || len(in.Arches) > 0 && !slices.Contains(in.Arches, runtime.GOARCH) || slices.Contains(out.Arches, runtime.GOARCH) {
		return false, nil
	}
	for text, included := range map[string]bool{in.MinKernel: true, out.MinKernel: false} {
		if text == "" {
			continue
		}
		least, err := parseVersion(text)
		if err != nil {
			return false, err
		}
		if kernel.before(least) == included {
			return false, nil
		}
	}
	return true, nil
}

// version is the first two numbers of a kernel's.
type version [2]int

func (v version) before(o version) bool { return slices.Compare(v[:], o[:]) < 0 }

func parseVersion(text string) (v version, err error) {
	major, minor, _ := strings.Cut(text, ".")
	if end := strings.IndexFunc(minor, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		minor = minor[:end]
	}
	for i, number := range []string{major, minor} {
		if v[i], err = strconv.Atoi(number); err != nil {
			return v, fmt.Errorf("kernel version %q: %w", text, err)
		}
	}
	return v, nil
}

// thisKernel returns the version of the running kernel.
func thisKernel() (version, error) {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return version{}, err
	}
	return parseVersion(strings.TrimSpace(string(release)))
}

// The values that a filter returns, of linux/seccomp.h.
const (
	retAllow       = 0x7fff0000
	retLog         = 0x7ffc0000
	retErrno       = 0x00050000
	retKillThread  = 0
	retKillProcess = 0x80000000
)

// verdict returns what a filter returns for an action. An error without a number is EPERM.
func verdict(action string, errno *uint) (uint32, error) {
	switch action {
	case "SCMP_ACT_ALLOW":
		return retAllow, nil
	case "SCMP_ACT_LOG":
		return retLog, nil
	case "SCMP_ACT_KILL", "SCMP_ACT_KILL_THREAD":
		return retKillThread, nil
	case "SCMP_ACT_KILL_PROCESS":
		return retKillProcess, nil
	case "SCMP_ACT_ERRNO":
		number := uint(syscall.EPERM)
		if errno != nil {
			number = *errno
		}
		return retErrno | uint32(number&0xfff), nil // at most MAX_ERRNO, 4095
	}
	return 0, fmt.Errorf("action %q is not supported", action)
}
