package softroce

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/status"
)

func TestLinksAreDevicesWithAParent(t *testing.T) {
	class := t.TempDir()
	put(t, filepath.Join(class, "rxe1", "parent"), "eth1\n")
	put(t, filepath.Join(class, "rxe0", "parent"), "eth0\n")
	put(t, filepath.Join(class, "mlx5_0", "node_guid"), "0000\n")
	got, err := linksIn(class)
	if err != nil {
		t.Fatal(err)
	}
	if want := []Device{{"rxe0", "eth0"}, {"rxe1", "eth1"}}; !slices.Equal(got, want) {
		t.Errorf("links %v, want %v", got, want)
	}
}

func TestLinksWithoutRDMA(t *testing.T) {
	if got, err := linksIn(filepath.Join(t.TempDir(), "infiniband")); err != nil || len(got) != 0 {
		t.Errorf("links %v, error %v, want no links and no error", got, err)
	}
}

func TestLinksUnreadableSysfs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "infiniband")
	put(t, file, "")
	if _, err := linksIn(file); status.CodeOf(err) != status.Internal {
		t.Errorf("error %v, want code Internal", err)
	}
}

func TestWaitActiveReportsWhatIsMissing(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  string // in the error; "" for none
	}{
		{"no device", nil, "its state cannot be read"},
		{"down", map[string]string{"state": "1: DOWN\n"}, "its port is in state 1: DOWN; is the interface up?"},
		{"no table", map[string]string{"state": "4: ACTIVE\n"}, "its GID table cannot be read"},
		{"no address", map[string]string{"state": "4: ACTIVE\n", "gids/0": "fe80:0000:0000:0000:c8fe:15ff:fe75:9af4\n"}, "its GID table has no IPv4 address"},
		{"active", map[string]string{
			"state": "4: ACTIVE\n", "gids/0": "fe80:0000:0000:0000:c8fe:15ff:fe75:9af4\n",
			"gids/1": "0000:0000:0000:0000:0000:ffff:c000:0201\n",
		}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			class := t.TempDir()
			for name, text := range tt.files {
				put(t, filepath.Join(class, "rxe0", "ports", "1", name), text)
			}
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := waitActiveIn(ctx, class, "rxe0")
				if tt.want == "" {
					if err != nil {
						t.Errorf("error %v, want none", err)
					}
					return
				}
				if status.CodeOf(err) != status.DeadlineExceeded || !strings.Contains(err.Error(), "RDMA device rxe0 is not active: "+tt.want) {
					t.Errorf("error %v, want DeadlineExceeded with %q", err, tt.want)
				}
			})
		})
	}
}

func TestAddLinkRefusesInvalidNames(t *testing.T) {
	for _, tt := range []struct{ name, netdev, want string }{
		{"", "eth0", `RDMA device "": the name must have 1 to 63 bytes`},
		{strings.Repeat("x", 64), "eth0", "the name must have 1 to 63 bytes"},
		{"a/b", "eth0", `RDMA device "a/b"`},
		{"rxe0", "", `network interface "": the name must have 1 to 15 bytes`},
		{"rxe0", strings.Repeat("e", 16), "the name must have 1 to 15 bytes"},
	} {
		err := AddDevice(tt.name, tt.netdev)
		if status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("AddDevice(%q, %q): error %v, want InvalidArgument with %q", tt.name, tt.netdev, err, tt.want)
		}
	}
}

// addError gives each error of the kernel a code, and a text that says what to do.
func TestAddErrorSaysWhatToDo(t *testing.T) {
	for _, tt := range []struct {
		errno unix.Errno
		code  status.Code
		want  string
	}{
		{unix.EPROTONOSUPPORT, status.FailedPrecondition, "modprobe rdma_rxe, or where the kernel is built without it, use the VM (make rxe-vm)"},
		{unix.EINVAL, status.FailedPrecondition, "modprobe rdma_rxe"},
		{unix.EOPNOTSUPP, status.FailedPrecondition, "modprobe rdma_rxe"},
		{unix.ENOENT, status.FailedPrecondition, "modprobe crc32_generic"},
		{unix.ENODEV, status.NotFound, "there is no network interface eth7"},
		{unix.EEXIST, status.AlreadyExists, "the name is taken"},
		{unix.EPERM, status.PermissionDenied, "run as root, or with CAP_NET_ADMIN"},
		{unix.EIO, status.Internal, "the kernel refused"},
	} {
		err := addError("rxe7", "eth7", tt.errno)
		if status.CodeOf(err) != tt.code || !errors.Is(err, tt.errno) || !strings.Contains(err.Error(), tt.want) ||
			!strings.HasPrefix(status.From(err).Message(), "add RDMA link rxe7 on eth7: ") {
			t.Errorf("addError(%v) = %v (%v), want %v with %q", tt.errno, err, status.CodeOf(err), tt.code, tt.want)
		}
	}
	if err := addError("rxe7", "eth7", nil); err != nil {
		t.Errorf("addError(nil) = %v, want nil", err)
	}
}

// put writes a file, and the directories above it.
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
